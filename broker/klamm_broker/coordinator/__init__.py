"""Coordinators as pure state machines: groups with their offsets, transactions, and producer ids.

The server uses `groups.GroupCoordinator`, `transactions.coordinator.TransactionCoordinator` and
`producer_ids.ProducerIds`; `effects` defines how they ask for I/O. No module here knows sockets, files, threads or
clocks (import-linter holds it).
"""
