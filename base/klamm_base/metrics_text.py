"""Prometheus' text format (version 0.0.4): turns families of samples into lines.

Families come and leave one at a time, so that ten thousand partitions are never one string. prometheus-client
does the same work, but its import costs 70 ms at every start, and it writes one text for everything, during which
no request is served. The tests read our text with its parser.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, Literal, NamedTuple

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

_LABEL: Final = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_ESCAPED: Final = re.compile(r"\\(.)")

Labels = Mapping[str, str | int]
Number = int | float


class Sample(NamedTuple):
    """One sample. `suffix` is put behind the family's name (`_bucket`, `_sum`, `_count`)."""

    labels: Labels
    value: Number
    suffix: str = ""


class Family(NamedTuple):
    """The samples of one name. A counter's name includes its `_total`."""

    name: str
    kind: Literal["counter", "gauge", "histogram", "summary", "untyped"]
    help: str
    samples: Iterable[Sample]


def lines(families: Iterable[Family]) -> Iterator[str]:
    """Yields the text line by line, with line ends."""
    for family in families:
        yield f"# HELP {family.name} {_escape_help(family.help)}\n# TYPE {family.name} {family.kind}\n"
        for labels, value, suffix in family.samples:
            text = ",".join(f'{name}="{escape(value)}"' for name, value in labels.items())
            yield (
                f"{family.name}{suffix}{{{text}}} {_number(value)}\n"
                if text
                else (f"{family.name}{suffix} {_number(value)}\n")
            )


def _escape_help(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def escape(value: str | int) -> str:
    """Escapes a label's value for its place between quotes."""
    if isinstance(value, int):
        return str(value)
    if "\\" in value or '"' in value or "\n" in value:
        return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return value


def labels_of(text: str) -> dict[str, str]:
    """Returns the labels in a line of such a text, which stand between its braces."""
    return {name: _ESCAPED.sub(_unescaped, value) for name, value in _LABEL.findall(text)}


def _unescaped(match: re.Match[str]) -> str:
    return "\n" if match[1] == "n" else match[1]


def _number(value: Number) -> str:
    return repr(value)
