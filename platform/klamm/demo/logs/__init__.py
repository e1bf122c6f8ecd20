"""The log pipeline as a demonstration: generator → agent → broker → Spark → Elasticsearch (or SQLite), reconciled."""
