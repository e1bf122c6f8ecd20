"""Lines of the log agent's documents as Arrow columns, a batch of records at a time. Pure.

The agent writes `{"@timestamp":"…","message":"…","log":{"file":{"path":"…"},"offset":N},"host":…}` by a template. A record of
exactly this form is cut at its known places, and all messages of a batch are decoded by one call. Of any other record, all
columns are null: Spark's own JSON reads it, as it would read these. Nothing is cut of which Spark might make something else.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import orjson
import pyarrow as pa
import pyarrow.compute as pc

COLUMNS: Final = {
    "_line": "STRING", "_path": "STRING", "_position": "BIGINT", "_host": "STRING", "_service": "STRING", "_id": "STRING",
}  # fmt: skip
"""The columns, with Spark's types: the line, its place, the document's `host.name` and `service.name`, and what `pattern` found."""

_MIDDLE: Final = b'","log":{"file":{"path":'
_OFFSET: Final = b'},"offset":'
_BASE: Final = b"},"
_HEAD: Final = len(b'{"@timestamp":"2026-01-01T12:00:00.000Z","message":"')
_TIME: Final = len(b'{"@timestamp":"')
_ESCAPED_END: Final = b'\\","'
_DIGITS_MAX: Final = 18
_KEPT: Final = 4096
_RESERVED: Final = frozenset({"@timestamp", "message", "log"})
_SAME: Final = re.compile(
    r"(?:[\w =\"':;,/@#%~!<>-]|\(\?:|\((?!\?)|[)|]|\[[\w =\"':;,/@#%~!<>-]+\]|(?:[?*+]|\{\d{1,3}\})(?![?*+]))+",
    re.ASCII,
)
"""Regular expressions for which RE2 finds the same as Java: plain characters and classes, groups, alternatives, repetitions."""

_ZERO: Final = ord("0")


@dataclass(frozen=True, slots=True)
class _Form:
    """The common part of one block's documents: their bytes around message and offset, and what these say."""

    head: bytes
    middle: bytes
    end: bytes
    path: str | None
    host: str | None
    service: str | None


_NONE: Final = _Form(b"", b"", b"", None, None, None)
"""The form of a record that the agent's template has not made."""


def usable(pattern: str) -> bool:
    """Returns whether a search for `pattern`, which has one group, finds here what Java would find."""
    if _SAME.fullmatch(pattern) is None:
        return False
    try:
        pc.extract_regex(pa.array([""]), _named(pattern))
    except pa.ArrowInvalid:  # too many repetitions
        return False
    return True


def _named(pattern: str) -> str:
    """Gives the one group the name that Arrow asks for."""
    return re.sub(r"\((?!\?)", "(?P<id>", pattern, count=1)


