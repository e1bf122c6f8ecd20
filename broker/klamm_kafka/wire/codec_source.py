"""The source of an encoder or decoder while it is written: its lines, the encoding of a struct's fields, and the writers' common part.

`compile_encoder` and `compile_decoder` write it; `compiler` compiles it.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Any, Final

from klamm_kafka.wire.errors import UnsupportedVersion
from klamm_kafka.wire.fields import FieldSpec, StructType
from klamm_kafka.wire.varint import VarintTooLong

DECODE_ERRORS: Final = (struct.error, IndexError, EOFError, UnicodeDecodeError, VarintTooLong, ValueError)
ENCODE_ERRORS: Final = (struct.error, AttributeError, TypeError, ValueError, IndexError, UnsupportedVersion)

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
    """One `struct` method for arrays of n numbers, by n; those of long arrays are not kept."""

    def __init__(self, code: str, method: str) -> None:
        self._code = code
        self._method = method

    def __missing__(self, count: int) -> Any:
        bound = getattr(struct.Struct(f">{count}{self._code}"), self._method)
        if count <= 64:
            self[count] = bound
        return bound


def number_arrays(method: str) -> dict[str, dict[int, Any]]:
    """Returns `pack` or `unpack_from` of arrays of numbers, by `struct` code and then by count."""
    return {code: _NumberArrays(code, method) for code in ("b", "h", "H", "i", "q", "d", "?")}


class Source:
    """The lines of a function that is being written, each with the fields that it serves."""

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
        """Returns a local name that is used nowhere else."""
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
        """Returns the fields of the line that raised, and the function's locals."""
        if traceback is None:
            return (), {}
        return self.fields[traceback.tb_lineno - 1], traceback.tb_frame.f_locals


class Plan:
    """The fields of one struct in one version, sorted by their encoding: regular, tagged, absent."""

    def __init__(self, cls: StructType, version: int, flexible: bool) -> None:
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


class CodecWriter(ABC):
    """The common part of the writers of encoders and decoders, whose functions take a struct's fields in the same order."""

    def __init__(self, version: int, flexible: bool) -> None:
        self.version = version
        self.flexible = flexible
        self.out = Source()

    def _regular(self, plan: Plan, var: str, prefix: str) -> None:
        """Writes the fields that are no tags: neighbours of fixed size together, the others one by one."""
        run: Run = []
        for spec in plan.regular:
            if is_fixed(spec):
                run.append((spec, prefix + spec.name))
                continue
            self._run(run, var)
            run = []
            self._variable(spec, f"{var}.{spec.name}", prefix + spec.name)
        self._run(run, var)

    @abstractmethod
    def _run(self, run: Run, var: str) -> None:
        """Writes neighbouring fields of fixed size, of which there may be none."""

    @abstractmethod
    def _variable(self, spec: FieldSpec, value: str, path: str) -> None:
        """Writes a field that has no fixed size."""

    def _null(self, spec: FieldSpec, condition: str, then: str, path: str) -> None:
        """Writes the branch for null; the caller continues in the else branch, one level deeper."""
        self.out.add(f"if {condition}:")
        if spec.nullable_in(self.version):
            self.out.add(f"    {then}")
        else:
            self.out.add("    raise ValueError('null where none may be')", (path, 0))
        self.out.add("else:")
        self.out.depth += 1


def is_fixed(spec: FieldSpec) -> bool:
    return not spec.array and isinstance(spec.type, str) and spec.type in FIXED


def has_records(cls: StructType) -> bool:
    return any(spec.type == "records" or (spec.struct and has_records(spec.struct)) for spec in cls.FIELDS)


def size_min(spec: FieldSpec, version: int, flexible: bool) -> int:
    """Returns the fewest bytes that one element of the field takes, which bounds an array's length."""
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
