"""The broker's properties of producer ids and transactions."""

from __future__ import annotations

from typing import Any

from klamm_base.configdef import Importance, Type, between


def define(key: Any) -> None:
    """Define the properties with `key(name, type, default, validator, documentation)`."""
    _producer_keys(key)
    _transaction_keys(key)
    _adding_keys(key)
    _topic_keys(key)


def _producer_keys(key: Any) -> None:
    positive = between(1)
    key(
        "producer.id.expiration.ms",
        Type.INT,
        86_400_000,
        positive,
        "A producer without writes for this long is forgotten, in milliseconds.",
        importance=Importance.LOW,
    )
    key(
        "producer.id.expiration.check.interval.ms",
        Type.INT,
        600_000,
        positive,
        "The interval between two searches for producers to forget, in milliseconds.",
        importance=Importance.LOW,
    )


def _transaction_keys(key: Any) -> None:
    positive, high, low = between(1), Importance.HIGH, Importance.LOW
    key(
        "transaction.max.timeout.ms",
        Type.INT,
        900_000,
        positive,
        "Longest transaction time-out that a producer may ask for, in milliseconds.",
        importance=high,
    )
    key(
        "transactional.id.expiration.ms",
        Type.INT,
        604_800_000,
        positive,
        "A transactional id without transactions for this long is forgotten, in milliseconds.",
        importance=high,
    )
    key(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        Type.INT,
        10_000,
        positive,
        "The interval between two searches for transactions that are open for longer than their time-out, in milliseconds.",
        importance=low,
    )
    key(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        Type.INT,
        3_600_000,
        positive,
        "The interval between two searches for transactional ids to forget, in milliseconds.",
        importance=low,
    )
    key(
        "transaction.partition.verification.enable",
        Type.BOOLEAN,
        True,
        None,
        "Checks that transactional records belong to an open transaction if the client adds partitions itself (Produce below version 12).",
        importance=low,
    )


def _adding_keys(key: Any) -> None:
    positive, high, low = between(1), Importance.HIGH, Importance.LOW
    key(
        "transaction.two.phase.commit.enable",
        Type.BOOLEAN,
        False,
        None,
        "Accepted; no served version of InitProducerId asks for two-phase commit, as in Kafka 4.3.",
        importance=low,
    )
    key(
        "add.partitions.to.txn.retry.backoff.ms",
        Type.INT,
        20,
        positive,
        "The pause before a Produce that adds partitions tries again while the last transaction is being ended, in milliseconds.",
    )
    key(
        "add.partitions.to.txn.retry.backoff.max.ms",
        Type.INT,
        100,
        between(0),
        "The time that a Produce tries to add partitions before it is answered CONCURRENT_TRANSACTIONS, in milliseconds.",
        importance=high,
    )


def _topic_keys(key: Any) -> None:
    positive, high = between(1), Importance.HIGH
    key(
        "transaction.state.log.num.partitions",
        Type.INT,
        50,
        positive,
        "Partitions of `__transaction_state`; read when the topic is created.",
        importance=high,
    )
    key(
        "transaction.state.log.replication.factor",
        Type.SHORT,
        1,
        positive,
        "Accepted; one node holds one replica.",
        importance=high,
    )
    key(
        "transaction.state.log.min.isr",
        Type.INT,
        1,
        positive,
        "Accepted; one node holds one replica.",
        importance=high,
    )
    key(
        "transaction.state.log.segment.bytes",
        Type.INT,
        104857600,
        positive,
        "Segment size of `__transaction_state`, in bytes.",
        importance=high,
    )
    key(
        "transaction.state.log.load.buffer.size",
        Type.INT,
        5242880,
        positive,
        "Accepted; transactional ids are loaded in smaller pieces.",
        importance=high,
    )
