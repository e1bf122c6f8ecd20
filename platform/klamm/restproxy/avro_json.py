"""Avro's JSON encoding to Avro's binary encoding, and back, as the JSON encoder and decoder of Avro's Java library. Pure.

A union's value is null or {"type": value}; bytes and fixed are text of the characters 0 to 255; logical types are what they lie on;
every field of a record is needed, defaults included. `writer` and `reader` compile a type once.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final

from klamm.registry.avro import Avro

Write = Callable[[Any, bytearray], None]
Read = Callable[[bytes, int], tuple[Any, int]]
_NOT_NUMBERS: Final = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}
_NAMES: Final = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
_BITS: Final = {"int": 31, "long": 63}
_EMPTY_MAX: Final = 1000
"""The most elements of a block that are believed without a byte for each: a few bytes could tell of millions of nulls."""


class AvroDataError(ValueError):
    """A value does not fit its schema. The message has the path to it."""


def _wrong(type_: Avro, value: Any) -> AvroDataError:
    shown = repr(value)
    return AvroDataError(f"expected {type_.label}, got {shown if len(shown) <= 60 else shown[:60] + '…'}")


def _under(path: str, error: AvroDataError) -> AvroDataError:
    text = str(error)
    return AvroDataError(f"{path}.{text}" if text.startswith(".") else f"{path}: {text}")


def put_long(value: int, out: bytearray) -> None:
    """Appends a number as Avro's variable-length zigzag."""
    value = value << 1 if value >= 0 else (-value << 1) - 1
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def take_long(data: bytes, at: int) -> tuple[int, int]:
    """Returns the number at a place, and the place behind it. Raises AvroDataError."""
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise AvroDataError("the record is cut off, or no Avro of its schema")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
        shift += 7


def writer(type_: Avro) -> Write:
    """Returns the function that appends a JSON value of this type to a buffer. It raises AvroDataError."""
    return _Writers().of(type_)


class _Writers:
    """Makes writers; a record that holds itself refers to the one that is being made."""

    def __init__(self) -> None:
        self._made: dict[int, Write] = {}

    def of(self, type_: Avro) -> Write:
        found = self._made.get(id(type_))
        if found is not None:
            return found

        def later(value: Any, out: bytearray) -> None:
            self._made[id(type_)](value, out)

        self._made[id(type_)] = later
        made = self._made[id(type_)] = self._make(type_)
        return made

    def _make(self, type_: Avro) -> Write:
        match type_.kind:
            case "union":
                return self._union(type_)
            case "array":
                return self._array(type_)
            case "map":
                return self._map(type_)
            case "record" | "error":
                return self._record(type_)
            case _:
                return _scalar_writer(type_)

    def _union(self, type_: Avro) -> Write:
        by_label = {each.label: (i, self.of(each)) for i, each in enumerate(type_.branches)}
        labels = ", ".join(by_label)

        def write(value: Any, out: bytearray) -> None:
            if value is None and "null" in by_label:
                put_long(by_label["null"][0], out)
                return
            if not isinstance(value, dict) or len(value) != 1:
                raise AvroDataError(
                    f'expected a union of {labels} as {{"TYPE": value}} or null, got {value!r:.60}'
                )
            label, inner = next(iter(value.items()))
            if label not in by_label or label == "null":
                raise AvroDataError(f"unknown union branch {label}; there are {labels}")
            index, branch = by_label[label]
            put_long(index, out)
            branch(inner, out)

        return write

    def _array(self, type_: Avro) -> Write:
        assert type_.items is not None
        item = self.of(type_.items)

        def write(value: Any, out: bytearray) -> None:
            if not isinstance(value, list):
                raise _wrong(type_, value)
            if value:
                put_long(len(value), out)
                for i, each in enumerate(value):
                    try:
                        item(each, out)
                    except AvroDataError as e:
                        raise _under(f"[{i}]", e) from None
            out.append(0)

        return write

    def _map(self, type_: Avro) -> Write:
        assert type_.items is not None
        item = self.of(type_.items)

        def write(value: Any, out: bytearray) -> None:
            if not isinstance(value, dict):
                raise _wrong(type_, value)
            if value:
                put_long(len(value), out)
                for key, each in value.items():
                    _put_bytes(key.encode(), out)
                    try:
                        item(each, out)
                    except AvroDataError as e:
                        raise _under(f".{key}", e) from None
            out.append(0)

        return write

    def _record(self, type_: Avro) -> Write:
        fields = [(each.name, self.of(each.type)) for each in type_.fields]
        names = frozenset(name for name, _ in fields)

        def write(value: Any, out: bytearray) -> None:
            if not isinstance(value, dict):
                raise _wrong(type_, value)
            for name, field in fields:
                if name not in value:
                    raise AvroDataError(f"Expected field name not found: {name}")
                try:
                    field(value[name], out)
                except AvroDataError as e:
                    raise _under(f".{name}", e) from None
            if unknown := value.keys() - names:
                raise AvroDataError(f"{type_.fullname} has no field {min(unknown)}")

        return write


def _put_bytes(data: bytes, out: bytearray) -> None:
    put_long(len(data), out)
    out += data


def _latin(type_: Avro, value: Any) -> bytes:
    if not isinstance(value, str):
        raise _wrong(type_, value)
    try:
        return value.encode("latin-1")
    except UnicodeEncodeError:
        raise AvroDataError(
            f"{type_.label} is text of the characters U+0000 to U+00FF, not {value!r:.60}"
        ) from None


