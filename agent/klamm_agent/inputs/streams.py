"""The inputs that are no files, between their readers and the sender: order, acknowledgements, losses.

Events of a stream are numbered from 0 at each start of the agent; the gap ledger names them by these numbers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, NamedTuple

from klamm_agent.config.inputs import Input
from klamm_agent.config.readers import JournaldSettings, Settings
from klamm_agent.delivery.batches import Receipt
from klamm_agent.events import Reader, Records
from klamm_agent.files.tracked import Gap
from klamm_agent.inputs.opening import open_reader
from klamm_agent.lanes.lane import Lane


class Range(NamedTuple):
    """A range of a stream's events, by number: from `start`, before `end`."""

    path: str
    start: int
    end: int
    name: str = ""
    """The stream, as checkpoints call it."""
    place: Any = None
    """The checkpoint behind these events; None for a stream that cannot be read again."""


Deliver = Callable[[Lane, Records, Range], Sequence[Receipt]]


class _Stream:
    def __init__(self, name: str, lane: Lane, reader: Reader) -> None:
        self.name, self.lane, self.reader = name, lane, reader
        self.sent: deque[tuple[Sequence[Receipt], Hashable, Range]] = deque()
        self.count = 0
        self.kept = False
        """True when another agent has the reader now."""

    @property
    def is_read_again(self) -> bool:
        """True when unacknowledged events come again at the next start."""
        return isinstance(self.lane.config.options, JournaldSettings)

    def take(self, now: float, deliver: Deliver) -> bool:
        found = self.reader.poll(now)
        for events, position in found:
            self.lane.bytes += sum(map(len, events.values))
            end = self.count + len(events.values)
            numbers = Range(events.path, self.count, end, self.name, self.reader.place(position))
            self.count = numbers.end
            self.sent.append((deliver(self.lane, self.lane.run(events), numbers), position, numbers))
        return bool(found)

    def acknowledge(self) -> None:
        """Tells the reader which of its events, without a break from the first, are delivered."""
        last: tuple[Hashable] | None = None
        while self.sent and all(receipt.done for receipt in self.sent[0][0]):
            last = (self.sent.popleft()[1],)
        if last is not None:
            self.reader.acknowledged(last[0])


Kept = list[tuple[Settings, bool, Reader]]
"""Open readers, each with its settings and whether documents are made of its events."""


class Streams:
    """The streams of an agent. `saved` is what `checkpoints` gave when the agent ran last.

    It opens the readers, or takes those that fit out of `kept`. Raises KlammError, and leaves `kept` as it was.
    """

    def __init__(self, lanes: list[Lane], saved: Mapping[str, Any], kept: Kept | None = None) -> None:
        self._streams: list[tuple[str, _Stream]] = []
        self._saved = dict(saved)
        taken: Kept = []
        self._every_input = all(lane.config.options is not None for lane in lanes)
        try:
            for lane in lanes:
                options = lane.config.options
                if options is None:
                    continue
                parse = lane.config.format != "raw"
                reader = _taken(kept or [], options, parse=parse)
                if reader is not None:
                    taken.append((options, parse, reader))
                else:
                    reader = open_reader(options, parse=parse, checkpoint=saved.get(options.name))
                self._streams.append((options.name, _Stream(options.name, lane, reader)))
        except BaseException:
            for _, stream in self._streams:
                stream.kept = any(stream.reader is reader for _, _, reader in taken)
            self.close()
            if kept is not None:
                kept += taken  # an unusable configuration must not lose what they hold
            raise

    @property
    def ended(self) -> bool:
        """True when all inputs are streams that have come to their end, and all their events are delivered."""
        ends = [getattr(s.reader, "ended", False) and not s.sent for _, s in self._streams]
        return self._every_input and bool(ends) and all(ends)

    def take(self, now: float, *, has_room: Callable[[Input], bool], deliver: Deliver) -> tuple[bool, bool]:
        """Takes new events; returns whether there were any, and whether some input waits for room in its topic."""
        busy = full = False
        for _, stream in self._streams:
            if has_room(stream.lane.config):
                busy |= stream.take(now, deliver)
            else:
                full = True
        return busy, full

    def acknowledge(self) -> None:
        for _, stream in self._streams:
            stream.acknowledge()

    def keep(self, inputs: Sequence[Input]) -> Kept:
        """Gives away readers that `inputs` have too, if their senders do not send lost messages again: they stay open meanwhile.

        Readers with certificates are opened anew, as the files may have changed.
        """
        wanted = {(i.options, i.format != "raw") for i in inputs}
        kept: Kept = []
        for _, stream in self._streams:
            options, parse = stream.lane.config.options, stream.lane.config.format != "raw"
            if options is None or (options, parse) not in wanted or stream.is_read_again:
                continue
            if getattr(options, "tls_certificate", None) is None:
                stream.kept = True
                kept.append((options, parse, stream.reader))
        return kept

    def finish(self, now: float, deliver: Deliver) -> None:
        """Stops receiving, and hands over all events that have arrived, except those of readers that were given away."""
        for _, stream in self._streams:
            if stream.kept:
                continue
            stream.reader.finish()
            while stream.take(now, deliver):
                pass

    def checkpoints(self) -> dict[str, Any]:
        """Returns where each stream that can be read again goes on, also of inputs that are not configured now."""
        for name, stream in self._streams:
            if (found := stream.reader.checkpoint()) is not None:
                self._saved[name] = found
        return dict(self._saved)

    def lost(self) -> list[Gap]:
        """Returns what readers know to be lost since the last call."""
        return [
            Gap(
                path=path,
                inode=(0, 0),
                start=d.start,
                end=d.start if d.end is None else d.end,
                reason=d.reason,
                lines=d.lines,
            )
            for _, stream in self._streams
            for path, d in stream.reader.lost()
        ]

    def abandoned(self) -> list[Gap]:
        """Returns, at the end, the events that were read and not delivered, and cannot be read again."""
        reason = "not acknowledged when the agent ended"
        return [
            Gap(
                path=numbers.path,
                inode=(0, 0),
                start=numbers.start,
                end=numbers.end,
                reason=reason,
                lines=numbers.end - numbers.start,
            )
            for _, stream in self._streams
            if not stream.is_read_again
            for receipts, _, numbers in stream.sent
            if not all(receipt.done for receipt in receipts)
        ]

    def status(self) -> list[dict[str, Any]]:
        return [
            {"input": name, "topic": s.lane.config.topic} | s.reader.status() for name, s in self._streams
        ]

    def close(self) -> None:
        for _, stream in self._streams:
            if not stream.kept:
                stream.reader.close()


def _taken(kept: Kept, options: Settings, *, parse: bool) -> Reader | None:
    for i, (settings, parses, reader) in enumerate(kept):
        if (settings, parses) == (options, parse):
            del kept[i]
            return reader
    return None
