"""Dissect: events cut at fixed delimiters, without regular expressions: `%{client} - [%{ts}] "%{verb} %{path}" %{+path}`.

It follows Elasticsearch's and Logstash's dissect: `%{name}` goes up to the next delimiter, `%{name->}` skips repeated delimiters,
`%{+name}` appends (with `/n` in that order), `%{}` and `%{?name}` skip, `%{*name}` with `%{&name}` are a name and its value.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from klamm_agent.stages.parse import Parsed
from klamm_agent.stages.parse.fields import Document, placer, put
from klamm_base.errors import KlammError

_KEY: Final = re.compile(r"%\{([^}]*)\}")
_FORM: Final = re.compile(r"(?P<kind>[+?*&]?)(?P<name>[^/|>+?*&{]*?)(?:/(?P<order>\d+))?(?P<repeats>->)?")


class DissectError(KlammError):
    """An invalid pattern."""


@dataclass(frozen=True, slots=True)
class _Key:
    """One `%{…}` and the delimiter behind it (empty: up to the end)."""

    kind: str
    name: str
    order: int
    repeats: bool
    delimiter: str
    place: Callable[[Document, Any], None] = field(compare=False)


class DissectParser:
    """A parser by a dissect pattern. Raises DissectError for an invalid pattern."""

    def __init__(self, pattern: str, separator: str = " ") -> None:
        self._begin, self._keys = _compile(pattern)
        self._separator = separator
        self._plain = all(k.kind in {"", "?"} for k in self._keys)

    def parse(self, texts: list[str]) -> list[Parsed]:
        """Returns each event's fields."""
        return [self._parse(text) for text in texts]

    def _parse(self, text: str) -> Parsed:
        if not text.startswith(self._begin):
            return f"does not begin with {self._begin!r}"
        at, values = len(self._begin), []
        for key in self._keys:
            delimiter = key.delimiter
            if not delimiter:
                values.append(text[at:])
                at = len(text)
                continue
            end = text.find(delimiter, at)
            if end < 0:
                return f"has no {delimiter!r} behind {key.name or 'a skipped part'}"
            values.append(text[at:end])
            at = end + len(delimiter)
            if key.repeats:
                while text.startswith(delimiter, at):
                    at += len(delimiter)
        if at < len(text):
            return f"goes on behind the pattern: {text[at : at + 20]!r}"
        document: Document = {}
        if self._plain:
            for key, value in zip(self._keys, values, strict=True):
                if not key.kind and key.name:
                    key.place(document, value)
            return document
        return self._joined(values)

    def _joined(self, values: list[str]) -> Document:
        found: dict[str, list[tuple[int, str]]] = {}
        names: dict[str, str] = {}
        references: dict[str, str] = {}
        for key, value in zip(self._keys, values, strict=True):
            match key.kind:
                case "*":
                    names[key.name] = value
                case "&":
                    references[key.name] = value
                case "?":
                    continue
                case _ if key.name:
                    found.setdefault(key.name, []).append((key.order, value))
        document: Document = {}
        for name, parts in found.items():
            put(document, name, self._separator.join(v for _, v in sorted(parts, key=lambda p: p[0])))
        for name, value in references.items():
            if names[name]:
                put(document, names[name], value)
        return document


def _compile(pattern: str) -> tuple[str, list[_Key]]:
    matches = list(_KEY.finditer(pattern))
    if not matches:
        raise DissectError(f"pattern {pattern!r}: there is no %{{name}} in it")
    keys = []
    for i, match in enumerate(matches):
        end = matches[i + 1].start() if i + 1 < len(matches) else len(pattern)
        delimiter = pattern[match.end() : end]
        if not delimiter and i + 1 < len(matches):
            raise DissectError(f"pattern {pattern!r}: nothing between {match[0]} and {matches[i + 1][0]}")
        form = _FORM.fullmatch(match[1].strip())
        if form is None or (form["kind"] in {"+", "*", "&"} and not form["name"]):
            raise DissectError(f"pattern {pattern!r}: {match[0]} is not a name")
        order, repeats = int(form["order"] or 0), bool(form["repeats"])
        keys.append(_Key(form["kind"], form["name"], order, repeats, delimiter, placer(form["name"])))
    starred, referring = ({k.name for k in keys if k.kind == kind} for kind in "*&")
    if starred != referring:
        raise DissectError(f"pattern {pattern!r}: each %{{*name}} needs one %{{&name}}")
    return pattern[: matches[0].start()], keys
