"""`klamm agent test`: shows what a configuration does with the lines of a file, stage by stage. It sends nothing and keeps no state."""

from __future__ import annotations

import copy
import gzip
import json
import os
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Final

from klamm_agent.config.agent import AgentConfig
from klamm_agent.config.readers import SyslogSettings
from klamm_agent.events import Events
from klamm_agent.figures import labels
from klamm_agent.files.scan import Scanner, matcher
from klamm_agent.host import host_fields
from klamm_agent.lanes.cutter import Cutter
from klamm_agent.lanes.lane import Lane
from klamm_agent.stages.staged import StagedEvents
from klamm_agent.stages.timestamps import stamp
from klamm_agent.syslog.messages import Parser
from klamm_base.errors import KlammError

_READ_MAX: Final = 16 * 1024 * 1024  # bytes of a file that are looked at


class TrialError(KlammError):
    """No input takes the file, or the file cannot be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """The result of trying one event. `outcome` is `record`, `dead_letter` or `dropped` (with the rule as `reason`)."""

    number: int
    offset: int | None
    lines: int
    text: str
    stages: list[tuple[str, Any]] = field(default_factory=list)
    """Each stage with its result: the text, or the document; None when the stage left the event out."""
    outcome: str
    topic: str = ""
    value: str = ""
    reason: str = ""

    def row(self) -> dict[str, Any]:
        """Returns the result as the JSON output shows it."""
        value: Any = self.value
        if self.value.startswith("{"):
            try:
                value = json.loads(self.value)
            except ValueError:
                value = self.value  # a raw line that only begins as JSON does
        return {
            "event": self.number,
            "offset": self.offset,
            "lines": self.lines,
            "text": self.text,
            "stages": [{"stage": name, "result": result} for name, result in self.stages],
            "outcome": self.outcome,
            **({"topic": self.topic, "value": value} if self.topic else {"reason": self.reason}),
        }


class Trial:
    """A trial of one file with one input of a configuration. Raises TrialError when no input takes the file."""

    def __init__(self, config: AgentConfig, path: Path | None, wanted: str | None = None) -> None:
        """`wanted` is an input's id or number. Without a `path` the text comes from elsewhere, and `wanted` says which input to try."""
        names = labels(config.inputs)
        at = _chosen(names, wanted) if wanted is not None else _taking(config, names, path)
        self.name, self.input = names[at], config.inputs[at]
        if self.input.type == "journald":
            raise TrialError(f"input {self.name} reads the journal: there is no file to try it with")
        host = host_fields(full=config.host_metadata)
        self._lane = Lane(self.input, host=host, agent_id=config.agent_id)
        self._cutter = Cutter(self.input, places=True)
        self._path = str(path.absolute()) if path is not None else (*self.input.paths, self.input.type)[0]

    def run(self, data: bytes, limit: int) -> Iterator[Tried]:
        """Tries the first `limit` events of a file that begins with `data`."""
        now = time.time()
        events = self._events(data, now)
        for i, value in enumerate(events.values[:limit]):
            one = Events(
                [value],
                events.path,
                now,
                events.offsets[i : i + 1],
                events.times[i : i + 1] if events.times is not None else None,
                events.fields[i : i + 1] if events.fields is not None else None,
            )
            yield self._try(one, i + 1)

    def _events(self, data: bytes, now: float) -> Events:
        """Cuts `data` into events. For an input that is no file each line is a received message."""
        if self.input.type == "file":
            return self._cutter.cut(data, 0, self._path, now)
        lines = [line.removesuffix(b"\r") for line in data.removesuffix(b"\n").split(b"\n")]
        events = Events(lines, self.input.type, now)
        if isinstance(self.input.options, SyslogSettings) and self.input.format != "raw":
            parser = Parser(self.input.options.zone)
            events.values, events.times, events.fields = parser.parse(lines, [""] * len(lines), now)
        return events

    def _try(self, one: Events, number: int) -> Tried:
        text = one.values[0].decode(errors="replace")
        stages: list[tuple[str, Any]] = []
        lane, staged = self._lane.stages, None
        for name, state in lane.trace(one):
            staged = state
            stages.append((name, _left(state)))
        records = lane.records(staged if staged is not None else lane.begin(one))
        made: dict[str, Any] = {
            "outcome": "dropped",
            "reason": records.dropped[0].reason if records.dropped else "",
        }
        if records.values:
            made = {"outcome": "record", "topic": self.input.topic, "value": _shown(records.values[0])}
        elif records.dead:
            topic = self.input.stages.dead_letter_topic
            made = {"outcome": "dead_letter", "topic": topic, "value": _shown(records.dead[0])}
        offset = one.offsets[0] if one.offsets else None
        return Tried(
            number=number, offset=offset, lines=text.count("\n") + 1, text=text, stages=stages, **made
        )


