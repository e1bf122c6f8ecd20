"""Writes the source of decoders. The generated function is `decode(buf, p, limit) -> (message, p)`.

`stepwise` makes it a generator that stops after every `STEP` elements of an array of structures or texts, and returns the same.

Locals of the generated code: `b` the buffer, `p` the position, `n` the end, `k` a length, `g` the number of elements of
arrays and unknown tagged fields that may still come. A length that points past the end raises EOFError before anything
is allocated, and a count over the limit ValueError; the caller turns both into an error with field and offset.
"""

from __future__ import annotations

import struct
from typing import Final

from klamm_kafka.wire.codec_source import (
    DECODE_ERRORS,
    FIXED,
    STRING_BYTES_MAX,
    CodecWriter,
    Plan,
    Run,
    Source,
    has_records,
    is_fixed,
    number_arrays,
    size_min,
)
from klamm_kafka.wire.fields import MISSING, NO_TAGS, FieldSpec, StructType
from klamm_kafka.wire.varint import TAGS_MAX, decode_uvarint

STEP: Final = 256
"""A power of two. So many elements take a tenth of a millisecond or two."""


def write_decoder(cls: StructType, version: int, flexible: bool, *, stepwise: bool = False) -> Source:
    return _DecoderWriter(cls, version, flexible, stepwise=stepwise).out


_ARRAYS = number_arrays("unpack_from")


