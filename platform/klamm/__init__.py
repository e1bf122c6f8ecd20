"""Workers, REST, CLI and `klamm.testing`: what ties the parts together."""
