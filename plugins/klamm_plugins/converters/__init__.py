"""The converters that come with Klamm: text, JSON, bytes, numbers and headers, and three that use a schema registry."""
