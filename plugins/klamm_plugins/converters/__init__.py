"""The converters that come with Klamm: String, JSON, ByteArray and simple headers."""
