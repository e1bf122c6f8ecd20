"""Groups of settings, each with its keys, defaults and checks, from which worker and connectors take theirs. No I/O."""
