"""The subscriptions of client metrics (KIP-714), and the clients that were told of them, as Kafka's ClientMetricsManager. Pure.

A subscription is the configuration of a CLIENT_METRICS resource. A client gets the union of those that match it, and
the shortest of their intervals. Its subscription id follows from both, so that a push by an old subscription is refused. A
client may ask and push once per interval; a push that ends its life (`terminating`) may come early, and nothing after it.
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from klamm_broker.coordinator import java_order
from klamm_broker.coordinator.timers import Timers
from klamm_kafka.wire.compression import Compression
from klamm_kafka.wire.crc import crc32c
from klamm_kafka.wire.errors import ErrorCode

INTERVAL_MS: Final = 300_000
"""The interval of a client without a subscription, and the longest of one with any."""
ALL: Final = "*"
INSTANCES_MAX: Final = 16_384
"""Clients that are remembered, as in Kafka. The one that was heard of least recently makes room."""
_KEEP_MS: Final = 60_000
_RESERVED: Final = frozenset({bytes(16), bytes(15) + b"\x01"})
_NEVER: Final = -(1 << 62)
_RETRY_AFTER: Final = frozenset({ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE})
"""After these errors a client may ask for its subscription at once."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """One CLIENT_METRICS resource."""

    metrics: Sequence[str]
    interval_ms: int
    match: Mapping[str, re.Pattern[str]]

    @classmethod
    def parse(cls, metrics: Sequence[str], interval_ms: int, match: Sequence[str]) -> Subscription:
        """Returns the subscription of checked configurations."""
        patterns = {}
        for text in match:
            name, _, expression = text.partition("=")
            patterns[name.strip()] = re.compile(expression.strip())
        return cls(tuple(metrics), interval_ms, patterns)

    def matches(self, attributes: Mapping[str, str]) -> bool:
        return all(
            name in attributes and pattern.fullmatch(attributes[name]) is not None
            for name, pattern in self.match.items()
        )


@dataclass(slots=True)
class Instance:
    """A client, with the subscription that it was told."""

    attributes: Mapping[str, str]
    metrics: Sequence[str]
    interval_ms: int
    subscription_id: int
    version: int
    """The version of the subscriptions by which it was made."""
    last_get_ms: int = _NEVER
    last_push_ms: int = _NEVER
    last_error: ErrorCode = ErrorCode.NONE
    terminating: bool = False

    @property
    def keep_ms(self) -> int:
        """Returns how long it is remembered after its last request."""
        return max(_KEEP_MS, 3 * self.interval_ms)

    def may_get(self, now_ms: int) -> bool:
        """Decides whether it may ask now, and if so takes note of it."""
        if now_ms - max(self.last_get_ms, self.last_push_ms) >= self.interval_ms:
            self.last_get_ms = now_ms
            return True
        return self.last_error in _RETRY_AFTER

    def may_push(self, now_ms: int) -> bool:
        """Decides whether it may push now: the first time after it asked, then once per interval."""
        if self.last_get_ms <= self.last_push_ms and now_ms - self.last_push_ms < self.interval_ms:
            return False
        self.last_push_ms = now_ms
        return True


class Subscriptions:
    """All subscriptions, and the clients by instance id. `throttled` and `unknown` count refused requests."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.throttled = self.unknown = 0
        self._subscriptions: dict[str, Subscription] = {}
        self._version = 0
        self._instances: dict[bytes, Instance] = {}
        self._by_connection: dict[object, bytes] = {}
        self._timers = Timers()

    def __len__(self) -> int:
        return len(self._instances)

    def update(self, name: str, subscription: Subscription | None) -> None:
        """Set or remove (None) a subscription. Clients learn of it when their next push is refused."""
        if subscription is None:
            self._subscriptions.pop(name, None)
        else:
            self._subscriptions[name] = subscription
        self._version += 1

    def get(
        self, instance_id: bytes, attributes: Mapping[str, str], connection: object, now_ms: int
    ) -> tuple[ErrorCode, Instance]:
        """Handle GetTelemetrySubscriptions of a client that has an instance id by now."""
        instance = self._instance(instance_id, attributes, connection, now_ms)
        if not instance.may_get(now_ms):
            self.throttled += 1
            return ErrorCode.THROTTLING_QUOTA_EXCEEDED, instance
        instance.last_error = ErrorCode.NONE
        return ErrorCode.NONE, instance

    def push(
        self,
        instance_id: bytes,
        attributes: Mapping[str, str],
        connection: object,
        now_ms: int,
        *,
        subscription_id: int,
        terminating: bool,
        compression: int,
        size: int,
    ) -> tuple[ErrorCode, Instance | None]:
        """Check a PushTelemetry before its metrics are read. The caller sets `last_error` if they cannot be."""
        if instance_id in _RESERVED:
            return ErrorCode.INVALID_REQUEST, None
        instance = self._instance(instance_id, attributes, connection, now_ms)
        error = self._refused(
            instance,
            now_ms,
            subscription_id=subscription_id,
            terminating=terminating,
            compression=compression,
            size=size,
        )
        instance.last_error = error
        instance.terminating = terminating
        return error, instance

    def _refused(
        self,
        instance: Instance,
        now_ms: int,
        *,
        subscription_id: int,
        terminating: bool,
        compression: int,
        size: int,
    ) -> ErrorCode:
        if instance.terminating:
            return ErrorCode.INVALID_REQUEST
        if not instance.may_push(now_ms) and not terminating:
            self.throttled += 1
            return ErrorCode.THROTTLING_QUOTA_EXCEEDED
        if subscription_id != instance.subscription_id:
            self.unknown += 1
            return ErrorCode.UNKNOWN_SUBSCRIPTION_ID
        if compression not in Compression.__members__.values():
            return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        if size > self.max_bytes:
            return ErrorCode.TELEMETRY_TOO_LARGE
        return ErrorCode.NONE

    def on_disconnect(self, connection: object) -> None:
        """Forget the client that last spoke through this connection."""
        instance_id = self._by_connection.pop(connection, None)
        if instance_id is not None:
            self._forget(instance_id)

    def _instance(
        self, instance_id: bytes, attributes: Mapping[str, str], connection: object, now_ms: int
    ) -> Instance:
        while (key := self._timers.pop_due(now_ms)) is not None:
            self._forget(bytes.fromhex(key[0]))
        instance = self._instances.pop(instance_id, None)
        if instance is None or instance.version < self._version:
            instance = self._made(instance_id, attributes if instance is None else instance.attributes)
            self._by_connection[connection] = instance_id
        self._instances[instance_id] = instance  # the most recent one comes last
        self._timers.set((instance_id.hex(),), now_ms + instance.keep_ms)
        if len(self._instances) > INSTANCES_MAX:
            self._forget(next(iter(self._instances)))
        return instance

    def _forget(self, instance_id: bytes) -> None:
        self._instances.pop(instance_id, None)
        self._timers.cancel((instance_id.hex(),))

    def _made(self, instance_id: bytes, attributes: Mapping[str, str]) -> Instance:
        metrics: dict[str, None] = {}
        interval_ms = INTERVAL_MS
        for name in java_order.strings(self._subscriptions):
            subscription = self._subscriptions[name]
            if subscription.matches(attributes):
                metrics |= dict.fromkeys(java_order.strings(subscription.metrics))
                interval_ms = min(interval_ms, subscription.interval_ms)
        wanted = [ALL] if ALL in metrics else java_order.strings(metrics)
        return Instance(
            attributes, wanted, interval_ms, _subscription_id(wanted, interval_ms, instance_id), self._version
        )


def attributes_of(
    instance_id: bytes, *, client_id: str | None, software: tuple[str, str], host: str, port: int
) -> dict[str, str]:
    """Returns what a subscription can match; what is not known is left out."""
    known = {
        "client_instance_id": text_of(instance_id),
        "client_software_name": software[0],
        "client_software_version": software[1],
        "client_source_address": host,
        "client_source_port": str(port),
    }
    return known if client_id is None else {**known, "client_id": client_id}


def text_of(instance_id: bytes) -> str:
    """Returns a Uuid as Kafka writes it."""
    return urlsafe_b64encode(instance_id).decode().rstrip("=")


def _subscription_id(metrics: Iterable[str], interval_ms: int, instance_id: bytes) -> int:
    text = f"[{', '.join(metrics)}]{interval_ms}"
    value: int = crc32c(text.encode()) ^ java_order.uuid_hash(instance_id)
    return value - (1 << 32) if value >> 31 else value
