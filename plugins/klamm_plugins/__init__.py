"""The modules that a plugin author imports: records, schemas, base classes, hook specifications."""
