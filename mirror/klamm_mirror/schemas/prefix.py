"""Ids of schemas in records, as Confluent's serializers write them. Pure.

A key or value begins with a zero byte and the id of its schema (4 bytes), or a header (`__key_schema_id`,
`__value_schema_id`) holds a zero byte and an id, or a one and the schema's GUID (16 bytes). Whatever follows, such as the
message index of Protobuf, stays.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from klamm_kafka.wire.batch import Record
from klamm_mirror.schemas.names import PARTS

_ID: Final = struct.Struct(">I")
_ID_END: Final = 5
_GUID_END: Final = 17
HEADERS: Final = {part: f"__{part}_schema_id" for part in PARTS}


@dataclass(frozen=True, slots=True)
class SchemaId:
    """The id or GUID (one of them) of a schema in a record. `sure`: it stands in a header, so it cannot be there by chance."""

    part: str
    id: int | None = None
    guid: str | None = None
    sure: bool = False

    @property
    def name(self) -> int | str:
        """The id, or the GUID."""
        name = self.id if self.guid is None else self.guid
        assert name is not None, "one of them"
        return name

    def __str__(self) -> str:
        return f"schema {self.name} of the {self.part}"


Translate = Callable[[int, SchemaId], int | str]
"""Gets a record's offset and a schema in it. Returns the schema's id or GUID at the target."""


def translate(records: list[Record], new: Translate) -> list[Record]:
    """Returns the records with the ids of the target; the same list when nothing changes."""
    made = [_translated(record, new) for record in records]
    return made if any(one is not other for one, other in zip(made, records, strict=True)) else records


def _translated(record: Record, new: Translate) -> Record:
    data = {"key": record.key, "value": record.value}
    headers = record.headers
    for part in PARTS:
        at = _header(headers, HEADERS[part])
        if at is not None:
            name, value = headers[at]
            changed = _replaced(record.offset, part, bytes(value or b""), new, sure=True)
            if changed is not None:
                headers = [*headers[:at], (name, changed), *headers[at + 1 :]]
        elif (found := data[part]) is not None:
            changed = _replaced(record.offset, part, bytes(found), new, sure=False)
            data[part] = found if changed is None else changed
    if headers is record.headers and data["key"] is record.key and data["value"] is record.value:
        return record
    return Record(record.offset, record.timestamp, data["key"], data["value"], headers)


def _header(headers: Sequence[tuple[str, bytes | None]], name: str) -> int | None:
    """Returns the place of the last header with a name, which is the one that deserializers read."""
    return next((i for i in range(len(headers) - 1, -1, -1) if headers[i][0] == name), None)


def _replaced(offset: int, part: str, data: bytes, new: Translate, *, sure: bool) -> bytes | None:
    """Returns the data with the target's id; None where it stays as it is."""
    if data[:1] == b"\0" and len(data) >= _ID_END:
        schema = SchemaId(part, id=_ID.unpack_from(data, 1)[0], sure=sure)
        end = _ID_END
    elif sure and data[:1] == b"\1" and len(data) >= _GUID_END:
        schema = SchemaId(part, guid=str(uuid.UUID(bytes=data[1:_GUID_END])), sure=True)
        end = _GUID_END
    else:
        return None
    if schema.id == 0:
        return None  # no registry gives this id: numbers of 8 bytes begin so
    found = new(offset, schema)
    if found in {schema.id, schema.guid}:
        return None
    made = _ID.pack(found) if isinstance(found, int) else uuid.UUID(found).bytes
    return data[:1] + made + data[end:]
