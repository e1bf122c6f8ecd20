"""Keys of the tombstones for rows that vanished before a repeated snapshot."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from klamm_base.configdef import ConfigDef, Importance, Type, with_prefix

_HISTORY: Final = "schema.history.internal."
_SIGNAL: Final = "signal."
_LOW: Final = Importance.LOW


@dataclass(frozen=True, slots=True, kw_only=True)
class Tombstones:
    """The cluster in which the topics are read back."""

    consumer: Mapping[str, str] = field(repr=False)
    producer: Mapping[str, str] = field(repr=False)

    @property
    def what(self) -> str:
        """The matter, for messages."""
        return f"tombstones of vanished rows (snapshot.tombstones) at {self.consumer['bootstrap.servers']}"


def define(d: ConfigDef) -> ConfigDef:
    """Adds the keys."""
    return (
        d.define("snapshot.tombstones", Type.BOOLEAN, True, importance=_LOW, documentation="Whether a repeated snapshot writes tombstones for rows that their topics know and the tables no longer have. It writes none for a topic that got another number of keys than its table has rows, for tables of snapshot.select.statement.overrides, with d in skipped.operations, and with tombstones.on.delete=false. It needs the addresses of the cluster: signal.kafka.bootstrap.servers or schema.history.internal.kafka.bootstrap.servers.")
        .define("schema.history.internal.kafka.bootstrap.servers", Type.STRING, None, importance=_LOW, documentation="Addresses of the cluster where topics are read back for snapshot.tombstones. (There is no topic of schema history here.) Further client properties begin with schema.history.internal.consumer. and schema.history.internal.producer.")
    )  # fmt: skip


def read(values: Mapping[str, Any], props: Mapping[str, str]) -> Tombstones | None:
    """Returns the settings; None when no tombstones or deletes are wanted, or where no cluster is known."""
    if not values["snapshot.tombstones"] or not values["tombstones.on.delete"]:
        return None
    if "d" in values["skipped.operations"]:
        return None  # the sweep's tombstones are deletes
    if values["signal.kafka.bootstrap.servers"]:
        own = with_prefix(props, f"{_SIGNAL}consumer.")
        return _at(values["signal.kafka.bootstrap.servers"], own, own)
    if values[f"{_HISTORY}kafka.bootstrap.servers"]:
        consumer, producer = (
            with_prefix(props, f"{_HISTORY}consumer."),
            with_prefix(props, f"{_HISTORY}producer."),
        )
        return _at(values[f"{_HISTORY}kafka.bootstrap.servers"], consumer, producer)
    return None


def _at(servers: str, consumer: Mapping[str, str], producer: Mapping[str, str]) -> Tombstones:
    address = {"bootstrap.servers": servers}
    return Tombstones(consumer={**consumer, **address}, producer={**producer, **address})
