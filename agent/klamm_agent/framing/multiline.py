"""Multiline: groups lines into events, by a pattern or by the look of stack traces. Pure; nothing is kept between blocks.

A grouping gets a list of lines, the first of which begins an event. It says which lines begin events, and whether the last event
may still grow. The caller leaves such an event unread until more lines come or the timeout has passed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from klamm_agent.framing.traces import MACHINES, Traces

PRESETS: Final = tuple(MACHINES)
_POSIX: Final = {  # in Go's and POSIX's patterns, which Python's `re` does not know
    "alnum": "a-zA-Z0-9", "alpha": "a-zA-Z", "blank": r" \t", "digit": "0-9", "lower": "a-z", "punct": r"!-/:-@\[-`{-~",
    "space": r"\s", "upper": "A-Z", "word": r"\w", "xdigit": "0-9a-fA-F",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Multiline:
    """The settings of an input's `multiline`: presets, or a pattern. Times are in seconds."""

    presets: tuple[str, ...] = ()
    pattern: str = ""
    negate: bool = False
    match: str = "after"
    flush_pattern: str = ""
    max_lines: int = 500
    timeout: float = 5.0


class Grouping(Protocol):
    def starts(self, lines: Sequence[bytes]) -> tuple[list[int], bool]:
        """Returns the indexes of the lines that begin an event, 0 first, and whether the last event may grow."""


def grouping(config: Multiline) -> Grouping:
    """Returns the grouping that `config` asks for. Raises ValueError for an invalid pattern."""
    if config.presets:
        return Traces(config.presets)
    return Patterns(config)


def expression(pattern: str) -> Callable[[bytes], object]:
    """Compiles `pattern` to a search in one line: Python's `re`, and `[[:space:]]` and the like. Raises ValueError."""

    def posix(match: re.Match[str]) -> str:
        name = match[1]
        if name not in _POSIX:
            raise ValueError(f"no class [:{name}:] is known; known are {', '.join(_POSIX)}")
        return _POSIX[name]

    text = re.sub(r"\[:(\w+):\]", posix, pattern)
    try:
        if text.isascii():
            return re.compile(text.encode()).search
        search = re.compile(text).search
    except re.error as e:
        raise ValueError(str(e)) from None
    return lambda line: search(line.decode(errors="replace"))


class Patterns:
    """A grouping by `pattern`, `negate` and `match`, as Filebeat and Logstash have them."""

    def __init__(self, config: Multiline) -> None:
        self._search, self._negate = expression(config.pattern), config.negate
        self._before = config.match == "before"
        self._flush = expression(config.flush_pattern) if config.flush_pattern else None

    def starts(self, lines: Sequence[bytes]) -> tuple[list[int], bool]:
        if not lines:
            return [], False
        search, flush = self._search, self._flush
        joins = (
            [search(line) is None for line in lines]
            if self._negate
            else [search(line) is not None for line in lines]
        )
        if self._before:  # a line that joins belongs to the next one
            open_end = joins.pop()
            joins.insert(0, False)
        else:
            open_end, joins[0] = True, False
        if flush is not None:
            ends = [flush(line) is not None for line in lines]
            closed = ends.pop()
            open_end = open_end and not closed
            joins = [joins[0], *(j and not e for j, e in zip(joins[1:], ends, strict=True))]
        return [i for i, join in enumerate(joins) if not join], open_end


def limit(starts: list[int], lines: Sequence[bytes], max_lines: int, max_bytes: int) -> tuple[list[int], int]:
    """Cuts events of more than `max_lines` lines or `max_bytes` bytes between lines; returns the starts, and how many cuts."""
    if len(starts) == len(lines):
        return starts, 0
    ends = [*starts[1:], len(lines)]
    found: list[int] = []
    for start, end in zip(starts, ends, strict=True):
        found.append(start)
        if end - start > 1:
            count = size = 0
            for i in range(start, end):
                length = len(lines[i]) + 1
                if count and (count >= max_lines or size + length > max_bytes + 1):
                    found.append(i)
                    count = size = 0
                count, size = count + 1, size + length
    return found, len(found) - len(starts)
