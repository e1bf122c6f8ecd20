"""Kafka Connect's REST API on aiohttp: paths, bodies, error bodies. What is asked for is done by the service."""
