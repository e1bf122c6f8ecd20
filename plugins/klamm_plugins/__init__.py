"""What a plugin author imports: records, schemas, base classes, hook specifications."""
