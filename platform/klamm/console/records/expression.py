"""Expressions over a record: `value.amount > 100 and value.country == "DE"`. Pure.

Python's syntax and a part of its meaning: and, or, not, comparisons, `in`, arithmetic, names and texts. Nothing else is
understood, so an expression can neither call code nor go on for ever. What a record does not have is None, and compares
as false.
"""

from __future__ import annotations

import ast
import json
import operator
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from klamm.console.errors import ConsoleError

LENGTH_MAX: Final = 2_000
TEXT_MAX: Final = 1 << 20
NAMES: Final = ("key", "value", "headers", "partition", "offset", "timestamp", "topic")


class Parts(Protocol):
    """A record, by the names of its parts."""

    def part(self, name: str, /) -> Any: ...


Evaluate = Callable[[Parts], Any]
_COMPARE: Final[Mapping[type[ast.cmpop], Callable[[Any, Any], Any]]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Is: operator.eq,
    ast.IsNot: operator.ne,
    ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b,
}
_ARITHMETIC: Final[Mapping[type[ast.operator], Callable[[Any, Any], Any]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Mod: operator.mod,
    ast.FloorDiv: operator.floordiv,
}
_WORDS: Final = {"true": True, "false": False, "null": None}
_OPERATORS: Final = re.compile(r"""("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')|&&|\|\||!(?!=)""")


def _text(value: Any) -> str:
    """Returns a value as it is written in JSON, a text as it is. Raises TypeError for what is absent."""
    if value is None:
        raise TypeError("what is absent has no text")
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _of_texts(test: Callable[[str, str], bool]) -> Callable[[Any, Any], bool]:
    """Makes a test of two texts that is false where one is absent."""
    return lambda a, b: a is not None and b is not None and test(_text(a), _text(b))


_FUNCTIONS: Final[Mapping[str, tuple[int, Callable[..., Any]]]] = {
    "len": (1, len),
    "lower": (1, lambda value: None if value is None else _text(value).lower()),
    "contains": (2, _of_texts(lambda text, part: part in text)),
    "startswith": (2, _of_texts(str.startswith)),
    "endswith": (2, _of_texts(str.endswith)),
    "number": (1, float),
    "text": (1, lambda value: None if value is None else _text(value)),
}
"""Functions by name, each with the number of its arguments."""


class ExpressionError(ConsoleError):
    """An expression that cannot be understood; the sentence says where."""


def compile_expression(text: str) -> Evaluate:
    """Returns a function from a record's parts to what the expression says of it. Raises ExpressionError.

    The function raises TypeError, ValueError or ZeroDivisionError where the parts do not fit: the record is then no match.
    """
    if len(text) > LENGTH_MAX:
        raise ExpressionError(f"the expression has {len(text)} characters; at most {LENGTH_MAX} are possible")
    try:
        parsed = ast.parse(_python(text), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as e:
        place = f" at character {e.offset}" if isinstance(e, SyntaxError) and e.offset else ""
        raise ExpressionError(f"the expression cannot be read{place}: {text!r}") from None
    try:
        return _compiled(parsed.body)
    except RecursionError:
        raise ExpressionError("the expression is nested too deeply") from None


def _python(text: str) -> str:
    """Returns the text with `&&`, `||` and `!` in Python's words."""
    words = {"&&": " and ", "||": " or ", "!": " not "}
    return _OPERATORS.sub(lambda m: m[1] or words[m[0]], text.strip())


def _compiled(node: ast.expr) -> Evaluate:
    match node:
        case ast.Constant(value=str() | int() | float() | bool() | None as value):
            return lambda _record: value
        case ast.Name(id=name):
            return _name(name)
        case ast.Attribute(value=of, attr=name):
            inner = _compiled(of)
            return lambda record: part_of(inner(record), name)
        case ast.Subscript(value=of, slice=index):
            inner, at = _compiled(of), _compiled(index)
            return lambda record: part_of(inner(record), at(record))
        case ast.BoolOp(op=op, values=values):
            return _both(op, [_compiled(v) for v in values])
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            inner = _compiled(operand)
            return lambda record: not inner(record)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            inner = _compiled(operand)
            return lambda record: -inner(record)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC:
            return _two(
                _checked(_ARITHMETIC[type(op)], adds=isinstance(op, ast.Add)),
                _compiled(left),
                _compiled(right),
            )
        case ast.Compare(left=left, ops=ops, comparators=others):
            return _comparison(_compiled(left), [type(op) for op in ops], [_compiled(o) for o in others])
        case ast.List(elts=items) | ast.Tuple(elts=items):
            made = [_compiled(item) for item in items]
            return lambda record: [each(record) for each in made]
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in _FUNCTIONS:
            wanted, work = _FUNCTIONS[name]
            if len(args) != wanted:
                raise ExpressionError(f"{name} takes {wanted} values, not {len(args)}")
            return _call(work, [_compiled(a) for a in args])
    raise ExpressionError(
        f"the expression may not have {ast.unparse(node)!r}; it has {', '.join(NAMES)}, and, or, not, comparisons, in, "
        f"arithmetic, and {', '.join(_FUNCTIONS)}"
    )


def _name(name: str) -> Evaluate:
    if name in _WORDS:
        word = _WORDS[name]
        return lambda _record: word
    if name not in NAMES:
        raise ExpressionError(f"{name} is no part of a record; there are {', '.join(NAMES)}")
    return lambda record: record.part(name)


def part_of(value: Any, name: Any) -> Any:
    """Returns a field, an item of a list, or None."""
    if isinstance(value, Mapping):
        return value.get(name) if isinstance(name, str) else None
    if isinstance(value, list | str) and isinstance(name, int) and not isinstance(name, bool):
        return value[name] if -len(value) <= name < len(value) else None
    return None


def _both(op: ast.boolop, parts: list[Evaluate]) -> Evaluate:
    if isinstance(op, ast.And):
        return lambda record: all(each(record) for each in parts)
    return lambda record: any(each(record) for each in parts)


def _two(work: Callable[[Any, Any], Any], left: Evaluate, right: Evaluate) -> Evaluate:
    return lambda record: work(left(record), right(record))


def _checked(work: Callable[[Any, Any], Any], *, adds: bool) -> Callable[[Any, Any], Any]:
    """Refuses what makes texts and lists long: `"a" * 999999999`, and `"%999999999s" % "a"`, which formats."""

    def checked(a: Any, b: Any) -> Any:
        long = isinstance(a, str | list) or isinstance(b, str | list)
        if long and (not adds or type(a) is not type(b) or len(a) + len(b) > TEXT_MAX):
            raise TypeError("texts are only added to texts")
        return work(a, b)

    return checked


def _call(work: Callable[..., Any], args: list[Evaluate]) -> Evaluate:
    return lambda record: work(*(a(record) for a in args))


def _comparison(first: Evaluate, ops: list[type[ast.cmpop]], others: list[Evaluate]) -> Evaluate:
    def compare(record: Parts) -> bool:
        left = first(record)
        for op, other in zip(ops, others, strict=True):
            right = other(record)
            try:
                if not _COMPARE[op](left, right):
                    return False
            except TypeError:  # what is absent, or of another kind, is neither more nor less
                return op is ast.NotIn
            left = right
        return True

    return compare


_STEP: Final = re.compile(r"""\.?([^.\[\]'"]+)|\[\s*(-?\d+)\s*\]|\[\s*(?:'([^']*)'|"([^"]*)")\s*\]""")


def compile_path(text: str) -> Callable[[Any], Any]:
    """Returns a function that follows a JSON path: `$.order.items[0].sku`, `order['a.b']`. Raises ExpressionError."""
    rest = text.strip().removeprefix("$")
    steps: list[str | int] = []
    at = 0
    while at < len(rest):
        found = _STEP.match(rest, at)
        if found is None:
            raise ExpressionError(
                f"the path {text!r} cannot be read from {rest[at:]!r} on; write $.order.items[0].sku"
            )
        name, index, single, double = found.groups()
        steps.append(
            int(index) if index is not None else next(n for n in (name, single, double) if n is not None)
        )
        at = found.end()

    def follow(value: Any) -> Any:
        for step in steps:
            value = part_of(value, step)
        return value

    return follow
