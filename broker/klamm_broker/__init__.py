"""The broker: API handlers, coordinators, the log in Kafka's format on disk, and the server around them."""
