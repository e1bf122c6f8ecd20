"""The stages of an input: they turn events into record values as the configuration asks, in order, a block at a time. Pure.

    lines (include, exclude) → mask → parse … → ecs names → timestamp → level → rename, remove → mask fields → documents

An input that asks for nothing (`format = "raw"`) costs nothing here; for an input that asks for documents alone a template wraps the
lines. An event that does not parse stays as text with `error.message` and a tag, is dropped and counted, or goes to the dead letter
topic: it never vanishes in silence.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from klamm_agent.config.inputs import Input
from klamm_agent.config.stages import ParseStep, StageConfig, Timestamp
from klamm_agent.events import Events, Records
from klamm_agent.stages.document import Documents
from klamm_agent.stages.ecs import EcsNames
from klamm_agent.stages.envelope import Envelope
from klamm_agent.stages.filters import LineFilter
from klamm_agent.stages.mask import FieldMask, TextMask
from klamm_agent.stages.parse.fields import Document, converter, get, merge, nested, pop, put
from klamm_agent.stages.shared_fields import SharedFields
from klamm_agent.stages.staged import StagedEvents
from klamm_agent.stages.timestamps import Times

_BARE: Final = frozenset({"json", "logfmt"})  # all of their text is in the fields


class Stage(Protocol):
    """A step on a block's events."""

    @property
    def name(self) -> str: ...

    def run(self, staged: StagedEvents) -> None:
        """Changes the columns of `staged`."""


@dataclass(slots=True)
class Counts:
    """Counts of one input's stages since the agent began."""

    parse_failures: int = 0
    dead_letters: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    """Events that were left out, by rule."""


class Parse:
    """The stage `parse`: parses one field by one format."""

    def __init__(self, step: ParseStep, counts: Counts) -> None:
        self._step, self._counts = step, counts
        self.name = f"parse {step.kind}"
        self._tag = f"_{step.kind}parsefailure"
        self._bare = step.kind in _BARE and not step.target and step.field == "message"
        self._types = [(name, convert) for name, kind in step.types if (convert := converter(kind))]

    def run(self, staged: StagedEvents) -> None:
        """Puts each event's fields into its document, or the reason why there are none."""
        texts = self._texts(staged)
        known = [i for i, text in enumerate(texts) if text is not None]
        parsed = self._step.parser.parse([text for text in texts if text is not None])
        wanted = [True] * len(texts)
        for i, found in zip(known, parsed, strict=True):
            if isinstance(found, str):
                self._failed(staged.docs[i], found)
                wanted[i] = False
            else:
                self._take(staged, i, found)
        if not all(wanted):
            self._after_failures(staged, wanted)

    def _texts(self, staged: StagedEvents) -> list[str | None]:
        name = self._step.field
        if name != "message":
            found = [get(doc, name) for doc in staged.docs]
        elif not any(staged.bare) and not any("message" in doc for doc in staged.docs):
            return list(staged.texts)
        else:
            found = [
                doc.get("message", None if bare else text)
                for doc, text, bare in zip(staged.docs, staged.texts, staged.bare, strict=True)
            ]
        return [text if isinstance(text, str) else None for text in found]

    def _take(self, staged: StagedEvents, i: int, found: Document) -> None:
        for name, convert in self._types:
            value = get(found, name)
            if value is not None:
                put(found, name, convert(value))
        if "log" in found and type(found["log"]) is not dict and not self._step.target:
            merge(
                found, {"labels": {"log": found.pop("log")}}
            )  # in ECS `log` is an object, which names the file
        if self._step.target:
            merge(staged.docs[i], nested(self._step.target, found))
        elif staged.docs[i]:
            merge(staged.docs[i], found)
        else:
            staged.docs[i] = found
        if self._bare:
            staged.bare[i] = True

    def _failed(self, doc: Document, why: str) -> None:
        self._counts.parse_failures += 1
        put(doc, "error.message", why if self._step.field == "message" else f"{self._step.field}: {why}")
        put(doc, "error.type", self._step.kind)
        add_tag(doc, self._tag)

    def _after_failures(self, staged: StagedEvents, wanted: list[bool]) -> None:
        match self._step.on_error:
            case "drop":
                staged.keep(wanted, "parse_error")
            case "dead_letter":
                self._counts.dead_letters += len(wanted) - sum(wanted)
                staged.bury(wanted)


class EventTime:
    """The stage `timestamp`: moves the configured field to `@timestamp`. A time that cannot be read stays where it is, with a tag."""

    name = "timestamp"

    def __init__(self, config: Timestamp) -> None:
        self._field, self._times = config.field, config.times

    def run(self, staged: StagedEvents) -> None:
        """Takes the time out of each document."""
        for i, doc in enumerate(staged.docs):
            value = get(doc, self._field)
            if value is None:
                continue
            found = self._times.parse(value, staged.at)
            if found is None:
                add_tag(doc, "_dateparsefailure")
            else:
                staged.seconds[i] = found
                pop(doc, self._field)


class Names:
    """The stage `names`: `level`, `rename` and `remove`."""

    name = "names"

    def __init__(self, level: str, rename: tuple[tuple[str, str], ...], remove: tuple[str, ...]) -> None:
        self._rename = (*(((level, "log.level"),) if level and level != "log.level" else ()), *rename)
        self._remove = remove

    def run(self, staged: StagedEvents) -> None:
        """Moves and removes fields of all documents."""
        for doc in staged.docs:
            for name, to in self._rename:
                value = pop(doc, name)
                if value is not None:
                    put(doc, to, value)
            for name in self._remove:
                pop(doc, name)