class AgentLines:
    """Cuts records. Keeps the forms of the agents' documents between batches."""

    def __init__(self, pattern: str | None) -> None:
        self._pattern = None if pattern is None else _named(pattern)
        self._forms: dict[tuple[bytes, bytes, bytes], _Form] = {}

    def columns(self, values: Sequence[bytes | None]) -> tuple[Sequence[bytes | None], list[pa.Array]]:
        """Returns the values, None where they are cut, and `COLUMNS`."""
        forms, bodies, numbers = self._cut(values)
        lines = _decoded(bodies)
        rest: Sequence[bytes | None] = [None] * len(values)
        if None in lines:
            for n, text in enumerate(lines):
                if text is None:
                    forms[n], numbers[n] = _NONE, None
            rest = [value if text is None else None for value, text in zip(values, lines, strict=True)]
        line = pa.array(lines, pa.string())
        return rest, [
            line,
            pa.array([form.path for form in forms], pa.string()),
            pa.array(numbers, pa.binary()).cast(pa.string()).cast(pa.int64()),
            pa.array([form.host for form in forms], pa.string()),
            pa.array([form.service for form in forms], pa.string()),
            self._ids(line),
        ]

    def _cut(
        self, values: Sequence[bytes | None]
    ) -> tuple[list[_Form], list[bytes | None], list[bytes | None]]:
        """Returns each record's form, the JSON of its message without quotes, and its offset; None twice for `_NONE`.

        A record is mostly of the form of the one before.
        """
        forms: list[_Form] = []
        bodies: list[bytes | None] = []
        numbers: list[bytes | None] = []
        form, head, middle, end, until = _NONE, b"", b"", b"", 0
        for value in values:
            text = value or b""
            at_middle, number = b"", b""
            if form is not _NONE and text.startswith(head) and text.endswith(end):
                body, at_middle, number = text[_HEAD:until].rpartition(middle)
            if not at_middle:
                form = self._form(text)
                head, middle, end, until = form.head, form.middle, form.end, -len(form.end)
                if form is not _NONE:
                    body, at_middle, number = text[_HEAD:until].rpartition(middle)
            if (
                at_middle
                and number.isdigit()
                and (number[0] != _ZERO or number == b"0")
                and len(number) <= _DIGITS_MAX
            ):
                forms.append(form)
                bodies.append(body)
                numbers.append(number)
            else:
                forms.append(_NONE)
                bodies.append(None)
                numbers.append(None)
        return forms, bodies, numbers

    def _form(self, text: bytes) -> _Form:
        head, _, rest = text.partition(_MIDDLE)
        path, _, rest = rest.partition(_OFFSET)
        _, _, base = rest.partition(_BASE)
        key = (head[:_HEAD], path, base)
        if key not in self._forms:
            if len(self._forms) >= _KEPT:
                self._forms.clear()
            self._forms[key] = _judged(*key)
        return self._forms[key]

    def _ids(self, line: pa.Array) -> pa.Array:
        """Returns what the pattern's group matched, empty without a match, and null where there is no line."""
        if self._pattern is None:
            return pa.nulls(len(line), pa.string())
        found = pc.struct_field(pc.extract_regex(line, self._pattern), "id")
        return pc.if_else(pc.is_valid(line), pc.fill_null(found, ""), pa.scalar(None, pa.string()))


def _judged(head: bytes, path: bytes, base: bytes) -> _Form:
    """Returns the form of documents with these parts, or `_NONE`."""
    shown, names = _loaded(path), _names(base)
    if not _is_head(head) or not isinstance(shown, str) or names is None:
        return _NONE
    return _Form(head, _MIDDLE + path + _OFFSET, _BASE + base, shown, *names)


def _decoded(bodies: list[bytes | None]) -> list[str | None]:
    """Returns the texts of JSON strings without their quotes; None for what is none.

    All at once, where no body ends in a backslash: then every joint has two quotes that are not escaped, and an array of as many
    elements as bodies has no others. So each element is one body.
    """
    if None not in bodies:
        joined = b'["' + b'","'.join(bodies) + b'"]'  # type: ignore[arg-type]
        if _ESCAPED_END not in joined and not joined.endswith(b'\\"]'):
            found = _loaded(joined)
            if isinstance(found, list) and len(found) == len(bodies):
                return found
    alone = [None if body is None else _loaded(b'"' + body + b'"') for body in bodies]
    return [text if isinstance(text, str) else None for text in alone]


def _is_head(head: bytes) -> bool:
    """Returns whether a document begins with a time, and its message follows."""
    if not head.startswith(b'{"@timestamp":"') or not head.endswith(b'","message":"'):
        return False
    return len(head) == _HEAD and isinstance(_loaded(b'"' + head[_TIME : _TIME + 24] + b'"'), str)


def _names(base: bytes) -> tuple[str | None, str | None] | None:
    """Returns the names of host and service in what follows a document's place; None where Spark may see others."""
    found = _loaded(b"{" + base)
    # A name that is there twice is there once in what was read
    if not isinstance(found, dict) or _RESERVED & found.keys() or orjson.dumps(found) != b"{" + base:
        return None
    host, service = _name(found.get("host")), _name(found.get("service"))
    return None if host is False or service is False else (host, service)


def _name(value: Any) -> str | Literal[False] | None:
    """Returns an object's `name`; False where Spark may see it otherwise."""
    if value is None:
        return None
    if not isinstance(value, dict):
        return False
    name = value.get("name")
    return name if name is None or isinstance(name, str) else False


def _loaded(text: bytes) -> Any:
    """Returns JSON's value; False, which no text of the agent's is, for other texts."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return False
