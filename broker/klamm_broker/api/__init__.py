"""Request handlers, one module per API key: listing this folder is reading the compatibility table."""