class _DecoderWriter(CodecWriter):
    def __init__(self, cls: StructType, version: int, flexible: bool, *, stepwise: bool) -> None:
        super().__init__(version, flexible)
        self.stepwise = stepwise
        # Messages that carry records are decoded from a view, so that the records are views; others from bytes.
        self.view = has_records(cls)
        self.out.namespace |= {
            "NEW": object.__new__,
            "UVARINT": decode_uvarint,
            "ERRORS": DECODE_ERRORS,
            "NO_TAGS": NO_TAGS,
        }
        self._function(cls)

    def _function(self, cls: StructType) -> None:
        add = self.out.add
        add("def decode(buf, p, limit):")
        self.out.depth = 1
        if self.view:
            add("b = buf if type(buf) is memoryview else memoryview(buf)")
        else:
            add("b = buf if type(buf) is bytes else bytes(buf)")
        add("n = len(b)")
        add("g = limit")
        add("try:")
        self.out.depth = 2
        self._struct(cls, "m", "")
        self.out.depth = 1
        add("except ERRORS as error:")
        add("    FAILED(error)")
        add("return m, p")
        if self.stepwise:
            add("yield")  # what has no such array is a generator, too

    def _struct(self, cls: StructType, var: str, prefix: str) -> None:
        add = self.out.add
        plan = Plan(cls, self.version, self.flexible)
        add(f"{var} = NEW({self.out.constant(cls.__name__, cls)})")
        for spec in plan.absent:
            add(f"{var}.{spec.name} = {self._default(spec)}")
        self._regular(plan, var, prefix)
        if self.flexible:
            self._tags(plan, var, prefix)
        else:
            add(f"{var}.unknown_tags = NO_TAGS")

    def _default(self, spec: FieldSpec) -> str:
        if spec.default is not MISSING:
            return repr(spec.default)
        if spec.array:
            return "[]"
        if spec.struct:
            return self.out.constant("make", spec.struct) + "()"
        return repr(spec.make_default())

    def _run(self, run: Run, var: str) -> None:
        if not run:
            return
        code = struct.Struct(">" + "".join(FIXED[str(spec.type)] for spec, _ in run))
        unpack = self.out.constant("u", code.unpack_from)
        targets = "".join(f"{var}.{spec.name}, " for spec, _ in run)
        fields = [(path, struct.calcsize(">" + FIXED[str(spec.type)])) for spec, path in run]
        self.out.add(f"{targets}= {unpack}(b, p)", *fields)
        self.out.add(f"p += {code.size}")

    def _uvarint(self, var: str, path: str) -> None:
        self.out.add(f"{var} = b[p]", (path, 1))
        self.out.add(f"if {var} < 128: p += 1")
        self.out.add(f"else: {var}, p = UVARINT(b, p)", (path, 1))

    def _spend(self, count: str, path: str) -> None:
        self.out.add(f"g -= {count}")
        self.out.add("if g < 0: raise ValueError(f'more than {limit} elements in all')", (path, 0))

    def _length(self, spec: FieldSpec, path: str, code: str) -> None:
        """Leaves the length, or -1 for null, in `k`."""
        if self.flexible and spec.compact:
            self._uvarint("k", path)
            self.out.add("k -= 1")
        else:
            unpack = self.out.constant("u", struct.Struct(">" + code).unpack_from)
            self.out.add(f"k, = {unpack}(b, p)", (path, struct.calcsize(">" + code)))
            self.out.add(f"p += {struct.calcsize('>' + code)}")

    def _variable(self, spec: FieldSpec, value: str, path: str) -> None:
        if spec.array:
            self._array(spec, value, path)
        elif spec.struct:
            self._nested(spec, value, path)
        else:
            self._blob(spec, value, path)

    def _blob(self, spec: FieldSpec, target: str, path: str) -> None:
        add = self.out.add
        self._length(spec, path, "h" if spec.type == "string" else "i")
        self._null(spec, "k < 0", f"{target} = None", path)
        add("q = p + k")
        add("if q > n: raise EOFError", (path, 0))
        if spec.type == "string":
            if self.flexible:
                add(f"if k > {STRING_BYTES_MAX}: raise ValueError(f'a string of {{k}} bytes')", (path, 0))
            add(f"{target} = str(b[p:q], 'utf-8')" if self.view else f"{target} = b[p:q].decode()", (path, 0))
        elif spec.type == "bytes" and self.view:
            add(f"{target} = bytes(b[p:q])")
        else:
            add(f"{target} = b[p:q]")
        add("p = q")
        self.out.depth -= 1

    def _nested(self, spec: FieldSpec, target: str, path: str) -> None:
        assert spec.struct is not None
        var = self.out.name("m")
        if not spec.nullable_in(self.version):
            self._struct(spec.struct, var, path + ".")
            self.out.add(f"{target} = {var}")
            return
        self.out.add("k = b[p]", (path, 1))
        self.out.add("p += 1")
        # In a tagged field the mark is an unsigned varint, 0 or 1; elsewhere it is a signed byte.
        self._null(spec, "k > 127" if spec.tag is None else "k == 0", f"{target} = None", path)
        self._struct(spec.struct, var, path + ".")
        self.out.add(f"{target} = {var}")
        self.out.depth -= 1

    def _array(self, spec: FieldSpec, target: str, path: str) -> None:
        add = self.out.add
        self._length(spec, path, "i")
        self._null(spec, "k < 0", f"{target} = None", path)
        smallest = size_min(spec, self.version, self.flexible)
        add(f"if k * {smallest} > n - p: raise EOFError", (path, 0))
        self._spend("k", path)
        code = FIXED.get(spec.type) if isinstance(spec.type, str) else None
        if code in _ARRAYS:
            unpack = self.out.constant("arrays", _ARRAYS[code])
            add(f"{target} = list({unpack}[k](b, p))", (path, smallest))
            add(f"p += k * {smallest}")
        else:
            self._elements(spec, target, path)
        self.out.depth -= 1

    def _elements(self, spec: FieldSpec, target: str, path: str) -> None:
        add = self.out.add
        many, item, append = self.out.name("x"), self.out.name("e"), self.out.name("a")
        add(f"{target} = {many} = []")
        add(f"{append} = {many}.append")
        add("for _ in range(k):")
        self.out.depth += 1
        element = spec.element()
        if spec.struct:
            self._struct(spec.struct, item, path + ".")
        elif is_fixed(element):  # uuids
            size = struct.calcsize(">" + FIXED[str(spec.type)])
            add(f"if p + {size} > n: raise EOFError", (path, 0))
            add(f"{item} = bytes(b[p:p + {size}])" if self.view else f"{item} = b[p:p + {size}]")
            add(f"p += {size}")
        else:
            self._blob(element, item, path)
        add(f"{append}({item})")
        if self.stepwise:
            add(f"if not len({many}) & {STEP - 1}: yield")
        self.out.depth -= 1

    def _tags(self, plan: Plan, var: str, prefix: str) -> None:
        add = self.out.add
        for spec in plan.tagged:
            add(f"{var}.{spec.name} = {self._default(spec)}")
        count, tag, end, unknown = (self.out.name(stem) for stem in ("c", "t", "z", "w"))
        path = prefix + "unknown_tags"
        add(f"{var}.unknown_tags = NO_TAGS")
        self._uvarint(count, path)
        add(f"if {count}:")
        self.out.depth += 1
        why = f"{{{count}}} tagged fields, at most {TAGS_MAX} are taken"
        add(f"if {count} > {TAGS_MAX}: raise ValueError(f'{why}')", (path, 0))
        self._spend(count, path)
        add(f"{unknown} = {{}}")
        add(f"while {count}:")
        self.out.depth += 1
        add(f"{count} -= 1")
        self._uvarint(tag, path)
        self._uvarint("k", path)
        add(f"{end} = p + k")
        add(f"if {end} > n: raise EOFError", (path, 0))
        word = "if"
        for spec in plan.tagged:
            add(f"{word} {tag} == {spec.tag}:")
            word = "elif"
            self.out.depth += 1
            if is_fixed(spec):
                self._run([(spec, prefix + spec.name)], var)
            else:
                self._variable(spec, f"{var}.{spec.name}", prefix + spec.name)
            add(
                f"if p != {end}: raise ValueError('its size is not that of its tag')", (prefix + spec.name, 0)
            )
            self.out.depth -= 1
        if plan.tagged:
            add("else:")
            self.out.depth += 1
        add(f"{unknown}[{tag}] = bytes(b[p:{end}])")
        add(f"p = {end}")
        if plan.tagged:
            self.out.depth -= 1
        self.out.depth -= 1
        add(f"if {unknown}: {var}.unknown_tags = {unknown}")
        self.out.depth -= 1
