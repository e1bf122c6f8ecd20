"""Nested documents by dotted names, and text as numbers. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

Document = dict[str, Any]

_TRUE: Final = frozenset({"true", "yes", "on", "1"})
_FALSE: Final = frozenset({"false", "no", "off", "0"})
_LARGEST: Final = 2**63


def get(document: Mapping[str, Any], name: str) -> Any:
    """Returns the value at a dotted name; None when there is none."""
    found: Any = document
    for part in name.split("."):
        if not isinstance(found, dict):
            return None
        found = found.get(part)
    return found


def pop(document: Document, name: str) -> Any:
    """Takes the value at a dotted name away; None when there is none. Objects that become empty go too."""
    first, dot, rest = name.partition(".")
    if not dot:
        return document.pop(first, None)
    inner = document.get(first)
    if not isinstance(inner, dict):
        return None
    found = pop(inner, rest)
    if not inner:
        del document[first]
    return found


def put(document: Document, name: str, value: Any) -> None:
    """Sets the value at a dotted name. If a plain value is in the way, the new value goes to `labels`, with `_` for dots."""
    inner, *rest = document, *name.split(".")
    for i, part in enumerate(rest[:-1]):
        found = inner.setdefault(part, {})
        if not isinstance(found, dict):
            _labels(document)[name.replace(".", "_")] = value
            return
        inner = found
        assert i < len(rest)
    last = rest[-1]
    if isinstance(inner.get(last), dict) and not isinstance(value, dict):
        _labels(document)[name.replace(".", "_")] = value
    else:
        inner[last] = value


def merge(document: Document, more: Mapping[str, Any]) -> None:
    """Merges `more` into `document`, objects into objects; values of `more` win. `more` stays as it is."""
    waiting = [(document, more)]  # no recursion: a deeply nested log line must not fail
    while waiting:
        into, what = waiting.pop()
        for name, value in what.items():
            there = into.get(name)
            if isinstance(value, dict):
                if isinstance(there, dict):
                    waiting.append((there, value))
                    continue
                copy: Document = {}
                into[name] = copy
                waiting.append((copy, value))
                if there is not None:
                    _labels(into)[name] = there
            elif isinstance(there, dict):
                _labels(into)[name] = value
            else:
                into[name] = value


def _labels(document: Document) -> Document:
    labels = document.get("labels")
    if not isinstance(labels, dict):
        labels = document["labels"] = {} if labels is None else {"labels": labels}
    return labels


def placer(name: str) -> Callable[[Document, Any], None]:
    """Returns a faster `put` for one name and plain values: it cuts the name once."""
    *above, last = name.split(".")
    if len(above) > 1:
        return lambda document, value: put(document, name, value)
    first = above[0] if above else ""

    def place(document: Document, value: Any) -> None:
        inner: Any = document
        if first:
            inner = document.get(first)
            if inner is None:
                document[first] = {last: value}
                return
        if type(inner) is dict and type(inner.get(last)) is not dict:
            inner[last] = value
        else:
            put(document, name, value)

    return place


def expand(document: Document) -> Document:
    """Turns dotted names of the top level into objects, in place: `{"log.level": "info"}` becomes `{"log": {"level": "info"}}`."""
    dotted = [name for name in document if "." in name]
    for name in dotted:
        if name.startswith(".") or name.endswith(".") or ".." in name:
            continue  # a part between the dots is empty
        value = document.pop(name)
        if isinstance(value, dict) or not isinstance(document.get(name.partition(".")[0], {}), dict):
            merge(document, nested(name, value))  # an object wins over a plain value
        else:
            put(document, name, value)
    return document


def nested(name: str, value: Any) -> Document:
    """Returns `{"a": {"b": value}}` for `a.b`."""
    for part in reversed(name.split(".")):
        value = {part: value}
    assert isinstance(value, dict)
    return value


def converter(kind: str) -> Callable[[Any], Any] | None:
    """Returns the function that turns text into `kind`; other text stays text. None for text."""
    match kind:
        case "int" | "long":
            return _int
        case "float" | "double":
            return _float
        case "boolean":
            return _boolean
        case _:
            return None


def _int(value: Any) -> Any:
    try:
        number = int(value)
    except (TypeError, ValueError):
        return value
    return number if -_LARGEST <= number < _LARGEST else value  # JSON's readers have 64 bits


def _float(value: Any) -> Any:
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return value
    return number if number - number == 0 else value  # JSON has no infinity


def _boolean(value: Any) -> Any:
    text = str(value).lower()
    return True if text in _TRUE else False if text in _FALSE else value
