"""Replication between clusters: MirrorMaker 2's connectors.

`source/`, `checkpoint/` and `heartbeat/` hold one connector each: `connector.py`, `config.py` and `task.py`, as in
`klamm_connectors`; `plugin.py` registers them. The other modules are what the tasks run.
"""
