"""The log on disk: Kafka's segment, index, snapshot and checkpoint files, and what decides about them.

`partition_log` (one partition) and `log_manager` (one log directory) are what the server uses; the other
modules are their parts. Nothing here starts a thread, opens a socket or reads a clock: time is passed in.
"""
