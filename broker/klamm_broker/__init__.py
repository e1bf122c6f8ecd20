"""A broker core: Kafka's wire protocol, Kafka's on-disk format."""
