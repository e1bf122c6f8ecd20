"""Request handlers, one module per API key: the listing of this folder is the compatibility table."""
