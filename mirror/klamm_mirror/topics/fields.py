"""The fields of the mirror's own records: strings, integers, versions. Pure.

Strings are UTF-8 behind an int16 length, partitions int32, offsets and timestamps (ms) int64, versions int16, all
big-endian. Errors name the record, the field and the byte.
"""

from __future__ import annotations

import struct
from typing import Final

from klamm_plugins.errors import DataError

VERSION: Final = 0
STRING_MAX: Final = 0x7FFF
"""The maximum of a string's bytes: its length is an int16."""

_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")


class MalformedRecord(DataError):
    """Bytes that are not such a record. The message names the record, the field and the byte."""


class UnsupportedVersion(MalformedRecord):
    """A record of an unknown version."""


def string_field(field: str, text: str) -> bytes:
    """Returns a string behind its length. Raises DataError for one that is too long."""
    data = text.encode()
    if len(data) > STRING_MAX:
        raise DataError(f"{field}: {len(data)} bytes, more than the {STRING_MAX} that its record can hold")
    return _INT16.pack(len(data)) + data


def int16_field(field: str, number: int) -> bytes:
    return _number(_INT16, field, number)


def int32_field(field: str, number: int) -> bytes:
    return _number(_INT32, field, number)


def int64_field(field: str, number: int) -> bytes:
    return _number(_INT64, field, number)


def _number(layout: struct.Struct, field: str, number: int) -> bytes:
    try:
        return layout.pack(number)
    except struct.error:
        raise DataError(f"{field}: {number!r} is no integer of {layout.size * 8} bits") from None


class FieldReader:
    """Reads fields one after the other. Its errors name the record, the field and the field's first byte."""

    def __init__(self, what: str, data: bytes | None) -> None:
        if data is None:
            raise MalformedRecord(f"{what}: there is none")
        self._what = what
        self._data = data
        self._pos = 0

    def version(self) -> None:
        number = self._number(_INT16, "version")
        if number != VERSION:
            raise UnsupportedVersion(f"{self._what}: version {number}, only {VERSION} is known")

    def int32(self, field: str) -> int:
        return self._number(_INT32, field)

    def int64(self, field: str) -> int:
        return self._number(_INT64, field)

    def string(self, field: str) -> str:
        start = self._pos
        size = self._number(_INT16, field)
        data = self._data[self._pos : self._pos + size] if size >= 0 else b""
        if size < 0 or len(data) < size:
            left = len(self._data) - self._pos
            raise MalformedRecord(
                f"{self._what}: {field} at byte {start} has length {size}, {left} bytes follow"
            )
        self._pos += size
        try:
            return data.decode()
        except UnicodeDecodeError:
            raise MalformedRecord(f"{self._what}: {field} at byte {start} is no UTF-8") from None

    def rest(self) -> bytes:
        """Returns all bytes that follow."""
        return self._data[self._pos :]

    def _number(self, layout: struct.Struct, field: str) -> int:
        left = len(self._data) - self._pos
        if left < layout.size:
            raise MalformedRecord(
                f"{self._what}: {field} at byte {self._pos} needs {layout.size} bytes, {max(left, 0)} follow"
            )
        (number,) = layout.unpack_from(self._data, self._pos)
        self._pos += layout.size
        return int(number)
