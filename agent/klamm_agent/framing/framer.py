"""Framing: bytes of a file as events, where events are more than lines of UTF-8 (multiline, containers, UTF-16). Pure.

The framer keeps nothing between blocks: it cuts a block at the beginning of the first event that may still grow, and the bytes
behind count as unread. So a checkpoint always lies between events, and held lines are found again after a kill.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

from klamm_agent.events import Dropped
from klamm_agent.framing import containers
from klamm_agent.framing.containers import Lines
from klamm_agent.framing.encodings import Encoding, encoding
from klamm_agent.framing.multiline import Grouping, Multiline, grouping, limit
from klamm_agent.framing.text import character_end

_MARK: Final = "\ufeff".encode()
_TOO_LONG: Final = "longer than max_line_bytes"


@dataclass(slots=True)
class Framed:
    """The events of a block. Without events it may still have consumed bytes (of a line that is cut off)."""

    values: list[bytes] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    """The offset in the file where each event begins."""
    times: list[float] | None = None
    """0 for an event that tells no time."""
    fields: list[dict[str, Any]] | None = None
    dropped: list[Dropped] = field(default_factory=list)
    consumed: int = 0
    """Bytes of the block that are used; the next block begins behind them."""
    held: bool = False
    """True when whole lines are left unread, because their event may grow."""
    inside: bool = False
    """True when the next block begins inside a line whose rest is to be dropped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The place of a block in its file, and how far reading has come."""

    path: str = ""
    start: int = 0
    head: bytes = b""
    """First bytes of the file, with the byte order mark."""
    inside: bool = False
    quiet: bool = False
    """No line was added for the multiline timeout: the last event is whole."""
    final: bool = False
    """The last line needs no end."""
    full: bool = False
    """No more can be read at once: some event has to be given out."""


class Framer:
    """The framer of one input's blocks."""

    def __init__(
        self,
        *,
        max_line: int,
        truncate: bool = False,
        text: Encoding | None = None,
        container: str = "",
        multiline: Multiline | None = None,
    ) -> None:
        self._max_line, self._truncate, self._container = max_line, truncate, container
        self._encoding = text or encoding("utf-8")
        self._multiline = multiline or Multiline()
        self._grouping: Grouping | None = grouping(multiline) if multiline is not None else None
        self._fields: dict[tuple[str, str], dict[str, Any]] = {}
        self.timeout: float | None = multiline.timeout if multiline is not None else None
        """Seconds without growth after which the last event counts as whole; None: it always does."""
        self.reach = 4 * max_line * self._encoding.width + 64 * 1024
        """Bytes that may be read at once before some event has to be given out."""
        self.splits = 0
        """The number of cuts in events above the limits."""

    def frame(self, data: bytes, at: Place) -> Framed:
        """Cuts `data`, which was read at `at`, into events."""
        text = self._encoding.of_file(at.head)
        lines, ends, rest = text.cut(data)
        framed = Framed()
        begin = 0
        if at.inside:
            begin = self._leave_out(framed, data, ends, at)
            if not ends:
                return framed
            lines, ends = lines[1:], ends[1:]
        if rest < len(data):
            if at.final:
                lines.append(text.text(data[rest:]))
                ends.append(len(data))
            elif not ends and not begin and (at.full or len(data) > self._max_line * text.width * 2):
                return self._piece(framed, data, text, at)
        if begin == 0 and at.start == 0 and lines:
            lines[0] = lines[0].removeprefix(_MARK)
        if text.codec or b"\r" in data:
            lines = [line.removesuffix(b"\r") for line in lines]
        if not lines:
            framed.consumed = begin
            return framed
        starts = [begin, *ends]
        if self._container:
            self._contained(framed, lines, starts, at)
        else:
            self._plain(framed, lines, starts, at)
        if framed.values and max(map(len, framed.values)) > self._max_line:
            self._shorten(framed, at)
        return framed

    def _leave_out(self, framed: Framed, data: bytes, ends: list[int], at: Place) -> int:
        """Drops the rest of a line that was cut off; returns how long it is."""
        length = ends[0] if ends else self._aligned(data, at)
        framed.dropped.append(Dropped(_TOO_LONG, 0, at.start, at.start + length))
        framed.consumed, framed.inside = length, not ends and not at.final
        return length

    def _piece(self, framed: Framed, data: bytes, text: Encoding, at: Place) -> Framed:
        """Gives out the beginning of a line whose end is out of reach."""
        if text.width == 1:
            cut = character_end(data, 0, min(len(data), self._max_line))
        else:
            cut = text.whole(data, self._max_line)
        framed.values, framed.offsets, framed.consumed = [text.text(data[:cut])], [at.start], cut
        if at.start == 0:
            framed.values[0] = framed.values[0].removeprefix(_MARK)
        if self._container:
            framed.times, framed.fields = [0.0], [self._field(at.path, "")]
        self.splits += 1
        if self._truncate:
            framed.consumed, framed.inside = self._aligned(data, at), True
            framed.dropped.append(Dropped(_TOO_LONG, 1, at.start + cut, at.start + framed.consumed))
        return framed

    def _aligned(self, data: bytes, at: Place) -> int:
        """Returns the length of `data` without an incomplete character at its end."""
        return len(data) if at.final else len(data) - len(data) % self._encoding.width

    def _plain(self, framed: Framed, lines: list[bytes], starts: list[int], at: Place) -> list[int]:
        """Groups lines into events; returns the indexes of the lines that begin events. `starts` has each line's beginning in the block,
        and the last line's end.
        """
        count, base = len(lines), at.start
        framed.consumed = starts[-1]
        if self._grouping is None:
            framed.values, framed.offsets = lines, [base + s for s in starts[:-1]]
            return list(range(count))
        begins, grows = self._grouping.starts(lines)
        begins, cuts = limit(begins, lines, self._multiline.max_lines, self._max_line)
        self.splits += cuts
        bounds = [*begins, count]
        if grows and count and not (at.quiet or at.final or (at.full and len(begins) == 1)):
            bounds.pop()
            framed.held, framed.consumed = True, starts[bounds[-1]]
        framed.values = [lines[s] if e == s + 1 else b"\n".join(lines[s:e]) for s, e in pairwise(bounds)]
        framed.offsets = [base + starts[s] for s in bounds[:-1]]
        return bounds[:-1]

    def _contained(self, framed: Framed, lines: list[bytes], starts: list[int], at: Place) -> None:
        kind = containers.kind_of(lines) if self._container == "auto" else self._container
        whole, cuts = containers.assemble(lines, kind, self._max_line)
        streams = set(whole.streams)
        if (
            len(whole.texts) == len(lines)
            and not whole.parts
            and (self._grouping is None or len(streams) == 1)
        ):
            begins = self._plain(framed, whole.texts, starts, at)  # the lines are in the file's order
            framed.times = [whole.times[i] for i in begins]
            fields = {stream: self._field(at.path, stream) for stream in streams}
            framed.fields = [fields[whole.streams[i]] for i in begins]
            return
        groups = sorted(self._groups(whole, at), key=lambda g: g[0])
        end = min((g[0] for g in groups if g[3]), default=len(lines))
        if end == 0 and at.full:
            end = len(lines)  # one event is longer than can be read at once
        for first, last, _, _ in reversed(groups):
            if first < end <= last:
                end = first
        groups = [g for g in groups if g[1] < end]
        self.splits += cuts if end == len(lines) else 0
        texts, base = whole.texts, at.start
        framed.values = [
            texts[i[0]] if len(i) == 1 else b"\n".join([texts[n] for n in i]) for _, _, i, _ in groups
        ]
        framed.offsets = [base + starts[first] for first, _, _, _ in groups]
        framed.times = [whole.times[i[0]] for _, _, i, _ in groups]
        framed.fields = [self._field(at.path, whole.streams[i[0]]) for _, _, i, _ in groups]
        framed.consumed, framed.held = starts[end], end < len(lines)

    def _groups(self, whole: Lines, at: Place) -> list[tuple[int, int, list[int], bool]]:
        """Groups lines into events by stream. Each event has its first and last line in the block, indexes in `whole`, and whether it may
        still grow.
        """
        first, last = whole.first, whole.last
        if self._grouping is None and not whole.parts:
            return [(s, e, [i], False) for i, (s, e) in enumerate(zip(first, last, strict=True))]
        streams: dict[str, list[int]] = {}
        for i, stream in enumerate(whole.streams):
            streams.setdefault(stream, []).append(i)
        newest = max(whole.times, default=0.0)
        found = []
        for stream, members in streams.items():
            part = whole.parts.get(stream) if not at.final else None
            if part is not None:  # its end has not come: it may still become anything
                members.remove(part)
                found.append((first[part], last[part], [part], True))
            begins, grows = list(range(len(members))), False
            if self._grouping is not None and members:
                texts = [whole.texts[i] for i in members]
                begins, grows = self._grouping.starts(texts)
                begins, cuts = limit(begins, texts, self._multiline.max_lines, self._max_line)
                self.splits += cuts
                late = part is None and newest - whole.times[members[-1]] > self._multiline.timeout
                grows = grows and not (at.quiet or at.final or late)
            for n, begin in enumerate(begins):
                group = members[begin : begins[n + 1] if n + 1 < len(begins) else None]
                found.append((first[group[0]], last[group[-1]], group, grows and n + 1 == len(begins)))
        return found

    def _field(self, path: str, stream: str) -> dict[str, Any]:
        found = self._fields.get((path, stream))
        if found is None:
            if len(self._fields) > 1000:  # paths of containers that are gone
                self._fields.clear()
            found = containers.fields_of(path) | ({"stream": stream} if stream else {})
            self._fields[path, stream] = found
        return found

    def _shorten(self, framed: Framed, at: Place) -> None:
        """Cuts events that are one long line."""
        rows = list(range(len(framed.values)))
        exact = not self._container and not self._encoding.codec  # an event has the bytes of the file
        values: list[bytes] = []
        offsets: list[int] = []
        picked: list[int] = []
        follow = [*framed.offsets[1:], at.start + framed.consumed]
        for row, value, offset in zip(rows, framed.values, framed.offsets, strict=True):
            done, places = 0, [offset]
            while len(value) - done > self._max_line:
                cut = character_end(value, done, self._max_line)
                values.append(value[done : done + cut])
                done += cut
                places.append(offset + done if exact else offset)
                self.splits += 1
                if self._truncate:
                    begin = min(offset + cut, follow[row])
                    framed.dropped.append(Dropped(_TOO_LONG, 1, begin, follow[row]))
                    break
            if not (self._truncate and done):
                values.append(value[done:])
            offsets += places[: len(values) - len(offsets)]
            picked += [row] * (len(values) - len(picked))
        framed.values, framed.offsets = values, offsets
        if framed.times is not None:
            framed.times = [framed.times[row] for row in picked]
        if framed.fields is not None:
            framed.fields = [framed.fields[row] for row in picked]
