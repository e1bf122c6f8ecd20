"""The state in the offset topic: the positions of sources. No I/O.

`apply` takes the topic's records; `get` and `of_connector` read the state; `change` makes the records
of a change.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from klamm.connect.topics.records import Record, encode

log = logging.getLogger(__name__)


def offset_record(
    connector: str, partition: Mapping[str, Any] | None, offset: Mapping[str, Any] | None
) -> Record:
    """Returns the record of a source partition's offset; None resets it."""
    key = encode([connector, partition]).decode()
    return key, None if offset is None else encode(offset)


@dataclass(slots=True)
class _SourcePartition:
    """One source partition, in each spelling (record key) that the topic holds without a tombstone."""

    partition: Any = None
    offset: Any = None
    key: str = ""  # the spelling that `offset` was read under
    timestamp_ms: int = -1
    keys: dict[str, None] = field(default_factory=dict)


class OffsetState:
    """The source offsets of all connectors, as the offset topic holds them.

    A partition may be spelled in several ways: Java writes a map's keys in hash order, a plugin in its own,
    a user in any. Each spelling is a key of its own and may lie in another partition of the topic. So the
    order of reading says nothing, and the newest timestamp of a record counts.
    """

    def __init__(self) -> None:
        self._offsets: dict[str, dict[bytes, _SourcePartition]] = {}

    def apply(self, key: str, value: bytes | None, timestamp_ms: int = 0) -> None:
        """Take in the next record."""
        try:
            name, partition = orjson.loads(key)
            offset = None if value is None else orjson.loads(value)
        except (ValueError, TypeError) as e:
            log.warning("ignoring record %s in the offset topic: %s", key, e)
            return
        of_connector = self._offsets.setdefault(str(name), {})
        found = of_connector.setdefault(_canonical(partition), _SourcePartition())
        if offset is None:
            found.keys.pop(key, None)
        else:
            found.keys[key] = None
        # Under one key the log's order counts, whatever clocks say.
        if key == found.key or timestamp_ms >= found.timestamp_ms:
            found.partition, found.offset, found.key = partition, offset, key
            found.timestamp_ms = timestamp_ms

    def get(self, connector: str, partition: Any) -> Any:
        """Returns the offset of one source partition, None when there is none."""
        found = self._offsets.get(connector, {}).get(_canonical(partition))
        return found.offset if found else None

    def of_connector(self, connector: str) -> list[tuple[Any, Any]]:
        """Returns all (partition, offset) pairs of a connector."""
        stored = self._offsets.get(connector, {}).values()
        return [(s.partition, s.offset) for s in stored if s.offset is not None]

    def change(self, connector: str, partition: Any, offset: Any) -> list[Record]:
        """Returns the records that set a source partition's offset (None: reset it), in all its spellings.

        Older spellings get tombstones, because they would return once the newest is compacted away.
        """
        new_key, value = offset_record(connector, partition, offset)
        found = self._offsets.get(connector, {}).get(_canonical(partition), _SourcePartition())
        key = found.key or new_key  # a task goes on with the spelling that it used
        return [*((k, None) for k in found.keys if k != key), (key, value)]


def _canonical(partition: Any) -> bytes:
    return orjson.dumps(partition, option=orjson.OPT_SORT_KEYS)
