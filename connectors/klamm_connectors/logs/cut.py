"""Bytes of a file as events: lines cut at their ends, long ones split, text decoded. Pure."""

from __future__ import annotations

from klamm_connectors.logs.blocks import split
from klamm_connectors.logs.config_inputs import Input
from klamm_connectors.logs.events import Events


class Cutter:
    """For the blocks of one input. `places` says that stages need the events' offsets."""

    def __init__(self, config: Input, *, places: bool) -> None:
        self._max_line, self._places = config.max_line_bytes, places
        utf8 = config.encoding.lower().replace("_", "-") in {"utf-8", "utf8"}
        self._encoding = None if utf8 else config.encoding
        self.splits = 0
        """Cuts that lines longer than `max_line_bytes` took."""

    def cut(self, data: bytes, start: int, path: str, at: float) -> Events:
        """Events of a block of whole lines that begins at byte `start` of `path`, read at `at`."""
        lines, offsets, cuts = split(data, start, self._max_line, places=self._places)
        self.splits += cuts
        if self._encoding is not None and lines:
            lines = b"\n".join(lines).decode(self._encoding, errors="replace").encode().split(b"\n")
        return Events(lines, path, at, offsets)
