"""Replication between clusters. Nothing is here yet."""
