"""Events described by regular expressions: grok's patterns, or plain expressions with named groups."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from klamm_agent.stages.parse import Parsed
from klamm_agent.stages.parse.fields import Document, converter, put
from klamm_agent.stages.patience import EVENT_S, each
from klamm_base.grok import Expanded, expand

_NO_MATCH: Final = "does not match the pattern"
_OVERLONG: Final = f"the pattern needs more than {EVENT_S:.0f} s of CPU time"
_NO_MATCHES: Final = "matches none of the {} patterns"


class PatternParser:
    """A parser that tries patterns in their order; the first that is found anywhere in the text gives the fields.

    A group that took no part in the match gives no field. Raises GrokError for an invalid pattern.
    """

    def __init__(
        self, patterns: Sequence[str], definitions: Mapping[str, str] | None = None, *, grok: bool = True
    ) -> None:
        """`grok` says that `%{NAME}` stands for a pattern."""
        self._plans = [_Plan(expand(pattern, definitions, references=grok)) for pattern in patterns]
        self._why = _NO_MATCH if len(patterns) == 1 else _NO_MATCHES.format(len(patterns))

    def parse(self, texts: list[str]) -> list[Parsed]:
        """Returns each event's fields."""
        return each(texts, self._parse, lambda _text: _OVERLONG)

    def _parse(self, texts: list[str]) -> list[Parsed]:
        first, *others = self._plans
        found: list[Parsed] = [first.fields(m) if m else self._why for m in map(first.search, texts)]
        for plan in others:
            if self._why not in found:
                break
            for i, one in enumerate(found):
                if one is self._why and (match := plan.search(texts[i])):
                    found[i] = plan.fields(match)
        return found


class _Plan:
    """One expression, and the field of each of its groups."""

    def __init__(self, expanded: Expanded) -> None:
        compiled = re.compile(expanded.regex)
        self.search: Callable[[str], re.Match[str] | None] = compiled.search
        self._groups = tuple(compiled.groupindex[f.group] for f in expanded.fields)
        self._places = [
            (f.name.split("."), f.name, converter(f.type)) for f in expanded.fields
        ]  # fmt: skip

    def fields(self, match: re.Match[str]) -> Document:
        document: Document = {}
        values = match.group(
            *self._groups, 0
        )  # the whole match as well: then it is always a tuple, or the match alone
        if not self._groups:
            return document
        for (path, name, convert), value in zip(self._places, values, strict=False):
            if value is None:
                continue
            if len(path) == 1 and name not in document:
                document[name] = value if convert is None else convert(value)
            else:
                _place(document, name, value if convert is None else convert(value))
        return document


def _place(document: Document, name: str, value: Any) -> None:
    """Puts a value, but keeps the value that an earlier group of the same name found: of two nested groups the outer one counts."""
    inner: Any = document
    *above, last = name.split(".")
    for part in above:
        inner = inner.setdefault(part, {})
        if not isinstance(inner, dict):
            put(document, name, value)
            return
    if isinstance(inner.get(last), dict):
        put(document, name, value)
    else:
        inner.setdefault(last, value)
