"""The filters `include_lines` and `exclude_lines`: regular expressions that are searched for in the text. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final

from klamm_agent.stages.patience import each
from klamm_agent.stages.staged import StagedEvents

_BY_PLACE: Final = re.compile(r"(?<!\\)(?:\\\\)*(?:\^|\$|\\[AZzGX]|\(\?|[*+?}]\+)")
"""Finds in a pattern what can match in an event alone but not in the same event inside a block: anchors, groups that look around or
are atomic, possessive repetitions. `(?` matches more than needed; groups that only group or have a name are removed before.
"""
_HARMLESS: Final = re.compile(r"\(\?(?::|P<\w+>)")
_IN_BLOCK: Final = "\n"


def anywhere(patterns: Sequence[str]) -> Callable[[list[str]], list[bool]]:
    """Returns a function that tells for each text whether any of the patterns is found in it.

    Most blocks hold nothing that an excluding pattern is about. So patterns that do not depend on their place in a text are searched
    for in the whole block first.
    """
    search = _any(patterns)
    whole = not any(_BY_PLACE.search(_HARMLESS.sub("(", p)) for p in patterns)

    def found(texts: list[str]) -> list[bool]:
        if whole and search(_IN_BLOCK.join(texts)) is None:
            return [False] * len(texts)
        return [search(text) is not None for text in texts]

    return found


def _any(patterns: Sequence[str]) -> Callable[[str], object]:
    """Joins the patterns to one search, if flags and groups of one pattern cannot reach into another."""
    compiled = [re.compile(p) for p in patterns]
    if len(compiled) == 1:
        return compiled[0].search
    if all(not c.groups and not p.startswith("(?") for c, p in zip(compiled, patterns, strict=True)):
        return re.compile("|".join(f"(?:{p})" for p in patterns)).search

    def search(text: str) -> object:
        return next((match for c in compiled if (match := c.search(text))), None)

    return search


class LineFilter:
    """The stage `lines`: keeps what is included and not excluded. An event whose test takes too long stays."""

    name = "lines"

    def __init__(self, include: Sequence[str], exclude: Sequence[str]) -> None:
        self._include = anywhere(include) if include else None
        self._exclude = anywhere(exclude) if exclude else None

    def run(self, staged: StagedEvents) -> None:
        """Drops the events that are not wanted."""
        if self._include is not None:
            staged.keep(each(staged.texts, self._include, lambda _text: True), "include_lines")
        if self._exclude is not None and staged.values:
            staged.keep(
                [not found for found in each(staged.texts, self._exclude, lambda _text: False)],
                "exclude_lines",
            )
