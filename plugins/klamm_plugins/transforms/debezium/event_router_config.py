"""EventRouter's keys, and the further columns that its events take along."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from klamm_base.configdef import ConfigDef, Importance, Type, invalid
from klamm_plugins.transforms._validators import regex
from klamm_plugins.transforms.debezium.envelope import one_of_words, word
from klamm_plugins.transforms.debezium.renaming import ADJUSTMENTS, NONE

PLACEMENT: Final = "table.fields.additional.placement"
HEADER: Final = "header"
ENVELOPE: Final = "envelope"
PARTITION: Final = "partition"
_PLACES: Final = (HEADER, ENVELOPE, PARTITION)
FATAL: Final = "fatal"
MISSING_IGNORED: Final = "ignore"
NULLS_KEPT: Final = "optional_bytes"


class Placement(NamedTuple):
    """A further column, its place in the event, and its name there."""

    field: str
    place: str
    name: str


def placements(listed: Sequence[str]) -> list[Placement]:
    """Reads `column:place` and `column:place:name`. Raises ConfigError for others."""
    found = []
    for text in listed:
        field, *rest = (part.strip() for part in text.split(":"))
        if not field or len(rest) not in {1, 2} or word(rest[0]) not in _PLACES:
            raise invalid(
                PLACEMENT,
                text,
                f"write COLUMN:PLACE or COLUMN:PLACE:NAME, PLACE being one of {', '.join(_PLACES)}",
            )
        found.append(Placement(field, word(rest[0]), rest[1] if len(rest) > 1 else field))
    return found


def _readable(name: str, value: Any) -> None:
    placements(value or [])


def definition() -> ConfigDef:
    """Returns the keys."""
    return (
        ConfigDef()
        .define("table.field.event.id", Type.STRING, "id", importance=Importance.LOW, documentation="Column of the event's id, which becomes the header id.")
        .define("table.field.event.key", Type.STRING, "aggregateid", importance=Importance.LOW, documentation="Column that becomes the key.")
        .define("table.field.event.payload", Type.STRING, "payload", importance=Importance.LOW, documentation="Column that becomes the value.")
        .define("table.field.event.timestamp", Type.STRING, None, importance=Importance.MEDIUM, documentation="Column of the record's timestamp. Without it, or where it is null, the event's ts_ms.")
        .define(PLACEMENT, Type.LIST, None, validator=_readable, importance=Importance.HIGH, documentation="Further columns: `column:header`, `column:envelope`, `column:partition`, and `:name` behind it for another name. With envelope, the value is a struct of `payload` and these columns.")
        .define("table.field.additional.missing", Type.STRING, "error", validator=one_of_words("error", MISSING_IGNORED), importance=Importance.MEDIUM, documentation="Whether a further column that the table does not have is an error (`error`) or left out (`ignore`).")
        .define("table.field.event.schema.version", Type.STRING, None, importance=Importance.LOW, documentation="Column, an int32, of the version of the value's schema; for values with further columns.")
        .define("table.op.invalid.behavior", Type.STRING, "warn", validator=one_of_words("warn", "error", FATAL), importance=Importance.MEDIUM, documentation="A changed row, which is no event: `warn` and `error` log it and go on, `fatal` fails the task.")
        .define("table.expand.json.payload", Type.BOOLEAN, False, importance=Importance.MEDIUM, documentation="Make a struct, with a schema, of a payload that is a JSON object or array; another text stays as it is.")
        .define("table.json.payload.null.behavior", Type.STRING, "ignore", validator=one_of_words("ignore", NULLS_KEPT), importance=Importance.MEDIUM, documentation="Nulls in such a payload: `ignore` leaves the field out, `optional_bytes` keeps it.")
        .define("field.name.adjustment.mode", Type.STRING, NONE, validator=one_of_words(*ADJUSTMENTS), importance=Importance.LOW, documentation="Characters that Avro does not accept in names of such a payload: `none` keeps them, `avro` writes _, `avro_unicode` _uXXXX.")
        .define("route.by.field", Type.STRING, "aggregatetype", importance=Importance.HIGH, documentation="Column, a text, that the topic is made of.")
        .define("route.topic.regex", Type.STRING, "(?<routedByValue>.*)", validator=regex, importance=Importance.LOW, documentation="Regular expression (Java's syntax) that the whole of its value must match; otherwise the value is the topic.")
        .define("route.topic.replacement", Type.STRING, "outbox.event.${routedByValue}", importance=Importance.HIGH, documentation="The topic: $1 or ${name} is a group of route.topic.regex.")
        .define("route.tombstone.on.empty.payload", Type.BOOLEAN, False, importance=Importance.HIGH, documentation="Make a tombstone of an event whose payload is null or empty.")
    )  # fmt: skip
