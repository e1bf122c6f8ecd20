"""The `klamm` command line."""
