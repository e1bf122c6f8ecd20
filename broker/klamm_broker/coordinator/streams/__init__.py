"""Streams groups (KIP-1071): the coordinator knows the topology of a Kafka Streams application and assigns its tasks.

Modelled like `coordinator/consumer`: durable records make a group, a heartbeat computes a change, `reconcile` moves a
member towards its target. Assignment and topology are pure functions.
"""
