"""Masks, hashes and cuts of text columns: Debezium's `column.mask.*` and `column.truncate.*`. Pure: no I/O.

The first rule that matches a column counts: masks, then hashes of the first and of the second kind, then cuts. (Debezium
takes cuts first, so that a key that cuts would undo one that masks.) Rules change values, never keys.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from klamm_base.redaction import shown_name
from klamm_connectors.mysql.columns import Column, Kind
from klamm_connectors.mysql.filters import compile_list
from klamm_plugins.errors import ConfigError

log = logging.getLogger(__name__)

Change = Callable[[Any], Any]

_TEXT: Final = frozenset({Kind.STRING, Kind.ENUM, Kind.SET, Kind.JSON, Kind.UUID, Kind.INET4, Kind.INET6})
_CUT: Final = _TEXT | {Kind.BYTES, Kind.GEOMETRY}
_FAMILY: Final = re.compile(r"column\.(truncate\.to|mask\.)")
_KEYS: Final = (
    ("mask", re.compile(r"column\.mask\.with\.(\d+)\.chars")),
    ("hash", re.compile(r"column\.mask\.hash\.(?!v2\.)([^.]+)\.with\.salt\.(.+)", re.DOTALL)),
    ("hash2", re.compile(r"column\.mask\.hash\.v2\.([^.]+)\.with\.salt\.(.+)", re.DOTALL)),
    ("truncate", re.compile(r"column\.truncate\.to\.(\d+)\.chars")),
)
_JAVA_STRING: Final = b"\xac\xed\x00\x05"
"""Magic number and version of a stream of Java objects."""


@dataclass(frozen=True, slots=True)
class Mapped:
    """The change of one column's values, and what its schema says of it."""

    change: Change
    parameters: Mapping[str, str]
    fixed: str | None = None
    """The text that stands for every value, NULL included."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One key: the columns that it names, and what it does to them."""

    name: str
    columns: tuple[re.Pattern[str], ...]
    kinds: frozenset[Kind]
    make: Callable[[Column], Mapped | None]


class ColumnRules:
    """All rules of a configuration."""

    def __init__(self, rules: tuple[Rule, ...] = ()) -> None:
        self.rules = rules
        self._told: set[tuple[str, str]] = set()

    @classmethod
    def from_properties(cls, props: Mapping[str, str]) -> ColumnRules:
        """Finds the keys among all properties. Raises ConfigError for one that is no such key, or a wrong value."""
        found: dict[str, list[Rule]] = {kind: [] for kind, _ in _KEYS}
        for name, value in props.items():
            if _FAMILY.match(name):
                kind, arguments = _kind(name)
                columns = tuple(compile_list(shown_name(name), value))
                kinds, maker = _MAKERS[kind]
                found[kind].append(Rule(shown_name(name), columns, kinds, maker(name, *arguments)))
        return cls(tuple(rule for rules in found.values() for rule in rules))

    def of(self, database: str, table: str, column: Column) -> Mapped | None:
        """Returns what happens to a column's values; None when they stay as they are."""
        full_name = f"{database}.{table}.{column.name}"
        for rule in self.rules:
            if any(e.fullmatch(full_name) for e in rule.columns):
                if column.kind not in rule.kinds:
                    self._tell_kind(rule, full_name, column)
                    return None
                return rule.make(column)
        return None

    def _tell_kind(self, rule: Rule, full_name: str, column: Column) -> None:
        """Warns once of a rule that leaves a column as it is."""
        if (rule.name, full_name) not in self._told:
            self._told.add((rule.name, full_name))
            log.warning(
                "%s names %s, which is no text (%s): its values stay as they are, as with Debezium. Leave the column "
                "out by column.exclude.list to hide it",
                rule.name, full_name, column.kind,
            )  # fmt: skip


def in_clear_in_keys(props: Mapping[str, str]) -> dict[str, str]:
    """Returns a sentence for each key that hides values: it does not hide them in the records' keys, as with Debezium."""
    return {
        name: f"{shown_name(name)} hides values, not keys: a column of the primary key stays in clear in the key of its records; "
        "message.key.columns names other columns for it"
        for name in props
        if name.startswith("column.mask.")
    }


def _kind(name: str) -> tuple[str, tuple[str, ...]]:
    for kind, pattern in _KEYS:
        match = pattern.fullmatch(name)
        if match is not None:
            return kind, match.groups()
    raise ConfigError(
        f"{shown_name(name)} is no key of this connector: use column.mask.with.LENGTH.chars, column.truncate.to.LENGTH.chars, "
        "column.mask.hash.ALGORITHM.with.salt.SALT or column.mask.hash.v2.ALGORITHM.with.salt.SALT",
        key=name,
    )


def _truncate(_name: str, length: str) -> Callable[[Column], Mapped | None]:
    most = int(length)

    def make(column: Column) -> Mapped | None:
        if 0 < column.length <= most:
            return None
        return Mapped(lambda value: value[:most], {"truncateLength": str(most)})

    return make


def _mask(_name: str, length: str) -> Callable[[Column], Mapped | None]:
    stars = "*" * int(length)

    def make(_column: Column) -> Mapped | None:
        return Mapped(lambda _value: stars, {"masked": "true"}, fixed=stars)

    return make


def _hash(name: str, algorithm: str, salt: str, *, encode: Callable[[str], bytes]) -> Callable[[Column], Mapped | None]:  # fmt: skip
    start = _digest(name, algorithm)
    start.update(salt.encode())

    def make(column: Column) -> Mapped | None:
        most = column.length or None

        def change(value: Any) -> str:
            digest = start.copy()
            digest.update(encode(value))
            return str(digest.hexdigest())[:most]

        return Mapped(change, {"masked": "true"})

    return make


def _digest(name: str, algorithm: str) -> Any:
    """Returns a hash under its name in Java, such as SHA-256, SHA-512/256 or SHA3-256."""
    python = re.sub(r"^sha-", "sha", algorithm.lower()).replace("/", "_").replace("-", "_")
    try:
        return hashlib.new(python)
    except ValueError:
        raise ConfigError(
            f"{shown_name(name)}: there is no hash {algorithm} here; SHA-256, SHA-512 and SHA3-256 are some that there are",
            key=name,
        ) from None


def java_serialized(text: str) -> bytes:
    """Returns the text as Java serializes a String, which hashes of the first kind are made of."""
    body = b"".join(map(_java_utf, text)) if any(c == "\0" or c > "\uffff" for c in text) else text.encode()
    if len(body) <= 0xFFFF:
        return _JAVA_STRING + b"\x74" + len(body).to_bytes(2, "big") + body
    return _JAVA_STRING + b"\x7c" + len(body).to_bytes(8, "big") + body


def _java_utf(character: str) -> bytes:
    if character == "\0":
        return b"\xc0\x80"
    if character <= "\uffff":
        return character.encode()
    pair = character.encode("utf-16-be")
    return b"".join(
        chr(int.from_bytes(pair[i : i + 2], "big")).encode("utf-8", "surrogatepass") for i in (0, 2)
    )


_MAKERS: Final[Mapping[str, tuple[frozenset[Kind], Callable[..., Callable[[Column], Mapped | None]]]]] = {
    "mask": (_TEXT, _mask),
    "hash": (_TEXT, lambda *a: _hash(*a, encode=java_serialized)),
    "hash2": (_TEXT, lambda *a: _hash(*a, encode=str.encode)),
    "truncate": (_CUT, _truncate),
}
