"""Reads, alters and resets the offsets of connectors (KIP-875)."""
