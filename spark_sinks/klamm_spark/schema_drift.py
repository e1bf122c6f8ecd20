"""The schema of arriving values: inferred from JSON documents, kept by topic, compared with later documents.
Pure.

A type is JSON itself: a name of Spark's (`"BIGINT"`), `{"array": TYPE}`, or `{"struct": {FIELD: TYPE}}`.
`"NULL"` is the type of a field that was always null. Numbers widen (BIGINT to DOUBLE); types that do not
fit together become STRING, as in Spark's own inference.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

Type = str | dict[str, Any]

NULL: Final = "NULL"
FIELDS_MAX: Final = 2_000
"""Fields of a document that are looked at: a document with ever new names must not fill the memory."""
DRIFTS_MAX: Final = 200
"""Differences that are kept for a topic; further ones are only counted."""
MISSING_AFTER: Final = 500
"""A field counts as missing when this many successive documents lacked it."""
_LONG: Final = 1 << 63
_WHOLE: Final = frozenset({"TINYINT", "SMALLINT", "INT", "BIGINT"})
_NUMBERS: Final = _WHOLE | {"FLOAT", "DOUBLE"}
_FROM_TEXT: Final = frozenset({"STRING", "DATE", "TIMESTAMP", "TIMESTAMP_NTZ", "BINARY"})


def type_of(value: Any) -> Type:
    """Returns the type of a JSON value."""
    match value:
        case None:
            return NULL
        case bool():
            return "BOOLEAN"
        case int():
            return "BIGINT" if -_LONG <= value < _LONG else "DOUBLE"
        case float():
            return "DOUBLE"
        case str():
            return "STRING"
        case list():
            return {"array": merged_all(type_of(v) for v in value)}
        case dict():
            return {"struct": {str(k): type_of(v) for k, v in list(value.items())[:FIELDS_MAX]}}
    raise TypeError(f"{type(value).__name__} is no JSON")


def merged_all(types: Iterable[Type]) -> Type:
    found: Type = NULL
    for one in types:
        found = merged(found, one)
    return found


def merged(a: Type, b: Type) -> Type:
    """Returns a type that holds both."""
    if b in (a, NULL):
        return a
    if a == NULL:
        return b
    if isinstance(a, dict) and isinstance(b, dict):
        if "array" in a and "array" in b:
            return {"array": merged(a["array"], b["array"])}
        if "struct" in a and "struct" in b:
            fields = dict(a["struct"])
            for name, kind in b["struct"].items():
                if name in fields or len(fields) < FIELDS_MAX:
                    fields[name] = merged(fields.get(name, NULL), kind)
            return {"struct": fields}
    elif isinstance(a, str) and isinstance(b, str) and a in _NUMBERS and b in _NUMBERS:
        return "BIGINT" if {a, b} <= _WHOLE else "DOUBLE"
    return "STRING"


def ddl(kind: Type) -> str:
    """Writes a type as SQL. A field that was always null is a STRING."""
    if isinstance(kind, str):
        return "STRING" if kind == NULL else kind
    if "array" in kind:
        return f"ARRAY<{ddl(kind['array'])}>"
    if "map" in kind:
        return f"MAP<STRING, {ddl(kind['map'])}>"
    return f"STRUCT<{', '.join(f'{_quoted(n)}: {ddl(t)}' for n, t in kind['struct'].items())}>"


def columns(kind: Type) -> str:
    """Writes the fields of a document as a schema: `id BIGINT, name STRING`."""
    fields = kind["struct"] if isinstance(kind, dict) and "struct" in kind else {}
    return ", ".join(f"{_quoted(n)} {ddl(t)}" for n, t in fields.items())


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def of_spark(data: Any) -> Type:
    """Converts a type of Spark's from its JSON (`StructType.jsonValue()`)."""
    names = {"long": "BIGINT", "integer": "INT", "short": "SMALLINT", "byte": "TINYINT"}
    if isinstance(data, str):
        return names.get(data, data.upper())
    match data["type"]:
        case "struct":
            return {"struct": {f["name"]: of_spark(f["type"]) for f in data["fields"]}}
        case "array":
            return {"array": of_spark(data["elementType"])}
        case "map":
            return {"map": of_spark(data["valueType"])}
    return of_spark(data["type"])


@dataclass(frozen=True, slots=True)
class Difference:
    """A difference. `kind`: `new` (a field that the schema lacks), `changed` (a value that its type cannot hold)."""

    kind: str
    path: str
    was: str | None
    now: str
    seen: Type = NULL


