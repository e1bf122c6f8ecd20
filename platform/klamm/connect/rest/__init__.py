"""Kafka Connect's REST API on aiohttp: paths, bodies, error bodies. The service carries the requests out."""
