"""Conditions over records, in the part of Groovy and JavaScript that `expression_syntax` reads.

A tree of nodes becomes a function of functions, made once: no code of the configuration runs, and nothing but the
members and methods of the tables below can be reached. A member's place in a struct is looked up once for each schema.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from klamm_base.errors import ConfigError
from klamm_plugins.errors import DataError
from klamm_plugins.java_regex import compile_java
from klamm_plugins.schema import Schema, Struct
from klamm_plugins.transform import Record
from klamm_plugins.transforms.debezium.expression_methods import METHODS, PROPERTIES, Method
from klamm_plugins.transforms.debezium.expression_syntax import Node, parse
from klamm_plugins.transforms.debezium.expression_values import (
    UNDEFINED,
    Dialect,
    Groovy,
    JavaScript,
    numbers,
    remainder,
    total,
)

Evaluate = Callable[[Record], Any]

LANGUAGES: Final[Mapping[str, type[Dialect]]] = {"jsr223.groovy": Groovy, "jsr223.graal.js": JavaScript}
_ORDERS: Final = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
_SUMS: Final[Mapping[str, Callable[[Dialect, Any, Any], Any]]] = {
    "+": total,
    "-": lambda dialect, one, other: operator.sub(*numbers(dialect, "-", one, other)),
    "*": lambda dialect, one, other: operator.mul(*numbers(dialect, "*", one, other)),
    "%": remainder,
}
_FOREIGN: Final = {"elvis": "?:"}


@dataclass(frozen=True, slots=True)
class _Header:
    """A header as conditions see it."""

    value: Any
    schema: Schema | None


def _headers(record: Record) -> dict[str, _Header]:
    return {h.name: _Header(h.value, h.schema) for h in record.headers}


_NAMES: Final[Mapping[str, Evaluate]] = {
    "key": lambda record: record.key,
    "value": lambda record: record.value,
    "keySchema": lambda record: record.key_schema,
    "valueSchema": lambda record: record.value_schema,
    "topic": lambda record: record.topic,
    "header": _headers,
}


def compile_expression(text: str, language: str) -> Evaluate:
    """Returns the function that gives a record's value of the expression; it raises DataError for a record that does not
    fit. Raises ConfigError for a text that is no condition.
    """
    dialect = LANGUAGES[language]()
    return _Compiler(dialect).function(parse(text, groovy=isinstance(dialect, Groovy)))


class _Compiler:
    """Makes functions of nodes."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._others = frozenset().union(*(cls.operators for cls in LANGUAGES.values())) - dialect.operators

    def function(self, node: Node) -> Evaluate:
        kind = node.kind
        if kind in self._others:
            raise ConfigError(
                f"{node.text}: {self._dialect.name} has no {_FOREIGN.get(kind, kind)} as in a condition here"
            )
        match kind:
            case "constant":
                value = node.value
                return lambda record: value
            case "name":
                return self._name(node)
            case "member":
                return self._member(node)
            case "call":
                return self._call(node)
            case "list":
                items = [self.function(part) for part in node.parts]
                return lambda record: [item(record) for item in items]
            case "==~":
                return self._matches(node)
            case _:
                return self._operator(kind, *map(self.function, node.parts))

    def _name(self, node: Node) -> Evaluate:
        if node.value == "undefined" and isinstance(self._dialect, JavaScript):
            return lambda record: UNDEFINED
        if node.value not in _NAMES:
            raise ConfigError(f"{node.value} is not known: a condition has {', '.join(_NAMES)}")
        return _NAMES[node.value]

    def _operator(self, kind: str, *parts: Evaluate) -> Evaluate:
        dialect = self._dialect
        true = dialect.true
        one, other = parts[0], parts[-1]
        if kind in _ORDERS:
            order = _ORDERS[kind]
            return _calculation(one, other, lambda a, b: dialect.ordered(a, b, order))
        if kind in _SUMS:
            return _calculation(one, other, partial(_SUMS[kind], dialect))
        match kind:
            case "not":
                return lambda record: not true(one(record))
            case "minus":
                return lambda record: -dialect.number("-", one(record))
            case "choice":
                yes = parts[1]
                return lambda record: yes(record) if true(one(record)) else other(record)
            case "elvis":
                return lambda record: found if true(found := one(record)) else other(record)
            case "??":
                return lambda record: (
                    other(record) if (found := one(record)) is None or found is UNDEFINED else found
                )
            case "in":
                return lambda record: any(dialect.equal(one(record), item) for item in _items(other(record)))
            case "&&" | "||":
                return self._logic(one, other, decides=kind == "||")
            case _:
                return self._equality(kind, one, other)

    def _logic(self, one: Evaluate, other: Evaluate, *, decides: bool) -> Evaluate:
        """Makes `&&` or `||`: the truth that decides without the other side."""
        true, result = self._dialect.true, self._dialect.logic

        def evaluate(record: Record) -> Any:
            found = one(record)
            if true(found) is decides:
                return result(decides, found)
            found = other(record)
            return result(true(found), found)

        return evaluate

    def _equality(self, kind: str, one: Evaluate, other: Evaluate) -> Evaluate:
        dialect = self._dialect
        equal = (
            dialect.identical if kind in {"===", "!=="} and isinstance(dialect, JavaScript) else dialect.equal
        )
        if kind.startswith("!"):
            return lambda record: not equal(one(record), other(record))
        return lambda record: equal(one(record), other(record))

    def _matches(self, node: Node) -> Evaluate:
        one, pattern = self.function(node.parts[0]), _pattern(node.parts[1])
        return lambda record: isinstance(found := one(record), str) and pattern.fullmatch(found) is not None

    def _member(self, node: Node) -> Evaluate:
        of, name, dialect = self.function(node.parts[0]), node.value, self._dialect
        text, above, safe = node.text, node.parts[0].text, node.safe
        known: Schema | None = None
        index = 0
        default: Any = None

        def evaluate(record: Record) -> Any:
            nonlocal known, index, default
            found = of(record)
            if isinstance(found, Struct):
                if found.schema is not known:
                    field = found.schema.field(name) if isinstance(name, str) else None
                    if field is None:
                        return _missing(dialect, text, found)
                    known, index, default = found.schema, field.index, field.schema.default
                value = found.values[index]
                return default if value is None else value
            if found is None or found is UNDEFINED:
                if safe:
                    return dialect.missing
                raise DataError(f"{above} is null, so there is no {text}")
            return _other_member(dialect, found, name, text)

        return evaluate

    def _call(self, node: Node) -> Evaluate:
        of, *given = map(self.function, node.parts)
        name, safe, above = node.value, node.safe, node.parts[0].text
        method = METHODS[self._dialect.name].get(name)
        if method is None:
            known = ", ".join(sorted(METHODS[self._dialect.name]))
            raise ConfigError(f"{node.text}: there is no method {name} in a condition; there are {known}")
        if len(given) != method.takes:
            raise ConfigError(f"{node.text}: {name} takes {method.takes} values")
        if method.takes_pattern:
            pattern = _pattern(node.parts[1])
            given = [lambda record: pattern]

        def evaluate(record: Record) -> Any:
            found = of(record)
            if found is None or found is UNDEFINED:
                if safe:
                    return self._dialect.missing
                raise DataError(f"{above} is null, so there is no {node.text}")
            return _called(method, found, [value(record) for value in given], node.text)

        return evaluate


