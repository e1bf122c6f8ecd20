"""Checks connector configurations, as Kafka checks them: definitions, rules across keys, client overrides."""
