"""Client telemetry (KIP-714): every answer beside Apache Kafka's, subscription ids included."""

from __future__ import annotations

import time

import pytest
from support.answers import NOBODY

from klamm_kafka.wire.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from klamm_kafka.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from klamm_kafka.wire.messages.push_telemetry import PushTelemetryRequest

pytestmark = pytest.mark.usefixtures("apache_kafka")


def subscribe(name, **configs):
    entries = [
        AlterableConfig(name=key.replace("_", "."), config_operation=0 if value else 1, value=value)
        for key, value in configs.items()
    ]
    resource = AlterConfigsResource(resource_type=16, resource_name=name, configs=entries)
    return IncrementalAlterConfigsRequest(resources=[resource]), 1


def ask(instance_id=NOBODY):
    return GetTelemetrySubscriptionsRequest(client_instance_id=instance_id), 0


def push(subscription_id=None, instance_id=NOBODY, **more):
    def made(answers):
        told = [a for a in answers if hasattr(a, "subscription_id")]
        wanted = told[-1].subscription_id if subscription_id is None else subscription_id
        request = PushTelemetryRequest(
            client_instance_id=instance_id, subscription_id=wanted, **{"metrics": b"", **more}
        )
        return request, 0

    return made


def later(asked, seconds=0.6):
    """Sends a request after the interval."""

    def made(answers):
        time.sleep(seconds)
        return asked(answers) if callable(asked) else asked

    return made


def test_without_a_subscription_nothing_is_asked_for(two_brokers):
    two_brokers.compare(
        lambda _: [ask(bytes([9] * 16)), ask(bytes([9] * 16)), push(instance_id=bytes([9] * 16))]
    )


def test_subscriptions_are_joined_and_their_id_is_kafkas(two_brokers):
    two_brokers.compare(
        lambda _: [
            subscribe(
                "one", metrics="org.apache.kafka.producer.,org.apache.kafka.consumer.", interval_ms="9000"
            ),
            subscribe("two", metrics="org.apache.kafka.admin.,org.apache.kafka.producer.", interval_ms="500"),
            subscribe("three", metrics="*", interval_ms="100", match="client_id=somebody"),
            ask(),
            subscribe("three", match=""),
            ask(bytes([7] * 16)),
            *(subscribe(name, metrics="", interval_ms="") for name in ("one", "two", "three")),
        ]
    )


def test_pushes_are_refused_with_the_same_errors(two_brokers):
    two_brokers.compare(
        lambda _: [
            subscribe("all", metrics="*", interval_ms="500"),
            ask(),
            ask(),
            push(),
            push(),
            later(push(12345)),
            ask(),
            later(push(compression_type=9)),
            later(push(metrics=bytes(1024 * 1024 + 1))),
            later(push(compression_type=4, metrics=b"no zstd", terminating=True)),
            later(push()),
            push(instance_id=bytes(16)),
            push(instance_id=bytes(15) + b"\x01"),
            subscribe("all", metrics="", interval_ms=""),
        ]
    )
