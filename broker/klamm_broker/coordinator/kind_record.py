"""The records that a kind of group has in `__consumer_offsets` beside its offsets: what is the same for all kinds.

A key's int16 version tells the type of record. A kind is a subclass with its table of types; a group takes its records in
with `apply`, live and when it is loaded.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from typing import Any, ClassVar, Final, Self

from klamm_broker.coordinator.effects import KeyValue
from klamm_kafka.wire.errors import MalformedMessage

_VERSION: Final = Struct(">h")
_VALUE_VERSION: Final = 0


@dataclass(frozen=True, slots=True)
class KindRecord:
    """Key and value as messages; a record without a value is a tombstone."""

    kind: ClassVar[str]
    """The kind of group, as `Group.kind`."""
    types: ClassVar[dict[int, tuple[Any, Any]]]
    """Messages of key and value, by the version of the key."""
    key: Any
    value: Any | None

    @property
    def group_id(self) -> str:
        group_id: str = self.key.group_id
        return group_id

    def encode(self) -> KeyValue:
        """Returns the record as it is stored."""
        number = next(number for number, (key, _) in self.types.items() if type(self.key) is key)
        key = _VERSION.pack(number) + self.key.encode(0)
        if self.value is None:
            return KeyValue(key, None)
        return KeyValue(key, _VERSION.pack(_VALUE_VERSION) + self.value.encode(_VALUE_VERSION))

    @classmethod
    def decode(cls, number: int, key: bytes, value: bytes) -> Self | None:
        """Returns a stored record whose key has this version; None for one that is not of this kind of group.

        Raises a ProtocolError for bytes that are no such record.
        """
        types = cls.types.get(number)
        if types is None:
            return None
        if len(value) < _VERSION.size:
            raise MalformedMessage("group record", "value", 0, f"{len(value)} bytes, too few for a version")
        (version,) = _VERSION.unpack_from(value)
        return cls(
            types[0].decode(key, 0, _VERSION.size)[0], types[1].decode(value, version, _VERSION.size)[0]
        )
