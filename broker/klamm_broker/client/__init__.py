"""A small asyncio Kafka client on the sans-IO codec."""
