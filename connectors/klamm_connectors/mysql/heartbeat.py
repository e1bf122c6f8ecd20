"""Heartbeat records, which carry the position while captured tables do not change. Pure: times are passed in."""

from __future__ import annotations

from typing import Any, Final

from klamm_plugins.records import SourceRecord
from klamm_plugins.schema import INT64, STRING, SchemaBuilder, Struct

_KEY: Final = (
    SchemaBuilder.struct("io.debezium.connector.common.ServerNameKey").field("serverName", STRING).build()
)
_VALUE: Final = SchemaBuilder.struct("io.debezium.connector.common.Heartbeat").field("ts_ms", INT64).build()


class Heartbeat:
    """Decides when a heartbeat is due. An interval of 0 ms means never."""

    def __init__(self, topic: str, prefix: str, interval_ms: int) -> None:
        self._topic = topic
        self._prefix = prefix
        self._interval_s = interval_ms / 1000
        self._last: float | None = None

    def due(
        self, now_s: float, now_ms: int, partition: dict[str, Any], offset: dict[str, Any]
    ) -> SourceRecord | None:
        """Returns the record to send now (`now_s` on a steady clock), or None."""
        if not self._interval_s or (self._last is not None and now_s - self._last < self._interval_s):
            return None
        self._last = now_s
        key, value = Struct(_KEY, serverName=self._prefix), Struct(_VALUE, ts_ms=now_ms)
        return SourceRecord(partition, offset, self._topic, None, _KEY, key, _VALUE, value, now_ms)
