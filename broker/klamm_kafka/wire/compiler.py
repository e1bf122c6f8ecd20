"""Compiles field tables to Python source: one encoder and one decoder per (message, version).

Nested structs are inlined, so a message is one function without calls per field; runs of fixed-size fields
are one `struct` call. The generated code checks as little as possible on the good path. When something
raises in it, the line that raised says which field it was (each line of the source is recorded with its
field) and the local `p` says the offset: errors are exact and cost nothing until they happen.

The source of a compiled function can be read with `source(message, version, "encode" | "decode")`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, NoReturn

from klamm_kafka.wire.errors import (
    MalformedMessage,
    TruncatedMessage,
    UnencodableValue,
    UnsupportedVersion,
)
from klamm_kafka.wire.struct import MISSING, NO_TAGS, Decoder, Encoder, FieldSpec, Message, Struct
from klamm_kafka.wire.varint import VarintTooLong

FIXED: Final = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "int64": "q",
    "float64": "d",
    "uuid": "16s",
}
"""Wire types of fixed size, as `struct` writes them."""

STRING_BYTES_MAX: Final = 32767  # Kafka's own limit; the old encoding has no room for more

Run = list[tuple[FieldSpec, str]]  # neighbouring fields of fixed size, with their paths


class _NumberArrays(dict[int, Any]):
    """One `struct` method for arrays of n numbers, by n; the long ones are not kept."""

    def __init__(self, code: str, method: str) -> None:
        self._code = code
        self._method = method

    def __missing__(self, count: int) -> Any:
        bound = getattr(struct.Struct(f">{count}{self._code}"), self._method)
        if count <= 64:
            self[count] = bound
        return bound


def number_arrays(method: str) -> dict[str, dict[int, Any]]:
    """`pack` or `unpack_from` of arrays of numbers, by `struct` code and then by count."""
    return {code: _NumberArrays(code, method) for code in ("b", "h", "H", "i", "q", "d", "?")}


class Source:
    """Lines of a function being written, each with the field that it serves."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.fields: list[tuple[tuple[str, int], ...]] = []
        self.depth = 0
        self.namespace: dict[str, Any] = {}
        self._count = 0

    def add(self, line: str, *fields: tuple[str, int]) -> None:
        self.lines.append("    " * self.depth + line)
        self.fields.append(fields)

    def name(self, stem: str) -> str:
        """A local name that is used nowhere else."""
        self._count += 1
        return f"{stem}{self._count}"

    def constant(self, stem: str, value: object) -> str:
        name = self.name(stem.upper())
        self.namespace[name] = value
        return name

    def compile(self, title: str, function: str) -> Any:
        exec(compile("\n".join(self.lines), f"<klamm {title}>", "exec"), self.namespace)  # noqa: S102
        return self.namespace[function]

    def at(self, traceback: TracebackType | None) -> tuple[tuple[tuple[str, int], ...], dict[str, Any]]:
        """Fields of the line that raised, and the function's locals."""
        if traceback is None:
            return (), {}
        return self.fields[traceback.tb_lineno - 1], traceback.tb_frame.f_locals


class Plan:
    """The fields of one struct in one version, sorted by how they travel."""

    def __init__(self, cls: type[Struct], version: int, flexible: bool) -> None:
        self.regular: list[FieldSpec] = []
        self.tagged: list[FieldSpec] = []
        self.absent: list[FieldSpec] = []
        for spec in cls.FIELDS:
            if not spec.in_version(version):
                self.absent.append(spec)
            elif spec.tag is None:
                self.regular.append(spec)
            elif flexible:
                self.tagged.append(spec)
            else:
                self.absent.append(spec)
        self.tagged.sort(key=lambda spec: spec.tag or 0)


def is_fixed(spec: FieldSpec) -> bool:
    return not spec.array and isinstance(spec.type, str) and spec.type in FIXED


def has_records(cls: type[Struct]) -> bool:
    return any(spec.type == "records" or (spec.struct and has_records(spec.struct)) for spec in cls.FIELDS)


