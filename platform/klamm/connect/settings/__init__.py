"""Groups of settings for worker and connectors, each with its keys, defaults and checks. No I/O."""
