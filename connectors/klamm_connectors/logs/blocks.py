"""Blocks of whole lines as record values, a batch at a time: what costs per line happens inside C functions. Pure.

Raw values are the lines without their line end (LF or CRLF). JSON values are ECS documents; the text of a whole block is
escaped in one call, joined by a character that JSON leaves alone, and cut again.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, Final

import orjson

from klamm_connectors.logs.text import character_end

_JOINTS: Final = ("\x7f", "\ue000", "\ue001")  # never escaped by JSON; the first that the text does not hold


def split(data: bytes, start: int, max_line: int, *, places: bool) -> tuple[list[bytes], list[int], int]:
    """Lines of a block, their byte offsets in the file (if asked for), and how many cuts lines above `max_line` took."""
    lines = data.split(b"\n")
    if not lines[-1]:
        lines.pop()
    offsets = list(accumulate(map(len, lines[:-1]), _after, initial=start)) if places else []
    cuts = 0
    if max(map(len, lines), default=0) > max_line:
        lines, offsets, cuts = _shorten(lines, offsets or [0] * len(lines), max_line)
    if b"\r" in data:
        lines = [line.removesuffix(b"\r") for line in lines]
    return lines, offsets, cuts


def _after(offset: int, length: int) -> int:
    return offset + length + 1


def _shorten(lines: list[bytes], offsets: list[int], limit: int) -> tuple[list[bytes], list[int], int]:
    pieces: list[bytes] = []
    places: list[int] = []
    for line, offset in zip(lines, offsets, strict=True):
        at = 0
        while len(line) - at > limit:
            cut = character_end(line, at, limit)
            pieces.append(line[at : at + cut])
            places.append(offset + at)
            at += cut
        pieces.append(line[at:])
        places.append(offset + at)
    return pieces, places, len(pieces) - len(lines)


class Envelope:
    """Wraps lines as ECS documents: `@timestamp`, `message`, `log`, `host`, `agent`, and the input's own fields."""

    def __init__(self, *, host: str, agent_id: str, fields: dict[str, Any], encoding: str) -> None:
        self._encoding = encoding
        rest = {"host": {"name": host}, "agent": {"type": "klamm", "id": agent_id}} | fields
        self._rest = b"}," + json.dumps(rest, ensure_ascii=False, separators=(",", ":")).encode()[1:]

    def wrap(self, lines: Sequence[bytes], offsets: Sequence[int], path: str, at: float) -> list[bytes]:
        """Values for `lines`, read at `at` (seconds since the epoch). Bytes that are no text become U+FFFD."""
        stamp = (
            dt.datetime.fromtimestamp(at, tz=dt.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        )
        head = b'{"@timestamp":"' + stamp.encode() + b'","message":"'
        shown = orjson.dumps(path.encode(errors="replace").decode())
        middle = b'","log":{"file":{"path":' + shown + b'},"offset":'
        bodies = self._escaped(lines)
        rest = self._rest
        return [
            b"%b%b%b%d%b" % (head, body, middle, offset, rest)
            for body, offset in zip(bodies, offsets, strict=True)
        ]

    def _escaped(self, lines: Sequence[bytes]) -> list[bytes]:
        text = b"\n".join(lines).decode(self._encoding, errors="replace")
        joint = next((j for j in _JOINTS if j not in text), None)
        if joint is None or not lines:
            return [orjson.dumps(line.decode(self._encoding, errors="replace"))[1:-1] for line in lines]
        return orjson.dumps(text.replace("\n", joint))[1:-1].split(joint.encode())


def messages(values: Sequence[bytes], key: bytes | None) -> list[dict[str, Any]]:
    """What produce_batch takes."""
    if key is None:
        return [{"value": v} for v in values]
    return [{"value": v, "key": key} for v in values]
