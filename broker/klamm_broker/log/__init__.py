"""The log on disk: Kafka's segment, index, snapshot and checkpoint files, and the rules for them.

The server uses `partition_log` (one partition) and `log_manager` (all log directories); the other
modules are their parts. Nothing here starts a thread, opens a socket or reads a clock: time is passed in.
"""
