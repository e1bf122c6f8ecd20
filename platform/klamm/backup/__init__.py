"""Backups of a Kafka cluster: `klamm backup create|verify|restore|list|prune`.

A backup folder (`store`) holds chunks and manifests. A chunk is a row of record batches of one partition, the very bytes
that the broker sent (`chunks`); a manifest (`manifest`) says what a backup consists of (`model`). Nothing in the folder is
changed once it is written, so a killed command leaves former backups whole.

`increment`, `committed`, `mapping` and `selection` decide, without I/O. `create`, `verify`, `compare`, `restore` and `prune` carry out.
"""
