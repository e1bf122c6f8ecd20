"""Share groups (KIP-932): the group's members and assignment, its partitions' records in flight, and their stored state.

Pure state machines; `server/share_groups.py` connects them to the broker.
"""
