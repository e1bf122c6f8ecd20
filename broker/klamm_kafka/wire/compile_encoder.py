"""Writes the source of encoders. The generated function is `encode(m) -> list of bytes-like parts`.

`stepwise` makes it a generator that stops after every `STEP` elements of arrays. It returns fewer and larger parts of the same.

Locals of the generated code: `a` appends a part, `s` is a value, `k` a length. The code checks values that would
otherwise be written wrongly without an error (short uuids, null, too long strings). All other bad values fail in
`struct` or in a method that the value does not have, and the caller says which field it was.
"""

from __future__ import annotations

import struct
from typing import Any, Final

from klamm_kafka.wire.codec_source import (
    ENCODE_ERRORS,
    FIXED,
    STRING_BYTES_MAX,
    CodecWriter,
    Plan,
    Run,
    Source,
    is_fixed,
    number_arrays,
)
from klamm_kafka.wire.errors import UnsupportedVersion
from klamm_kafka.wire.fields import MISSING, NO_TAGS, FieldSpec, StructType
from klamm_kafka.wire.varint import UVARINT_SMALL, encode_uvarint

STEP: Final = 256
"""A power of two. So many elements take half a millisecond or less."""


def write_encoder(cls: StructType, version: int, flexible: bool, *, stepwise: bool = False) -> Source:
    return _EncoderWriter(cls, version, flexible, stepwise=stepwise).out


_ARRAYS = number_arrays("pack")


def pack_tags(known: list[tuple[int, bytes]], unknown: Any) -> bytes:
    """Returns the tagged-field section: count, then tag, size and bytes of each, by rising tag."""
    tags = dict(known)
    for tag, content in unknown.items():
        if tag in tags:
            raise ValueError(f"tag {tag} is a known field and among the unknown tags")
        tags[tag] = bytes(content)
    parts = [encode_uvarint(len(tags))]
    for tag in sorted(tags):
        parts += (encode_uvarint(tag), encode_uvarint(len(tags[tag])), tags[tag])
    return b"".join(parts)


