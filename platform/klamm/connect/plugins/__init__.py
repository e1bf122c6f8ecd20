"""Plugins of a worker: which there are, in which environments, and how the group agrees on them."""
