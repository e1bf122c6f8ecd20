"""Conditions on JSON documents: `$.user.id`, `$.items[*].price > 10`, `$.name =~ "^a"`. Pure."""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from klamm_base.errors import ConfigError

Step = str | int | None
"""A field, a place in a list, or None for all of a list or an object."""
_STEP: Final = re.compile(r"""\.([\w$@-]+)|\[(\d+)\]|\[(\*)\]|\.(\*)|\["([^"]*)"\]|\['([^']*)'\]""")
_OPERATORS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "==": operator.eq,
    "!=": operator.ne,
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
    "=~": lambda found, pattern: isinstance(found, str) and re.search(pattern, found) is not None,
}


@dataclass(frozen=True, slots=True)
class Condition:
    """A test of documents: some value at a path fulfils a comparison; without one, some value is not null."""

    path: Sequence[Step]
    compare: Callable[[Any, Any], bool] | None = None
    other: Any = None

    def __call__(self, document: Any) -> bool:
        return any(self._holds(found) for found in values_at(document, self.path))

    def _holds(self, found: Any) -> bool:
        if self.compare is None:
            return found is not None
        try:
            return bool(self.compare(found, self.other))
        except TypeError:
            return False  # 1 < "a"


def values_at(document: Any, path: Sequence[Step]) -> Iterator[Any]:
    """Yield the values at a path."""
    if not path:
        yield document
        return
    step, *rest = path
    match document, step:
        case dict() | list(), None:
            for each in document.values() if isinstance(document, dict) else document:
                yield from values_at(each, rest)
        case dict(), str() if step in document:
            yield from values_at(document[step], rest)
        case list(), int() if step < len(document):
            yield from values_at(document[step], rest)


def parse(text: str) -> Condition:
    """Return the condition of an expression. Raises ConfigError."""
    body = text.strip()
    if not body.startswith("$"):
        raise ConfigError(f"{text!r}: a path begins with $, such as $.user.id")
    path: list[Step] = []
    at = 1
    while (found := _STEP.match(body, at)) is not None:
        name, number, *rest = found.groups()
        everything = rest[0] or rest[1]
        quoted = rest[2] if rest[2] is not None else rest[3]
        path.append(None if everything else int(number) if number else name or quoted)
        at = found.end()
    rest_text = body[at:].strip()
    if not rest_text:
        return Condition(tuple(path))
    for symbol, compare in _OPERATORS.items():
        if rest_text.startswith(symbol):
            other = _literal(rest_text.removeprefix(symbol).strip(), text)
            if symbol == "=~":
                _check_pattern(other, text)
            return Condition(tuple(path), compare, other)
    raise ConfigError(
        f"{text!r}: {rest_text!r} is neither a step (.name, [0], [*]) nor one of {' '.join(_OPERATORS)}"
    )


def _literal(text: str, whole: str) -> Any:
    if len(text) > 1 and text[0] == text[-1] == "'":
        return text[1:-1]
    try:
        return json.loads(text)
    except ValueError:
        if re.fullmatch(r"[\w.:@/+-]+", text):
            return text  # a word needs no quotes
        raise ConfigError(f"{whole!r}: {text!r} is no JSON value; put text in quotes") from None


def _check_pattern(pattern: Any, whole: str) -> None:
    if not isinstance(pattern, str):
        raise ConfigError(f"{whole!r}: =~ needs a regular expression in quotes")
    try:
        re.compile(pattern)
    except re.error as e:
        raise ConfigError(f"{whole!r}: {pattern!r} is no regular expression: {e}") from None
