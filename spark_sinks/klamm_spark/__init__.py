"""Topics in Spark: a Python data source `klamm`, writers, and Structured Streaming jobs from a config file."""
