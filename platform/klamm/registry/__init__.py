"""A schema registry with the REST API of Confluent's, whose state is a compacted topic."""