def _scalar_writer(type_: Avro) -> Write:
    """Returns the writer of a type without parts."""
    kind = type_.kind

    def write(value: Any, out: bytearray) -> None:
        match kind:
            case "null" if value is None:
                pass
            case "boolean" if isinstance(value, bool):
                out.append(value)
            case "int" | "long" if isinstance(value, int) and not isinstance(value, bool):
                if not -(1 << _BITS[kind]) <= value < 1 << _BITS[kind]:
                    raise AvroDataError(f"{value} does not fit {kind}")
                put_long(value, out)
            case "float" | "double":
                number = _NOT_NUMBERS.get(value, value) if isinstance(value, str) else value
                if not isinstance(number, int | float) or isinstance(number, bool):
                    raise _wrong(type_, value)
                try:
                    out += struct.pack("<f" if kind == "float" else "<d", number)
                except OverflowError:
                    raise AvroDataError(f"{value} does not fit {kind}") from None
            case "string" if isinstance(value, str):
                _put_bytes(value.encode(), out)
            case "bytes":
                _put_bytes(_latin(type_, value), out)
            case "fixed":
                data = _latin(type_, value)
                if len(data) != type_.size:
                    raise AvroDataError(f"{type_.label} has {type_.size} bytes, not {len(data)}")
                out += data
            case "enum" if value in type_.symbols:
                put_long(type_.symbols.index(value), out)
            case _:
                raise _wrong(type_, value)

    return write


def reader(type_: Avro) -> Read:
    """Returns the function that reads a value at a place; it returns the JSON value and the place behind it. It raises
    AvroDataError.
    """
    return _Readers().of(type_)


class _Readers:
    def __init__(self) -> None:
        self._made: dict[int, Read] = {}

    def of(self, type_: Avro) -> Read:
        found = self._made.get(id(type_))
        if found is not None:
            return found

        def later(data: bytes, at: int) -> tuple[Any, int]:
            return self._made[id(type_)](data, at)

        self._made[id(type_)] = later
        made = self._made[id(type_)] = self._make(type_)
        return made

    def _make(self, type_: Avro) -> Read:
        match type_.kind:
            case "union":
                return self._union(type_)
            case "array" | "map":
                return self._blocks(type_)
            case "record" | "error":
                fields = [(each.name, self.of(each.type)) for each in type_.fields]
                return lambda data, at: _read_record(fields, data, at)
            case _:
                return _scalar_reader(type_)

    def _union(self, type_: Avro) -> Read:
        branches = [(each.label, self.of(each)) for each in type_.branches]

        def read(data: bytes, at: int) -> tuple[Any, int]:
            index, at = take_long(data, at)
            if not 0 <= index < len(branches):
                raise AvroDataError(f"a union has no branch {index}")
            label, branch = branches[index]
            value, at = branch(data, at)
            return (None if label == "null" else {label: value}), at

        return read

    def _blocks(self, type_: Avro) -> Read:
        assert type_.items is not None
        item, is_map = self.of(type_.items), type_.kind == "map"

        def read(data: bytes, at: int) -> tuple[Any, int]:
            values: list[Any] = []
            keys: list[str] = []
            while True:
                count, at = take_long(data, at)
                if count == 0:
                    return (dict(zip(keys, values, strict=True)) if is_map else values), at
                if count < 0:  # its size in bytes follows, for readers that skip it
                    count = -count
                    _, at = take_long(data, at)
                if count > max(len(data) - at, _EMPTY_MAX):
                    raise AvroDataError(f"a block of {count} elements is not believed")
                for _ in range(count):
                    if is_map:
                        key, at = _take_bytes(data, at)
                        keys.append(key.decode("utf-8", "replace"))
                    value, at = item(data, at)
                    values.append(value)

        return read


def _read_record(fields: list[tuple[str, Read]], data: bytes, at: int) -> tuple[Any, int]:
    made = {}
    for name, field in fields:
        made[name], at = field(data, at)
    return made, at


def _take(data: bytes, at: int, size: int) -> tuple[bytes, int]:
    if size < 0 or at + size > len(data):
        raise AvroDataError("the record is cut off, or no Avro of its schema")
    return data[at : at + size], at + size


def _take_bytes(data: bytes, at: int) -> tuple[bytes, int]:
    size, at = take_long(data, at)
    return _take(data, at, size)


def _number(value: float) -> Any:
    return _NAMES.get(str(value), value)


def _scalar_reader(type_: Avro) -> Read:
    """Returns the reader of a type without parts."""
    kind, size, symbols = type_.kind, type_.size, type_.symbols

    def read(data: bytes, at: int) -> tuple[Any, int]:
        match kind:
            case "null":
                return None, at
            case "int" | "long":
                return take_long(data, at)
            case "boolean":
                found, at = _take(data, at, 1)
                return found != b"\0", at
            case "float" | "double":
                width = 4 if kind == "float" else 8
                found, at = _take(data, at, width)
                return _number(struct.unpack("<f" if width == 4 else "<d", found)[0]), at
            case "string":
                found, at = _take_bytes(data, at)
                return found.decode("utf-8", "replace"), at
            case "bytes":
                found, at = _take_bytes(data, at)
                return found.decode("latin-1"), at
            case "fixed":
                found, at = _take(data, at, size)
                return found.decode("latin-1"), at
        index, at = take_long(data, at)
        if not 0 <= index < len(symbols):
            raise AvroDataError(f"the enum {type_.fullname} has no symbol {index}")
        return symbols[index], at

    return read
