"""Principals of clients: what they may use (quotas), and which of them the target lacks (users)."""
