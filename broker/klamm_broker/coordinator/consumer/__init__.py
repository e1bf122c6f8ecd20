"""Groups of the consumer protocol (KIP-848): the coordinator assigns, members report and reconcile.

Rules of this package: a group (`group.py`) changes by its records only, and only once they are durable
(`journal.py`). So a restart replays exactly the live state, and nobody is told of anything that could be lost.
"""
