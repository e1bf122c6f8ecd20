"""Reads the topics out of a consumer's subscription (the metadata of protocol type `consumer`).

Every version of ConsumerProtocolSubscription starts as version 0 does. Only that prefix is read, so that newer clients
are understood.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from klamm_kafka.wire.errors import ProtocolError
from klamm_kafka.wire.messages.consumer_protocol import ConsumerProtocolSubscription

_VERSION: Final = Struct(">h")


class MalformedSubscription(ValueError):
    """These bytes are not a ConsumerProtocolSubscription."""


def subscribed_topics(metadata: bytes) -> list[str]:
    """Returns the topic names in a subscription. Raises MalformedSubscription."""
    if len(metadata) < _VERSION.size:
        raise MalformedSubscription(f"{len(metadata)} bytes, at least {_VERSION.size} are needed")
    (version,) = _VERSION.unpack_from(metadata)
    if version < 0:
        raise MalformedSubscription(f"version {version}")
    try:
        subscription, _ = ConsumerProtocolSubscription.decode(metadata, 0, _VERSION.size)
    except ProtocolError as e:
        raise MalformedSubscription(str(e)) from e
    return subscription.topics
