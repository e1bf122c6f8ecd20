"""The settings of a mirror's client, from the keys of its cluster and its kind (`common_config.client_settings`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from klamm_base.configdef import invalid
from klamm_base.errors import ConfigError
from klamm_kafka.wire.compression import Compression
from klamm_mirror.settings.common_config import ClientKind, Side, client_security, client_settings

if TYPE_CHECKING:
    from klamm_base.security import ClientSecurity
    from klamm_kafka.client import Cluster

CLIENT_ID: Final = "klamm-mirror"
REQUEST_TIMEOUT_MS: Final = 10_000
LEVELS: Final = {Compression.GZIP: (1, 9), Compression.LZ4: (1, 17), Compression.ZSTD: (-131_072, 22)}
"""The ranges of Kafka's producer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """The way to a cluster. `timeout_ms` is for an answer, and for a connection to come about."""

    bootstrap: str
    security: ClientSecurity | None = None
    client_id: str = CLIENT_ID
    timeout_ms: int = REQUEST_TIMEOUT_MS

    @classmethod
    def of(cls, props: Mapping[str, str], side: Side, kind: ClientKind) -> ClientSettings:
        """Reads a connector's properties, and key stores. Raises ConfigError."""
        given = client_settings(props, side, kind)
        return cls(
            bootstrap=given["bootstrap.servers"],
            security=client_security(props, side, kind),
            client_id=given.get("client.id", "").strip() or CLIENT_ID,
            timeout_ms=number(given, f"{side}.{kind}", "request.timeout.ms", REQUEST_TIMEOUT_MS, low=1),
        )

    def cluster(self, *, name: str | None = None, patience_s: float | None = None) -> Cluster:
        """Returns a client, not yet connected; see `Cluster`. Raises ConfigError for certificates that OpenSSL refuses."""
        from klamm_kafka.client import Cluster  # brings asyncio, which a connector's process starts without

        return Cluster(
            self.bootstrap,
            client_id=self.client_id,
            timeout_s=self.timeout_ms / 1000,
            security=self.security,
            name=name,
            patience_s=patience_s,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSettings:
    """The limits of the producer of records."""

    in_flight: int
    request_bytes: int
    timeout_ms: int
    compression: Compression | None = None
    """None: each batch keeps the compression of its source."""
    level: int | None = None
    transaction_timeout_ms: int = 60_000

    @classmethod
    def of(cls, props: Mapping[str, str]) -> ProducerSettings:
        """Reads a connector's properties. Raises ConfigError."""
        given = client_settings(props, "target", "producer")

        def read(key: str, default: int, high: int | None = None) -> int:
            return number(given, "target.producer", key, default, low=1, high=high)

        compression = _compression(given)
        return cls(
            in_flight=read("max.in.flight.requests.per.connection", 5, 5),
            request_bytes=read("max.request.size", 4 << 20),
            timeout_ms=read("request.timeout.ms", 30_000),
            compression=compression,
            level=_level(given, compression),
            transaction_timeout_ms=read("transaction.timeout.ms", 60_000),
        )


def _compression(given: Mapping[str, str]) -> Compression | None:
    """Returns the codec of `compression.type`; None when it is not set. Raises ConfigError."""
    name = given.get("compression.type", "").strip().lower()
    if not name:
        return None
    try:
        return Compression[name.upper()]
    except KeyError:
        known = ", ".join(codec.name.lower() for codec in Compression)
        raise invalid("target.producer.compression.type", name, f"Must be one of {known}") from None


def _level(given: Mapping[str, str], compression: Compression | None) -> int | None:
    """Returns the level of the codec that is used; None for its own. Raises ConfigError."""
    if compression not in LEVELS:
        return None
    key, (low, high) = f"compression.{compression.name.lower()}.level", LEVELS[compression]
    text = given.get(key, "").strip()
    if not text or (text == "-1" and compression is Compression.GZIP):
        return None
    if not text.lstrip("-").isdigit() or not low <= int(text) <= high:
        raise invalid(f"target.producer.{key}", text, f"Must be a whole number from {low} to {high}")
    return int(text)


def number(
    given: Mapping[str, str], prefix: str, key: str, default: int, *, low: int = 0, high: int | None = None
) -> int:
    """Returns a whole number of a client's settings. Raises ConfigError with the key behind its prefix."""
    text = given.get(key, str(default)).strip()
    if not text.isdigit() or int(text) < low or (high is not None and int(text) > high):
        range_ = f"from {low} on" if high is None else f"from {low} to {high}"
        raise ConfigError(
            f"Invalid value {text} for configuration {prefix}.{key}: Must be a whole number {range_}",
            key=f"{prefix}.{key}",
        )
    return int(text)