def size_min(spec: FieldSpec, version: int, flexible: bool) -> int:
    """The fewest bytes that one element of the field takes: what bounds an array's length."""
    if isinstance(spec.type, str):
        if spec.type in FIXED:
            return struct.calcsize(">" + FIXED[spec.type])
        return 1 if flexible else 2 if spec.type == "string" else 4
    total = int(flexible)
    for inner in Plan(spec.type, version, flexible).regular:
        if inner.array:
            total += 1 if flexible else 4
        elif inner.struct and inner.nullable_in(version):
            total += 1
        else:
            total += size_min(inner, version, flexible)
    return max(total, 1)


def compile_init(cls: type[Struct]) -> Callable[..., None]:
    """The keyword-only `__init__` of a struct. Mutable defaults are made anew for each instance."""
    out = Source()
    out.namespace |= {"MISSING": MISSING, "NO_TAGS": NO_TAGS}
    params, body = [], []
    for spec in cls.FIELDS:
        if spec.default is MISSING and (spec.array or spec.struct):
            maker = "[]" if spec.array else out.constant("make", spec.struct) + "()"
            params.append(f"{spec.name}=MISSING")
            body.append(f"self.{spec.name} = {maker} if {spec.name} is MISSING else {spec.name}")
        else:
            params.append(f"{spec.name}={out.constant('default', spec.make_default())}")
            body.append(f"self.{spec.name} = {spec.name}")
    out.add(f"def __init__(self, *, {', '.join([*params, 'unknown_tags=NO_TAGS'])}):")
    out.depth = 1
    for line in [*body, "self.unknown_tags = unknown_tags"]:
        out.add(line)
    init: Callable[..., None] = out.compile(f"{cls.__name__}.__init__", "__init__")
    return init


def compile_encoder(cls: type[Message], version: int) -> Encoder:
    from klamm_kafka.wire.compile_encoder import write_encoder

    out = write_encoder(cls, version)
    out.namespace["FAILED"] = lambda error: _encode_failed(out, cls.__name__, version, error)
    encoder: Encoder = out.compile(f"{cls.__name__} v{version} encode", "encode")
    return encoder


def compile_decoder(cls: type[Message], version: int) -> Decoder:
    from klamm_kafka.wire.compile_decoder import write_decoder

    out = write_decoder(cls, version)
    out.namespace["FAILED"] = lambda error: _decode_failed(out, f"{cls.__name__} v{version}", error)
    decoder: Decoder = out.compile(f"{cls.__name__} v{version} decode", "decode")
    return decoder


def source(cls: type[Message], version: int, what: str) -> str:
    """The generated source, for reading and debugging."""
    from klamm_kafka.wire.compile_decoder import write_decoder
    from klamm_kafka.wire.compile_encoder import write_encoder

    return "\n".join((write_encoder if what == "encode" else write_decoder)(cls, version).lines)


def _encode_failed(out: Source, message: str, version: int, error: Exception) -> NoReturn:
    fields, _ = out.at(error.__traceback__)
    title = f"{message} v{version}"
    if isinstance(error, UnsupportedVersion):
        raise UnsupportedVersion(f"{title}: {error}") from None
    path = " or ".join(path for path, _ in fields) or "?"
    error.__traceback__ = None  # as below
    raise UnencodableValue(title, path, str(error)) from None


def _decode_failed(out: Source, title: str, error: Exception) -> NoReturn:
    fields, names = out.at(error.__traceback__)
    offset, end = names.get("p", 0), names.get("n", 0)
    error.__traceback__ = (
        None  # it leads to the frame, whose locals lead back here and to the buffer: a cycle
    )
    path = fields[0][0] if fields else "?"
    if isinstance(error, (struct.error, IndexError, EOFError)):
        for field, size in fields:  # of a run: the field that the end cuts
            path = field
            if offset + size > end:
                break
            offset += size
        raise TruncatedMessage(
            title, path, offset, f"needs more than the {end - offset} bytes left"
        ) from None
    if isinstance(error, UnicodeDecodeError):
        raise MalformedMessage(title, path, offset, "not UTF-8") from None
    raise MalformedMessage(title, path, offset, str(error)) from None


DECODE_ERRORS: Final = (struct.error, IndexError, EOFError, UnicodeDecodeError, VarintTooLong, ValueError)
ENCODE_ERRORS: Final = (struct.error, AttributeError, TypeError, ValueError, IndexError, UnsupportedVersion)
