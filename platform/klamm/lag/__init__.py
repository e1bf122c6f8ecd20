"""Lag of consumer groups, sinks, mirror flows and Spark queries: Burrow's rules, time lag, HTTP, notifications."""