def differences(schema: Type, seen: Type, path: str = "") -> Iterator[Difference]:
    """Yields the parts of a document's type that the schema cannot hold."""
    if seen == NULL or _holds(schema, seen):
        return
    if isinstance(schema, dict) and isinstance(seen, dict):
        if "struct" in schema and "struct" in seen:
            by_lower = {n.lower(): n for n in schema["struct"]}  # Spark's columns have no case
            for name, kind in seen["struct"].items():
                known = name if name in schema["struct"] else by_lower.get(name.lower())
                place = f"{path}.{name}" if path else name
                if known is None:
                    if kind != NULL:  # a name without a value says nothing yet
                        yield Difference("new", place, None, ddl(kind), kind)
                else:
                    yield from differences(schema["struct"][known], kind, place)
            return
        if "array" in schema and "array" in seen:
            yield from differences(schema["array"], seen["array"], f"{path}[]")
            return
        if "map" in schema and "struct" in seen:
            for kind in seen["struct"].values():
                yield from differences(schema["map"], kind, f"{path}.*")
            return
    yield Difference("changed", path or "(the document)", ddl(schema), ddl(seen), seen)


def _holds(schema: Type, seen: Type) -> bool:
    if not isinstance(schema, str):
        return False
    if schema in {"STRING", "VARIANT"}:  # as text, whatever it is
        return True
    if not isinstance(seen, str):
        return False
    if schema.startswith("DECIMAL") or schema in _NUMBERS - _WHOLE:
        return seen in _NUMBERS
    return (
        schema == seen or (schema in _WHOLE and seen in _WHOLE) or (schema in _FROM_TEXT and seen == "STRING")
    )


@dataclass(slots=True)
class TopicDrift:
    """The findings in a topic that its schema does not describe. `take` gets a sample of documents."""

    schema: Type
    found: dict[str, dict[str, Any]] = field(default_factory=dict)
    records: int = 0
    """Documents that differ, of those that were looked at, and those that Spark could not read in full."""
    more: int = 0
    _since: dict[str, int] = field(default_factory=dict)
    """Successive documents without a field, for fields that existed once."""

    def take(self, document: Any, now: float) -> bool:
        """Takes a document, and returns whether it shows something new that is worth telling."""
        seen = type_of(document)
        told = False
        some = False
        for one in differences(self.schema, seen):
            some = True
            told |= self._note(one, now)
        self.records += some
        return self._missing(document, now) or told

    def _note(self, one: Difference, now: float) -> bool:
        key = f"{one.kind} {one.path}"
        entry = self.found.get(key)
        if entry is None:
            if len(self.found) >= DRIFTS_MAX:
                self.more += 1
                return False
            self.found[key] = {
                "kind": one.kind, "field": one.path, "was": one.was, "now": one.now, "count": 1, "first": now, "last": now,
            }  # fmt: skip
            if one.seen != NULL and "*" not in one.path and not one.path.startswith("("):
                self.found[key]["seen"] = one.seen
            return True
        entry["count"] += 1
        entry["last"] = now
        if entry["now"] == one.now or "seen" not in entry:
            return False
        entry["seen"] = merged(entry["seen"], one.seen)
        before, entry["now"] = entry["now"], ddl(entry["seen"])
        return bool(before != entry["now"])

    def unreadable(self, now: float) -> bool:
        """Counts a value that is no JSON."""
        self.records += 1
        return self._note(Difference("unreadable", "(the document)", None, "no JSON"), now)

    def _missing(self, document: Any, now: float) -> bool:
        if not isinstance(document, dict) or not isinstance(self.schema, dict):
            return False
        told = False
        for name, kind in self.schema.get("struct", {}).items():
            if document.get(name) is not None:
                self._since[name] = 0
                told |= self.found.pop(f"missing {name}", None) is not None
            elif name in self._since:
                self._since[name] += 1
                if self._since[name] == MISSING_AFTER:
                    told |= self._note(Difference("missing", name, ddl(kind), "nothing"), now)
        return told

    @classmethod
    def from_json(cls, schema: Type, data: Mapping[str, Any]) -> TopicDrift:
        """Reads the findings of an earlier run; counts of records begin anew."""
        return cls(schema, {f"{e['kind']} {e['field']}": dict(e) for e in data.get("found", ())})

    def to_json(self) -> dict[str, Any]:
        return {"found": list(self.found.values()), "records": self.records, "more": self.more}


def sentence(topic: str, entry: Mapping[str, Any]) -> str:
    match entry["kind"]:
        case "new":
            return f"{topic}: a field that the schema has not: {entry['field']} ({entry['now']})"
        case "missing":
            return f"{topic}: the field {entry['field']} ({entry['was']}) no longer comes"
        case "unreadable":
            return f"{topic}: values that are no JSON; their text is in _corrupt"
    return (
        f"{topic}: {entry['field']} is {entry['now']}, the schema says {entry['was']}; such values are null"
    )
