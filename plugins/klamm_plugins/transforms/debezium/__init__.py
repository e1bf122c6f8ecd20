"""Transforms under the names of Debezium's, for its change events."""