def read_head(path: Path) -> bytes:
    """Returns whole lines of a file's first megabytes, unpacked when its name ends in `.gz`. Raises TrialError."""
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
            return head_of(file)  # type: ignore[arg-type]
    except (OSError, EOFError) as e:
        why = e.strerror if isinstance(e, OSError) and e.strerror else e
        raise TrialError(f"{path} cannot be read: {why}") from None


def head_of(file: BinaryIO) -> bytes:
    """Returns whole lines of the first megabytes of an open file."""
    data = file.read(_READ_MAX)
    if len(data) == _READ_MAX:
        data = data[: data.rfind(b"\n") + 1]
    return data


def _left(staged: StagedEvents) -> Any:
    if not staged.values:
        return None
    if not staged.docs:
        return staged.texts[0]
    seconds = staged.seconds[0]
    return ({} if seconds is None else {"@timestamp": stamp(seconds)}) | copy.deepcopy(staged.docs[0])


def _shown(value: bytes) -> str:
    return value.decode(errors="replace")


def _chosen(names: Sequence[str], wanted: str) -> int:
    if wanted in names:
        return names.index(wanted)
    if wanted.isdigit() and int(wanted) < len(names):
        return int(wanted)
    raise TrialError(f"no input {wanted!r}; there are {', '.join(f'{i}: {n}' for i, n in enumerate(names))}")


def _taking(config: AgentConfig, names: Sequence[str], path: Path | None) -> int:
    """Returns the first input that takes a file, by the scanner's rules."""
    if path is None:
        if len(config.inputs) == 1:
            return 0
        raise TrialError(
            f"which input? --input with one of {', '.join(f'{i}: {n}' for i, n in enumerate(names))}"
        )
    found = str(path.absolute())
    excluded = []
    for i, one in enumerate(config.inputs):
        if matcher(one.paths)(found):
            if not matcher(one.exclude)(found):
                return i
            excluded.append(names[i])
    why = f"excluded by {', '.join(excluded)}" if excluded else "no input's paths name it"
    raise TrialError(f"{found} is not read: {why}; --input tries it all the same")


def found_now(config: AgentConfig) -> tuple[list[dict[str, Any]], list[str]]:
    """Returns, for `klamm agent check`, each input with the files that it finds now, and remarks for the reader."""
    remarks: list[str] = []
    names = labels(config.inputs)
    scanner = Scanner(config.inputs, lambda path, e: remarks.append(f"{path} cannot be read: {e.strerror}"))
    observed = list(scanner.scan())
    files = Counter(found.source for found in observed)
    remarks += [
        f"{found.path} cannot be read by this user"
        for found in observed
        if not os.access(found.path, os.R_OK)
    ]
    rows = []
    for i, (name, one) in enumerate(zip(names, config.inputs, strict=True)):
        lane = Lane(one, host="", agent_id=config.agent_id)
        rows.append({
            "input": name,
            "type": one.type,
            "topic": one.topic,
            "format": one.format,
            "stages": lane.stages.names,
            "files": files[i] if one.type == "file" else None,
        })  # fmt: skip
        if one.type == "file" and not files[i]:
            remarks.append(f"input {name} finds no file now")
    return rows, remarks
