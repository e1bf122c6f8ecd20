"""The settings of a mirror's client, from the keys of its cluster and its kind (`common_config.client_settings`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from klamm_base.errors import ConfigError
from klamm_mirror.common_config import ClientKind, Side, client_security, client_settings

if TYPE_CHECKING:
    from klamm_base.security import ClientSecurity
    from klamm_kafka.client import Cluster

CLIENT_ID: Final = "klamm-mirror"
REQUEST_TIMEOUT_MS: Final = 10_000


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

    def cluster(self) -> Cluster:
        """Returns a client, not yet connected. Raises ConfigError for certificates that OpenSSL refuses."""
        from klamm_kafka.client import Cluster  # brings asyncio, which a connector's process starts without

        return Cluster(
            self.bootstrap,
            client_id=self.client_id,
            timeout_s=self.timeout_ms / 1000,
            security=self.security,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSettings:
    """The limits of the producer of records."""

    in_flight: int
    request_bytes: int
    timeout_ms: int

    @classmethod
    def of(cls, props: Mapping[str, str]) -> ProducerSettings:
        """Reads a connector's properties. Raises ConfigError."""
        given = client_settings(props, "target", "producer")

        def read(key: str, default: int, high: int | None = None) -> int:
            return number(given, "target.producer", key, default, low=1, high=high)

        return cls(
            in_flight=read("max.in.flight.requests.per.connection", 5, 5),
            request_bytes=read("max.request.size", 4 << 20),
            timeout_ms=read("request.timeout.ms", 30_000),
        )


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