def _calculation(one: Evaluate, other: Evaluate, combine: Callable[[Any, Any], Any]) -> Evaluate:
    def evaluate(record: Record) -> Any:
        try:
            return combine(one(record), other(record))
        except (ArithmeticError, TypeError) as e:
            raise DataError(f"values that cannot be calculated with: {e}") from e

    return evaluate


def _called(method: Method, of: Any, given: list[Any], text: str) -> Any:
    if not isinstance(of, method.of):
        raise DataError(f"{text}: a {type(of).__name__} has no such method")
    try:
        return method.call(of, *given)
    except TypeError as e:
        raise DataError(f"{text}: {e}") from e


def _missing(dialect: Dialect, text: str, struct: Struct) -> Any:
    if dialect.strict:
        known = ", ".join(field.name for field in struct.schema.fields)
        raise DataError(f"{text} is no field of {struct.schema!r}; it has: {known}")
    return UNDEFINED


def _other_member(dialect: Dialect, found: Any, name: Any, text: str) -> Any:
    """Returns a member of a value that is no struct."""
    match found:
        case dict():
            return found.get(name, dialect.missing)
        case _Header() if name in {"value", "schema"}:
            return getattr(found, name)
        case list() | tuple() if isinstance(name, int):
            return found[name] if 0 <= name < len(found) else dialect.missing
    read = PROPERTIES[dialect.name].get(name)
    if read is not None and isinstance(found, str | list | tuple):
        return read(found)
    if dialect.strict:
        raise DataError(f"{text}: a {type(found).__name__} has no members")
    return UNDEFINED


def _items(value: Any) -> Any:
    if not isinstance(value, list | tuple):
        raise DataError(f"in needs a list, and {type(value).__name__} is none")
    return value


def _pattern(node: Node) -> re.Pattern[str]:
    if node.kind != "constant" or not isinstance(node.value, str):
        raise ConfigError(f"{node.text}: a regular expression must stand there in quotes")
    try:
        return compile_java(node.value)
    except re.error as e:
        raise ConfigError(f"{node.text} is no regular expression: {e}") from e
