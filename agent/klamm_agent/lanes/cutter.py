"""The cutter: bytes of a file as events. It cuts lines at their ends, splits long ones, and decodes text. Pure."""

from __future__ import annotations

from klamm_agent.config.inputs import Input
from klamm_agent.events import Events
from klamm_agent.framing.encodings import encoding
from klamm_agent.framing.framer import Framed, Framer, Place
from klamm_agent.framing.lines import split

_MARK = "\ufeff".encode()


class Cutter:
    """The cutter of one input's blocks. `places` says that stages need the events' offsets."""

    def __init__(self, config: Input, *, places: bool) -> None:
        self._max_line, self._places = config.max_line_bytes, places
        self.framer = _framer(config)
        """The framer of an input whose events are more than lines of UTF-8; None when blocks are cut at line ends."""
        self._splits = 0

    @property
    def splits(self) -> int:
        """The number of cuts in lines longer than `max_line_bytes` and in events above the limits."""
        return self._splits + (self.framer.splits if self.framer is not None else 0)

    def cut(self, data: bytes, start: int, path: str, at: float) -> Events:
        """Cuts a block of whole lines into events. It begins at byte `start` of `path` and was read at `at`; its last line needs no end."""
        if self.framer is not None:
            place = Place(path=path, start=start, head=b"" if start else data[:4], final=True, quiet=True)
            return self.events(self.framer.frame(data, place), path, at)
        lines, offsets, cuts = split(data, start, self._max_line, places=self._places)
        self._splits += cuts
        if start == 0 and lines and lines[0].startswith(_MARK):
            lines[0] = lines[0].removeprefix(_MARK)
        return Events(lines, path, at, offsets, size=len(data))

    @staticmethod
    def events(framed: Framed, path: str, at: float) -> Events:
        """Returns the events that the framer made of a block of `path`, read at `at`."""
        times = framed.times
        if times is not None and 0.0 in times:
            times = [time or at for time in times]
        return Events(framed.values, path, at, framed.offsets, times, framed.fields)


def _framer(config: Input) -> Framer | None:
    text = encoding(config.encoding)
    truncate = config.long_lines == "truncate"
    if not (text.codec or truncate or config.container != "off" or config.multiline):
        return None
    return Framer(
        max_line=config.max_line_bytes,
        truncate=truncate,
        text=text,
        container="" if config.container == "off" else config.container,
        multiline=config.multiline,
    )
