"""Schemas of a schema registry: subjects that follow their topics, and ids that are kept or translated in records."""
