"""Values of conditions: truth, equality, order and sums, as Groovy or JavaScript has them.

| | Groovy | JavaScript |
|---|---|---|
| false are | null, false, 0, "", empty lists and maps | null, undefined, false, 0, NaN, "" |
| `a && b` | true or false | `a` or `b` |
| values of two kinds | are not equal; a text of one character is a number beside a number | `==` compares them as numbers; `===` finds them unequal |
| null in `<` | is less than all | is 0 |
| a member that is not there | an error in structs, null in maps | undefined |
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

from klamm_plugins.errors import DataError
from klamm_plugins.schema import Struct


class _Undefined:
    """JavaScript's value of what is not there."""

    def __repr__(self) -> str:
        return "undefined"


UNDEFINED: Final = _Undefined()

_OBJECTS: Final = (Struct, list, tuple, dict)
_NUMBER: Final = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)

Order = Callable[[Any, Any], bool]
"""An operator of order, such as `operator.lt`."""


def kind_of(value: Any) -> str:
    """Returns the kind of a value: values of one kind can be compared."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int() | float() | Decimal():
            return "number"
        case str():
            return "text"
        case _:
            return type(value).__name__


class Dialect(ABC):
    """The rules of a language."""

    name: str
    operators: frozenset[str]
    """Operators that the other language does not have, or has with another meaning."""
    missing: Any
    """The value of a member that a map does not have."""
    strict: bool
    """True: a member that a struct does not have is an error."""

    @abstractmethod
    def true(self, value: Any) -> bool:
        """Returns the truth of a value."""

    @abstractmethod
    def equal(self, one: Any, other: Any) -> bool:
        """Answers `==`."""

    @abstractmethod
    def ordered(self, one: Any, other: Any, order: Order) -> bool:
        """Answers `<` and the like. Raises DataError for values without an order."""

    @abstractmethod
    def number(self, operator: str, value: Any) -> Any:
        """Returns the number that an operator takes a value for. Raises DataError for a value that is none."""

    @abstractmethod
    def logic(self, decides: bool, value: Any) -> Any:
        """Returns what `&&` and `||` return for the operand that decided."""


class Groovy(Dialect):
    """Groovy's rules."""

    name = "Groovy"
    operators = frozenset({"in", "==~", "elvis"})
    missing = None
    strict = True

    def true(self, value: Any) -> bool:
        if value is None or value is True or value is False:
            return bool(value)
        return bool(value) if isinstance(value, int | float | Decimal | str | list | tuple | dict) else True

    def equal(self, one: Any, other: Any) -> bool:
        one, other = _codes(one, other)
        return kind_of(one) == kind_of(other) and bool(one == other)

    def ordered(self, one: Any, other: Any, order: Order) -> bool:
        if one is None or other is None:
            return order(one is not None, other is not None)
        one, other = _codes(one, other)
        _comparable(one, other)
        return order(one, other)

    def number(self, operator: str, value: Any) -> Any:
        if kind_of(value) != "number":
            raise DataError(f"{operator} needs numbers, and {kind_of(value)} is none")
        return value

    def logic(self, decides: bool, value: Any) -> Any:
        return decides


class JavaScript(Dialect):
    """JavaScript's rules."""

    name = "JavaScript"
    operators = frozenset({"===", "!==", "??"})
    missing = UNDEFINED
    strict = False

    def true(self, value: Any) -> bool:
        if value is None or value is UNDEFINED:
            return False
        if isinstance(value, float) and math.isnan(value):
            return False
        return bool(value) if isinstance(value, bool | int | float | Decimal | str) else True

    def equal(self, one: Any, other: Any) -> bool:
        nothing = (None, UNDEFINED)
        if one in nothing or other in nothing:
            return one in nothing and other in nothing
        if kind_of(one) == kind_of(other):
            return self.identical(one, other)
        return bool(_as_number(one) == _as_number(other))

    def identical(self, one: Any, other: Any) -> bool:
        """Answers `===`. Each look at a struct, list or map makes another object."""
        return kind_of(one) == kind_of(other) and not isinstance(one, _OBJECTS) and bool(one == other)

    def ordered(self, one: Any, other: Any, order: Order) -> bool:
        if isinstance(one, str) and isinstance(other, str):
            return order(one, other)
        numbers = _as_number(one), _as_number(other)
        if any(isinstance(n, float) and math.isnan(n) for n in numbers):
            return False
        return order(numbers[0], numbers[1])

    def number(self, operator: str, value: Any) -> Any:
        if isinstance(value, _OBJECTS):
            raise DataError(f"{operator} needs numbers, and {kind_of(value)} is none")
        return _as_number(value)

    def logic(self, decides: bool, value: Any) -> Any:
        return value


def _codes(one: Any, other: Any) -> tuple[Any, Any]:
    """Returns two values for a comparison in Groovy, which sees a character beside a number as its code."""
    if kind_of(one) == "number" and isinstance(other, str) and len(other) == 1:
        return one, ord(other)
    if kind_of(other) == "number" and isinstance(one, str) and len(one) == 1:
        return ord(one), other
    return one, other


def _as_number(value: Any) -> Any:
    """Returns JavaScript's number of a value; NaN, which equals nothing, for a text that is none."""
    match value:
        case None:
            return 0
        case bool():
            return int(value)
        case int() | float() | Decimal():
            return value
        case str():
            text = value.strip()
            return float(text or 0) if not text or _NUMBER.fullmatch(text) else math.nan
        case _:
            return math.nan


def _comparable(one: Any, other: Any) -> None:
    kinds = {kind_of(one), kind_of(other)}
    if len(kinds) != 1 or not kinds <= {"number", "text", "boolean", "bytes", "date", "time", "datetime"}:
        raise DataError(f"{kind_of(one)} and {kind_of(other)} have no order")


def total(dialect: Dialect, one: Any, other: Any) -> Any:
    """Returns the sum of two numbers, or the texts of two values behind each other. Raises DataError for others."""
    if isinstance(one, str) or isinstance(other, str):
        return _text(one) + _text(other)
    first, second = numbers(dialect, "+", one, other)
    return first + second


def _text(value: Any) -> str:
    match value:
        case str():
            return value
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case int():
            return str(value)
    raise DataError(f"a {kind_of(value)} cannot be joined with a text")


def numbers(dialect: Dialect, operator: str, one: Any, other: Any) -> tuple[Any, Any]:
    """Returns two numbers that can be calculated with: a decimal beside a float is a float. Raises DataError for others."""
    one, other = dialect.number(operator, one), dialect.number(operator, other)
    if isinstance(one, float) or isinstance(other, float):
        return float(one), float(other)
    return one, other


def remainder(dialect: Dialect, one: Any, other: Any) -> Any:
    """Returns the remainder with the sign of the first number, as both languages do."""
    one, other = numbers(dialect, "%", one, other)
    if other == 0:
        raise DataError("% needs another number than 0")
    rest = abs(one) % abs(other)
    return -rest if one < 0 else rest
