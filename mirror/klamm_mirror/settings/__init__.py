"""The mirror's settings: keys of connectors and of MirrorMaker's properties, filters, policies, plugins."""
