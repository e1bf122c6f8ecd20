"""The source of a function that is written for one schema, the objects that it names, and its compilation.

Such functions know the usual forms of values. They raise `Misfit` for all others, and the caller takes the slow way, which
knows all forms and names the fault. Names of fields come into a source only as literals that `repr` made.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, Final

from klamm_plugins.errors import DataError
from klamm_plugins.logical import DATE, DECIMAL, TIME, TIMESTAMP, decimal_scale, is_decimal, is_logical
from klamm_plugins.schema import Schema, Struct, Type, is_judged

INT_END: Final = {Type.INT8: 2**7, Type.INT16: 2**15, Type.INT32: 2**31, Type.INT64: 2**63}
_CLASSES: Final = {
    Type.STRING: str,
    Type.BOOLEAN: bool,
    Type.FLOAT32: float,
    Type.FLOAT64: float,
    Type.BYTES: bytes,
}
_LOGICAL: Final = {
    DECIMAL: "type({0}) is Decimal and {0}.same_quantum({1})",
    DATE: "type({0}) is date",
    TIME: "type({0}) is time and {0}.tzinfo is None",
    TIMESTAMP: "type({0}) is datetime and {0}.tzinfo is not None",
}
_NAMES: Final = {each.__name__: each for each in (Decimal, Struct, date, datetime, time)}


class Misfit(Exception):
    """An error for a value of an unusual form, which may fit all the same."""


UNUSUAL: Final = (Misfit, DataError, ValueError, TypeError, IndexError, OverflowError, struct.error)
"""The errors of such functions, after which the slow way has the last word."""


class Source:
    """The lines of a function that is being written. Its first argument is `value`."""

    def __init__(self, arguments: str = "value") -> None:
        self._lines = [f"def made({arguments}):"]
        self._depth = 1
        self._count = 0
        self._names: dict[str, Any] = {"Misfit": Misfit, "new": object.__new__, **_NAMES}
        self._known: dict[int, str] = {}

    def add(self, line: str) -> None:
        self._lines.append("    " * self._depth + line)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Indents the lines that are added meanwhile below `head`."""
        self.add(head)
        self._depth += 1
        before = len(self._lines)
        yield
        if len(self._lines) == before:
            self.add("pass")
        self._depth -= 1

    def variable(self) -> str:
        """Returns a name for a variable that is used nowhere else."""
        self._count += 1
        return f"v{self._count}"

    def name(self, name: str, value: Any) -> None:
        """Lets the lines use an object by a name of the caller's."""
        self._names[name] = value

    def constant(self, value: Any) -> str:
        """Returns the name by which the lines use an object."""
        if id(value) not in self._known:
            self._known[id(value)] = name = f"C{len(self._known)}"
            self._names[name] = value
        return self._known[id(value)]

    def struct(self, schema: Schema, values: str) -> str:
        """Adds the lines that make a struct of a list of values, and returns the variable that has it."""
        name = self.variable()
        self.add(f"{name} = new(Struct)")
        self.add(f"{name}.schema = {self.constant(schema)}")
        self.add(f"{name}._values = {values}")
        return name

    def compile(self, result: str) -> Callable[..., Any]:
        """Returns the function, whose result is this expression."""
        self.add(f"return {result}")
        exec(compile("\n".join(self._lines), "<klamm converter>", "exec"), self._names)  # noqa: S102
        made: Callable[..., Any] = self._names["made"]
        return made


def fits(source: Source, schema: Schema, name: str) -> str | None:
    """Returns the test of a value of a primitive or logical schema in the variable `name`; None for other schemas."""
    if is_logical(schema):
        scale = decimal_scale(schema) if is_decimal(schema) else 0
        return _LOGICAL[schema.name or ""].format(name, source.constant(Decimal((0, (1,), -scale))))
    if is_judged(schema):
        return None
    end = INT_END.get(schema.type)
    if end is not None:
        return f"type({name}) is int and -{end} <= {name} < {end}"
    kind = _CLASSES.get(schema.type)
    return None if kind is None else f"type({name}) is {kind.__name__}"
