"""Coordinators as pure state machines: groups with their offsets, and producer ids.

`groups.GroupCoordinator` and `producer_ids.ProducerIds` are what the server uses; `effects` says how they
ask for I/O. No module here knows sockets, files, threads or clocks (import-linter holds it).
"""
