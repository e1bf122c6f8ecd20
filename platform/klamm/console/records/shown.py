"""A record, and its bytes as text, JSON, hex, or a value of a schema. Pure; `Schemas` asks a registry."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

FORMS: Final = ("auto", "text", "json", "hex", "registry")
SHOWN_MAX: Final = 64 << 10
"""Characters of a value on a page."""
_FRAME: Final = 5
"""A byte of zero, and the number of a schema: what Confluent's serializers write before a value."""


class Shown:
    """Bytes as somebody reads them: the `form`, the text, and the value behind it (None where it is no JSON).

    JSON gets its text when somebody reads it: a search that looks at values alone does without.
    """

    __slots__ = ("_text", "form", "value")

    def __init__(self, form: str, text: str | None, value: Any = None) -> None:
        self.form = form
        self._text = text
        self.value = value

    @property
    def text(self) -> str:
        """The text; JSON has line breaks."""
        if self._text is None:
            self._text = json.dumps(self.value, indent=2, ensure_ascii=False)
        return self._text


Look = Callable[[str, bytes, bool], Shown | None]
"""Decodes bytes of a topic through a registry: topic, bytes, whether they are a key; None where there is no schema in them."""


def no_registry(_topic: str, _data: bytes, _is_key: bool) -> Shown | None:
    """Decodes nothing, where no registry is configured."""
    return None


@dataclass(slots=True, kw_only=True)
class Record:
    """A record. Its decoded parts are made once, when a test or the page asks for them."""

    topic: str
    partition: int
    offset: int
    timestamp: int | None
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]] = ()
    key_form: str = "auto"
    value_form: str = "auto"
    look: Look = no_registry
    _key: Shown | None = field(default=None, repr=False)
    _value: Shown | None = field(default=None, repr=False)

    def decoded_key(self) -> Shown:
        """Returns the key in its form."""
        if self._key is None:
            self._key = decoded(self.topic, self.key, self.key_form, self.look, is_key=True)
        return self._key

    def decoded_value(self) -> Shown:
        """Returns the value in its form."""
        if self._value is None:
            self._value = decoded(self.topic, self.value, self.value_form, self.look, is_key=False)
        return self._value

    def part(self, name: str) -> Any:
        """Returns what an expression sees by this name."""
        match name:
            case "value":
                return self.decoded_value().value
            case "key":
                return self.decoded_key().value
            case "headers":
                return {n: None if v is None else v.decode(errors="replace") for n, v in self.headers}
            case _:
                return getattr(self, name)

    @property
    def size(self) -> int:
        """Bytes of key, value and headers."""
        return (
            len(self.key or b"")
            + len(self.value or b"")
            + sum(len(n) + len(v or b"") for n, v in self.headers)
        )


def decoded(topic: str, data: bytes | None, form: str, look: Look, *, is_key: bool) -> Shown:
    """Returns bytes in a form; `auto` finds it: a schema's number in front, JSON, text, else hex."""
    if data is None:
        return Shown("null", "null")
    match form:
        case "text":
            text = data.decode(errors="replace")
            return Shown("text", text, text)
        case "hex":
            return Shown("hex", hexdump(data))
        case "json":
            return as_json(data) or Shown("not JSON", data.decode(errors="replace"))
        case "registry":
            return look(topic, data, is_key) or Shown("no schema", hexdump(data))
    if len(data) > _FRAME and data[0] == 0 and (found := look(topic, data, is_key)) is not None:
        return found
    return as_json(data) or as_text(data) or Shown("hex", hexdump(data))


def as_json(data: bytes) -> Shown | None:
    """Returns JSON that somebody may read; None for other bytes."""
    if data[:1] not in b'{["-0123456789tfn \t\r\n' or not data:
        return None
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError:
        try:
            value = json.loads(data)  # numbers that are too large for orjson, NaN
        except (ValueError, RecursionError):
            return None
    return Shown("json", None, value)


def as_text(data: bytes) -> Shown | None:
    """Returns text; None for bytes that are none."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    if any(c < " " and c not in "\t\r\n" for c in text):
        return None
    return Shown("text", text, text)


def hexdump(data: bytes) -> str:
    """Returns lines of 16 bytes: their place, the bytes, and those of them that are letters."""
    lines = []
    for at in range(0, min(len(data), SHOWN_MAX // 4), 16):
        row = data[at : at + 16]
        letters = "".join(chr(b) if 32 <= b < 127 else "." for b in row)
        lines.append(f"{at:08x}  {row.hex(' '):<47}  {letters}")
    return "\n".join(lines)


def shortened(text: str, most: int = SHOWN_MAX) -> str:
    """Returns a text that a page can take."""
    return text if len(text) <= most else f"{text[:most]}\n… {len(text) - most:,} characters more"


def one_line(text: str, most: int = 160) -> str:
    """Returns the beginning of a text, on one line."""
    flat = " ".join(text.split())
    return flat if len(flat) <= most else flat[:most] + "…"