class Stages:
    """The stages of one input, in their order."""

    def __init__(
        self,
        config: StageConfig,
        *,
        documents: Documents | None,
        envelope: Envelope | None,
    ) -> None:
        self.counts = Counts()
        self._documents, self._envelope = documents, envelope
        self._shared = SharedFields(documents) if documents is not None and envelope is not None else None
        self._lines: list[Stage] = []
        """Stages on texts; the stages behind them need documents."""
        self._fields: list[Stage] = []
        if config.include_lines or config.exclude_lines:
            self._lines.append(LineFilter(config.include_lines, config.exclude_lines))
        if texts := [m for m in config.masks if not m.fields]:
            self._lines.append(TextMask(texts))
        if documents is not None:
            self._fields = _on_documents(config, self.counts)
        self._plain = not self._lines and not self._fields
        self._errors = "replace" if documents is not None else "surrogateescape"

    @classmethod
    def for_input(cls, config: Input, *, host: Mapping[str, Any], agent_id: str) -> Stages:
        """Makes the stages of an input; documents name `host` and `agent_id` as their origin."""
        asked = config.stages
        if config.format != "json":
            return cls(asked, documents=None, envelope=None)
        base: Document = {}
        for part in ({"host": dict(host), "agent": {"type": "klamm", "id": agent_id}}, config.fields):
            merge(base, part)
        envelope = None if asked.original else Envelope(base)
        return cls(asked, documents=Documents(base, original=asked.original), envelope=envelope)

    @property
    def names(self) -> list[str]:
        """The names of the stages, in their order."""
        return [stage.name for stage in (*self._lines, *self._fields)]

    @property
    def needs_offsets(self) -> bool:
        """True when stages need to know where events begin."""
        return self._documents is not None or bool(self._lines)

    def run(self, events: Events) -> Records:
        """Makes the records of a block's events."""
        if self._plain:
            values = events.values
            if (
                self._envelope is not None
                and events.times is None
                and events.fields is None
                and events.offsets
            ):
                values = self._envelope.wrap(values, events.offsets, events.path, events.at)
            elif (
                self._shared is not None and events.fields is not None and events.times and not events.offsets
            ):
                values = self._shared.wrap(events)
            elif self._documents is not None:
                return self._finish(self.begin(events))
            known = values is events.values and events.size
            return Records(values, events.size if known else sum(map(len, values)))
        staged = self.begin(events)
        for _ in self._each(staged):
            pass
        return self._finish(staged)

    def trace(self, events: Events) -> Iterator[tuple[str, StagedEvents]]:
        """Runs the stages and yields the block's state after each; `records` takes the last state."""
        staged = self.begin(events)
        yield from ((stage.name, staged) for stage in self._each(staged))

    def records(self, staged: StagedEvents) -> Records:
        """Returns the records of a block whose stages have run."""
        return self._finish(staged)

    def begin(self, events: Events) -> StagedEvents:
        """Returns a block's state before its first stage."""
        return StagedEvents(events, errors=self._errors)

    def _each(self, staged: StagedEvents) -> Iterator[Stage]:
        for stage in self._lines:
            stage.run(staged)
            yield stage
            if not staged.values:
                return
        if self._fields:
            staged.begin_documents()
        for stage in self._fields:
            if staged.values:
                stage.run(staged)
            if staged.dead is not None and not isinstance(stage, Parse):
                stage.run(staged.dead)  # dead letters have the same names, and hide the same fields
            yield stage
            if not staged.values and staged.dead is None:
                return

    def _finish(self, staged: StagedEvents) -> Records:
        for dropped in staged.dropped:
            self.counts.dropped[dropped.reason] += dropped.lines
        documents, dead = self._documents, []
        values = staged.values
        if documents is not None and values:
            values = self._written(documents, staged)
        if documents is not None and staged.dead is not None:
            dead = documents.build(staged.dead)
        return Records(values, sum(map(len, values)), dead, staged.dropped)

    def _written(self, documents: Documents, staged: StagedEvents) -> list[bytes]:
        if (
            not self._fields
            and self._envelope is not None
            and not staged.times
            and not staged.fields
            and staged.offsets
        ):
            return self._envelope.wrap(staged.values, staged.offsets, staged.path, staged.at)
        if not staged.docs:
            staged.begin_documents()
        return documents.build(staged)


def _on_documents(config: StageConfig, counts: Counts) -> list[Stage]:
    stages: list[Stage] = [Parse(step, counts) for step in config.parse]
    if config.parse and config.ecs:
        stages.append(EcsNames(None if config.timestamp else Times()))
    if config.timestamp is not None:
        stages.append(EventTime(config.timestamp))
    if config.level or config.rename or config.remove:
        stages.append(Names(config.level, config.rename, config.remove))
    if fields := [m for m in config.masks if m.fields]:
        stages.append(FieldMask(fields))
    return stages


def add_tag(doc: Document, tag: str) -> None:
    """Adds a tag to an event."""
    tags = doc.get("tags")
    doc["tags"] = [*tags, tag] if isinstance(tags, list) else [tag] if tags is None else [tags, tag]
