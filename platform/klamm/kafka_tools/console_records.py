"""Lines as records and records as lines, by the properties of Kafka's console tools. Pure.

`LineReader` has the properties of `kafka-console-producer --reader-property`, `Formatter` those of
`kafka-console-consumer --formatter-property`.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Final

from klamm_base.errors import KlammError

Headers = list[tuple[str, bytes | None]]
_READER_KEYS: Final = {
    "parse.key", "key.separator", "parse.headers", "headers.delimiter", "headers.separator", "headers.key.separator",
    "ignore.error", "null.marker",
}  # fmt: skip
_SHOWN: Final = ("timestamp", "partition", "offset", "delivery", "epoch", "headers", "key", "value")
_FORMATTER_KEYS: Final = {f"print.{name}" for name in _SHOWN} | {
    "key.separator", "line.separator", "headers.separator", "null.literal", "key.deserializer", "value.deserializer",
    "headers.deserializer",
}  # fmt: skip


class ConsoleError(KlammError):
    """A property is unusable, or a line is no record."""


def _true(props: Mapping[str, str], name: str, *, default: bool = False) -> bool:
    return props[name].strip().lower() == "true" if name in props else default


def _check(props: Mapping[str, str], known: set[str]) -> None:
    for name in props:
        if name not in known:
            raise ConsoleError(f"property {name} is not known: there are {', '.join(sorted(known))}")


@dataclass(frozen=True, slots=True)
class Parsed:
    """A line as a record."""

    key: bytes | None
    value: bytes | None
    headers: Headers


class LineReader:
    """Splits lines `headers TAB key TAB value`; properties say which parts a line has."""

    def __init__(self, props: Mapping[str, str]) -> None:
        _check(props, _READER_KEYS)
        self._parse_key = _true(props, "parse.key")
        self._parse_headers = _true(props, "parse.headers")
        self._ignore = _true(props, "ignore.error")
        self._key_separator = props.get("key.separator", "\t")
        self._delimiter = props.get("headers.delimiter", "\t")
        self._header_separator = props.get("headers.separator", ",")
        self._header_key = props.get("headers.key.separator", ":")
        self._null = props.get("null.marker")
        names = {
            "headers.delimiter": self._delimiter,
            "headers.separator": self._header_separator,
            "headers.key.separator": self._header_key,
            "null.marker": self._null,
        }
        for one, other in combinations(names, 2):
            if names[one] == names[other]:
                raise ConsoleError(f"{one} and {other} may not be equal")
        if self._key_separator == self._null:
            raise ConsoleError("null.marker and key.separator may not be equal")

    def parse(self, line: str, number: int) -> Parsed:
        """Return the record of a line. Raises ConsoleError naming the line's number."""
        rest, headers, key = line, None, None
        if self._parse_headers:
            headers, rest = self._part(line, rest, self._delimiter, "headers delimiter", number)
        if self._parse_key:
            key, rest = self._part(line, rest, self._key_separator, "key separator", number)
        split: Headers = []
        if headers is not None and headers != self._null:
            split = [self._header(pair, number) for pair in re.split(self._header_separator, headers)]
        return Parsed(None if key is None else self._bytes(key), self._bytes(rest), split)

    def _part(self, line: str, rest: str, mark: str, name: str, number: int) -> tuple[str | None, str]:
        part, found, behind = rest.partition(mark)
        if not found:
            if self._ignore:
                return None, rest
            raise ConsoleError(f"No {name} found on line number {number}: '{line}'")
        return part, behind

    def _header(self, pair: str, number: int) -> tuple[str, bytes | None]:
        name, found, value = pair.partition(self._header_key)
        if not found and not self._ignore:
            raise ConsoleError(f"No header key separator found in pair '{pair}' on line number {number}")
        if name == self._null:
            raise ConsoleError(
                f"Header keys should not be equal to the null marker '{name}' as they can't be null"
            )
        return name, self._bytes(value) if found else None

    def _bytes(self, text: str) -> bytes | None:
        return None if text == self._null else text.encode("utf-8", "surrogateescape")


# ---- the other way

_SERDES: Final = "org.apache.kafka.common.serialization."


def _number(layout: str) -> Callable[[bytes], bytes]:
    return lambda data: str(struct.unpack(layout, data)[0]).encode()


_DESERIALIZERS: Final[Mapping[str, Callable[[bytes], bytes]]] = {
    "StringDeserializer": lambda data: data.decode("utf-8", "replace").encode(),
    "ShortDeserializer": _number(">h"),
    "IntegerDeserializer": _number(">i"),
    "LongDeserializer": _number(">q"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A record as the consumer got it."""

    partition: int
    offset: int
    timestamp: tuple[int, int]
    """Its kind (0 none, 1 CreateTime, 2 LogAppendTime) and the time in ms."""
    key: bytes | None
    value: bytes | None
    headers: Headers


class Formatter:
    """Prints a record as a line: the columns that are switched on, in Kafka's order, with `key.separator` between them."""

    def __init__(self, props: Mapping[str, str]) -> None:
        _check(props, _FORMATTER_KEYS)
        self._columns = [n for n in _SHOWN if _true(props, f"print.{n}", default=n == "value")]
        self._separator = props.get("key.separator", "\t").encode()
        self._end = props.get("line.separator", "\n").encode()
        self._between_headers = props.get("headers.separator", ",").encode()
        self._null = props.get("null.literal", "null").encode()
        self._deserialize = {
            part: _deserializer(f"{part}.deserializer", props.get(f"{part}.deserializer"))
            for part in ("key", "value", "headers")
        }

    def format(self, record: Shown) -> bytes:
        """Returns the record's line. Raises ConsoleError for bytes that a deserializer does not take."""
        if not self._columns:
            return b""
        return self._separator.join(self._column(name, record) for name in self._columns) + self._end

    def _column(self, name: str, record: Shown) -> bytes:
        match name:
            case "timestamp":
                kind, ms = record.timestamp
                return (b"NO_TIMESTAMP", b"CreateTime:%d" % ms, b"LogAppendTime:%d" % ms)[kind]
            case "partition":
                return b"Partition:%d" % record.partition
            case "offset":
                return b"Offset:%d" % record.offset
            case "delivery" | "epoch":
                return name.capitalize().encode() + b":NOT_PRESENT"
            case "headers":
                pairs = [n.encode() + b":" + self._text("headers", v) for n, v in record.headers]
                return self._between_headers.join(pairs) or b"NO_HEADERS"
            case "key":
                return self._text("key", record.key)
            case _:
                return self._text("value", record.value)

    def _text(self, part: str, data: bytes | None) -> bytes:
        raw = self._null if data is None else data
        deserialize = self._deserialize[part]
        try:
            return raw if deserialize is None else deserialize(raw)
        except struct.error as e:
            raise ConsoleError(f"the {part} {raw!r} does not fit its deserializer: {e}") from None


def _deserializer(prop: str, name: str | None) -> Callable[[bytes], bytes] | None:
    if name is None or name in ("", _SERDES + "ByteArrayDeserializer"):
        return None
    found = _DESERIALIZERS.get(name.removeprefix(_SERDES))
    if found is None:
        known = ", ".join(_SERDES + n for n in _DESERIALIZERS)
        raise ConsoleError(f"{prop}={name}: a Java class cannot be loaded here; there are {known}")
    return found
