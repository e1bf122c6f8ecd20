"""A Java HashMap of byte arrays as Java serializes it: the file of a standalone worker's offsets. No I/O.

Reads and writes only this one kind of object (Java Object Serialization Stream Protocol, version 5).
Anything else in a file is refused, with its position.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Final

from klamm_base.errors import KlammError

_MAGIC: Final = b"\xac\xed\x00\x05"
_NULL, _REFERENCE, _CLASS, _OBJECT, _ARRAY, _BLOCK, _END = 0x70, 0x71, 0x72, 0x73, 0x75, 0x77, 0x78
# The class descriptions of java.util.HashMap and byte[]: name, serialVersionUID, flags, fields, no
# annotation, no superclass.
_MAP_CLASS: Final = (
    b"\x00\x11java.util.HashMap\x05\x07\xda\xc1\xc3\x16\x60\xd1\x03\x00\x02"
    b"F\x00\x0aloadFactorI\x00\x09threshold\x78\x70"
)
_BYTES_CLASS: Final = b"\x00\x02[B\xac\xf3\x17\xf8\x06\x08\x54\xe0\x02\x00\x00\x78\x70"
_FIRST_HANDLE: Final = 0x7E0000
_BYTES_HANDLE: Final = _FIRST_HANDLE + 2  # after the map's class and the map
_LOAD_FACTOR: Final = 0.75
_LEAST_BUCKETS: Final = 16


class MalformedMap(KlammError):
    """The bytes are no such map."""


def encode(entries: Mapping[bytes, bytes | None]) -> bytes:
    """Returns the bytes that Java's ObjectInputStream reads back as HashMap<byte[], byte[]>."""
    buckets = _LEAST_BUCKETS
    while len(entries) > buckets * _LOAD_FACTOR:
        buckets *= 2
    out = bytearray(_MAGIC + bytes([_OBJECT, _CLASS]) + _MAP_CLASS)
    out += struct.pack(">fi", _LOAD_FACTOR, int(buckets * _LOAD_FACTOR))
    out += bytes([_BLOCK, 8]) + struct.pack(">ii", buckets, len(entries))
    known = False
    for each in (part for entry in entries.items() for part in entry):
        if each is None:
            out.append(_NULL)
            continue
        out.append(_ARRAY)
        out += struct.pack(">BI", _REFERENCE, _BYTES_HANDLE) if known else bytes([_CLASS]) + _BYTES_CLASS
        out += struct.pack(">i", len(each)) + each
        known = True
    out.append(_END)
    return bytes(out)


def decode(data: bytes) -> dict[bytes, bytes | None]:
    """Returns the entries of such a map. Raises MalformedMap."""
    reader = _Reader(data)
    reader.expect(_MAGIC + bytes([_OBJECT, _CLASS]) + _MAP_CLASS, "a serialized java.util.HashMap")
    reader.take(8, "its load factor")
    reader.expect(bytes([_BLOCK, 8]), "the number of its entries")
    count = struct.unpack(">ii", reader.take(8, "the number of its entries"))[1]
    if count < 0:
        raise MalformedMap(f"the number of entries is {count}")
    entries: dict[bytes, bytes | None] = {}
    for _ in range(count):
        key, value = reader.array(), reader.array()
        if key is not None:
            entries[key] = value
    reader.expect(bytes([_END]), "the end of the map")
    return entries


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0
        self._arrays: list[bytes] = []

    def take(self, size: int, what: str) -> bytes:
        found = self._data[self._at : self._at + size]
        if len(found) < size:
            raise MalformedMap(f"the data ends at byte {len(self._data)}, within {what}")
        self._at += size
        return found

    def expect(self, wanted: bytes, what: str) -> None:
        at = self._at
        if self.take(len(wanted), what) != wanted:
            raise MalformedMap(f"at byte {at} there is not {what}")

    def array(self) -> bytes | None:
        """Returns the next byte array, or None for null."""
        at, kind = self._at, self.take(1, "an entry")[0]
        match kind:
            case _ if kind == _NULL:
                return None
            case _ if kind == _REFERENCE:
                number = struct.unpack(">I", self.take(4, "a reference"))[0] - _BYTES_HANDLE - 1
                if not 0 <= number < len(self._arrays):
                    raise MalformedMap(f"at byte {at} there is a reference to nothing")
                found: bytes = self._arrays[number]
                return found
            case _ if kind == _ARRAY:
                return self._new_array(at)
            case _:
                raise MalformedMap(f"at byte {at} there is no byte array (type {kind:#x})")

    def _new_array(self, at: int) -> bytes:
        if self.take(1, "a class")[0] == _CLASS:
            self.expect(_BYTES_CLASS, "the class of byte arrays")
        else:
            self._at -= 1
            self.expect(struct.pack(">BI", _REFERENCE, _BYTES_HANDLE), "the class of byte arrays")
        size = struct.unpack(">i", self.take(4, "a length"))[0]
        if size < 0:
            raise MalformedMap(f"at byte {at} there is an array of {size} bytes")
        self._arrays.append(self.take(size, "a byte array"))
        return self._arrays[-1]
