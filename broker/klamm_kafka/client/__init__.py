"""A small asyncio Kafka client on the sans-IO codec: for worker membership, the mirror and tests.

`Connection` speaks with one broker, `Cluster` finds brokers, leaders and coordinators. No producer or consumer.
"""

from klamm_kafka.client.cluster import Address, Cluster, broker_error, parse_bootstrap
from klamm_kafka.client.connection import Connection
from klamm_kafka.client.errors import (
    AnotherCluster,
    AuthenticationFailed,
    BrokerError,
    ClientError,
    ConnectionLost,
    ProducerFenced,
    RequestTimedOut,
    TransactionFailed,
    UnsupportedApi,
)
from klamm_kafka.client.one_cluster import OneCluster

__all__ = [
    "Address",
    "AnotherCluster",
    "AuthenticationFailed",
    "BrokerError",
    "ClientError",
    "Cluster",
    "Connection",
    "ConnectionLost",
    "OneCluster",
    "ProducerFenced",
    "RequestTimedOut",
    "TransactionFailed",
    "UnsupportedApi",
    "broker_error",
    "parse_bootstrap",
]
