"""Spark Structured Streaming jobs. Nothing is here yet."""
