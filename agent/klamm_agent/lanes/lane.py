"""A lane: an input's way from bytes to record values, with its counts. Pure.

The agent, `klamm agent test` and the LogTail connector run blocks through the same lanes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from klamm_agent.config.inputs import Input
from klamm_agent.events import Events, Records
from klamm_agent.framing.framer import Framed
from klamm_agent.lanes.cutter import Cutter
from klamm_agent.lanes.stages import Stages


class Lane:
    """The cutter and the stages of one input, for the blocks of all its files."""

    def __init__(self, config: Input, *, host: Mapping[str, Any] | str, agent_id: str) -> None:
        """`host` is the object `host` of documents, as `host.host_fields` gives it, or the host's name."""
        self.config = config
        about = {"name": host} if isinstance(host, str) else host
        self.stages = Stages.for_input(config, host=about, agent_id=agent_id)
        self.cutter = Cutter(config, places=self.stages.needs_offsets)
        self.events = self.bytes = 0
        """Events and bytes read so far."""

    def block(self, data: bytes, start: int, path: str, at: float) -> Records:
        """Makes records of a block of whole lines, which begins at byte `start` of file `path` and was read at `at` (seconds since the epoch)."""
        self.bytes += len(data)
        return self.run(self.cutter.cut(data, start, path, at))

    def framed(self, framed: Framed, size: int, path: str, at: float) -> Records:
        """Makes records of the framer's events of `size` bytes of file `path`."""
        self.bytes += size
        records = self.run(self.cutter.events(framed, path, at))
        records.dropped += framed.dropped
        return records

    def run(self, events: Events) -> Records:
        """Makes records of events that an input gave."""
        self.events += len(events.values)
        return self.stages.run(events)
