"""The transforms that come with Klamm: Kafka's, with Kafka's names and configuration."""
