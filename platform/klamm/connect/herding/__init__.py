"""Decides what this worker runs: the pure herder, its seam to the group, and what the leader does for all."""