class _EncoderWriter(CodecWriter):
    def __init__(self, cls: StructType, version: int, flexible: bool, *, stepwise: bool) -> None:
        super().__init__(version, flexible)
        self.stepwise = stepwise
        self.append = "a"
        self.out.namespace |= {
            "BYTES": (bytearray, memoryview),
            "ERRORS": ENCODE_ERRORS,
            "NO_TAGS": NO_TAGS,
            "PACK_TAGS": pack_tags,
            "SMALL": UVARINT_SMALL,
            "UVARINT": encode_uvarint,
            "UnsupportedVersion": UnsupportedVersion,
        }
        self._function(cls)

    def _function(self, cls: StructType) -> None:
        add = self.out.add
        add("def encode(m):")
        self.out.depth = 1
        add("o = []")
        add("a = o.append")
        if self.stepwise:
            # Elements, and what is encoded: many small parts would take several times their bytes.
            add("c, d = 0, []")
        add("try:")
        self.out.depth = 2
        self._struct(cls, "m", "")
        add("pass")  # some bodies are empty
        self.out.depth = 1
        add("except ERRORS as error:")
        add("    FAILED(error)")
        if self.stepwise:
            add("d.append(b''.join(o))")
            add("return d")
            add("yield")  # what has no arrays is a generator, too
        else:
            add("return o")

    def _struct(self, cls: StructType, var: str, prefix: str) -> None:
        plan = Plan(cls, self.version, self.flexible)
        for spec in plan.absent:
            if not spec.ignorable:
                self._refuse(spec, f"{var}.{spec.name}", prefix + spec.name)
        self._regular(plan, var, prefix)
        if self.flexible:
            self._tags(plan, var, prefix)
        else:
            path = prefix + "unknown_tags"
            text = repr(f"{path} are set, but this version has no tagged fields")
            self.out.add(f"s = {var}.unknown_tags", (path, 0))
            self.out.add(f"if s is not NO_TAGS and s: raise UnsupportedVersion({text})", (path, 0))

    def _differs(self, spec: FieldSpec, value: str) -> str:
        """Returns the expression that is true when the value is not the default."""
        if spec.default is None or spec.type == "records":
            return f"{value} is not None"
        if spec.array or (spec.type == "bytes" and spec.default is MISSING):
            return f"({value} is None or len({value}))"
        return f"{value} != {self.out.constant('default', spec.make_default())}"

    def _refuse(self, spec: FieldSpec, value: str, path: str) -> None:
        text = repr(f"{path} has a value, but this version has no such field")
        self.out.add(f"if {self._differs(spec, value)}: raise UnsupportedVersion({text})", (path, 0))

    def _run(self, run: Run, var: str) -> None:
        if not run:
            return
        fields = [(path, 0) for _, path in run]
        for spec, path in run:
            if spec.type == "uuid":
                self.out.add(
                    f"if len({var}.{spec.name}) != 16: raise ValueError('a uuid is 16 bytes')", (path, 0)
                )
        pack = self.out.constant("p", struct.Struct(">" + "".join(FIXED[str(s.type)] for s, _ in run)).pack)
        values = ", ".join(f"{var}.{spec.name}" for spec, _ in run)
        self.out.add(f"{self.append}({pack}({values}))", *fields)

    def _length(self, spec: FieldSpec, count: str, path: str, code: str) -> None:
        if self.flexible and spec.compact:
            self.out.add(f"k = {count} + 1", (path, 0))
            self.out.add(f"{self.append}(SMALL[k] if k < 128 else UVARINT(k))")
        else:
            pack = self.out.constant("p", struct.Struct(">" + code).pack)
            self.out.add(f"{self.append}({pack}({count}))", (path, 0))

    def _or_null(self, spec: FieldSpec, value: str, path: str, null: bytes) -> None:
        self._null(spec, f"{value} is None", f"{self.append}({null!r})", path)

    def _variable(self, spec: FieldSpec, value: str, path: str) -> None:
        if spec.array:
            self._array(spec, value, path)
        elif spec.struct:
            self._nested(spec, value, path)
        else:
            self.out.add(f"s = {value}", (path, 0))
            self._blob(spec, path)

    def _blob(self, spec: FieldSpec, path: str) -> None:
        add = self.out.add
        code = "h" if spec.type == "string" else "i"
        compact = self.flexible and spec.compact
        self._or_null(spec, "s", path, b"\0" if compact else b"\xff" * struct.calcsize(code))
        if spec.type == "string":
            too_long = f"if len(s) > {STRING_BYTES_MAX}: raise ValueError(f'a string of {{len(s)}} bytes')"
            add("s = s.encode()", (path, 0))
            add(too_long, (path, 0))
        else:
            self._check_bytes(path)
        self._length(spec, "len(s)", path, code)
        add(f"{self.append}(s)")
        self.out.depth -= 1

    def _check_bytes(self, path: str) -> None:
        """Writes a check that the last part is bytes: the parts are joined when the encoder is done, too late for an exact error."""
        self.out.add("if type(s) is not bytes and not isinstance(s, BYTES):", (path, 0))
        self.out.add("    raise TypeError(f'{type(s).__name__} instead of bytes')", (path, 0))

    def _nested(self, spec: FieldSpec, value: str, path: str) -> None:
        assert spec.struct is not None
        var = self.out.name("m")
        self.out.add(f"{var} = {value}", (path, 0))
        if not spec.nullable_in(self.version):
            self._struct(spec.struct, var, path + ".")
            return
        # In a tagged field the mark is an unsigned varint, 0 or 1; elsewhere it is a signed byte.
        self._or_null(spec, var, path, b"\xff" if spec.tag is None else b"\0")
        self.out.add(f"{self.append}(b'\\x01')")
        self._struct(spec.struct, var, path + ".")
        self.out.depth -= 1

    def _array(self, spec: FieldSpec, value: str, path: str) -> None:
        add = self.out.add
        many = self.out.name("x")
        add(f"{many} = {value}", (path, 0))
        self._or_null(spec, many, path, b"\0" if self.flexible and spec.compact else b"\xff\xff\xff\xff")
        self._length(spec, f"len({many})", path, "i")
        code = FIXED.get(spec.type) if isinstance(spec.type, str) else None
        if code in _ARRAYS:
            packers = self.out.constant("arrays", _ARRAYS[code])
            add(f"{self.append}({packers}[len({many})](*{many}))", (path, 0))
        else:
            self._elements(spec, many, path)
        self.out.depth -= 1

    def _elements(self, spec: FieldSpec, many: str, path: str) -> None:
        add = self.out.add
        item = self.out.name("e") if spec.struct else "s"
        add(f"for {item} in {many}:", (path, 0))
        self.out.depth += 1
        if spec.struct:
            self._struct(spec.struct, item, path + ".")
        elif spec.type == "uuid":
            self._check_bytes(path)
            add("if len(s) != 16: raise ValueError('a uuid is 16 bytes')", (path, 0))
            add(f"{self.append}(s)")
        else:
            self._blob(spec.element(), path)
        if self.stepwise:
            add("c += 1")
            add(f"if not c & {STEP - 1}:")
            add("    d.append(b''.join(o))")
            add("    o.clear()")
            add("    yield")
        self.out.depth -= 1

    def _tags(self, plan: Plan, var: str, prefix: str) -> None:
        add = self.out.add
        if not plan.tagged:
            add(f"s = {var}.unknown_tags", (prefix + "unknown_tags", 0))
            add(f"{self.append}(b'\\0' if s is NO_TAGS else PACK_TAGS((), s))", (prefix + "unknown_tags", 0))
            return
        tags = self.out.name("t")
        add(f"{tags} = []")
        outer = self.append
        for spec in plan.tagged:
            value, path = f"{var}.{spec.name}", prefix + spec.name
            # Kafka reads a missing nullable struct as one with default values, so null must be written.
            says_null = spec.struct is not None and not spec.array and spec.nullable_in(self.version)
            add(f"if {'True' if says_null else self._differs(spec, value)}:", (path, 0))
            self.out.depth += 1
            parts = self.out.name("o")
            self.append = self.out.name("a")
            add(f"{parts} = []")
            add(f"{self.append} = {parts}.append")
            if is_fixed(spec):
                self._run([(spec, path)], var)
            else:
                self._variable(spec, value, path)
            add(f"{tags}.append(({spec.tag}, b''.join({parts})))", (path, 0))
            self.out.depth -= 1
        self.append = outer
        add(
            f"{self.append}(b'\\0' if not {tags} and not {var}.unknown_tags else "
            f"PACK_TAGS({tags}, {var}.unknown_tags))",
            (prefix + "unknown_tags", 0),
        )
