"""A dead letter as its topic holds it: the original record, and the error that Connect's headers describe. Pure.

Any worker's dead letters have Kafka's headers (`__connect.errors.*`); ours adds headers for a source's record. Where
`errors.deadletterqueue.context.headers.enable` was false there are no headers, and nobody knows a record's origin.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from klamm_base.errors import KlammError

PREFIX: Final = "__connect.errors."
REPLAYED: Final = "klamm.replayed.from"
"""Header of a replayed record: the place of its dead letter (`topic-partition@offset`); a list of places if it came back."""

Headers = list[tuple[str, bytes | None]]


class CannotReplay(KlammError):
    """A dead letter cannot be sent to the topic it was meant for; the sentence says why, and what helps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    """A dead letter.

    `headers` are the record's own; `facts` are Connect's headers, without their prefix. `timestamp` is epoch ms.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int | None
    key: bytes | None
    value: bytes | None
    headers: Headers
    facts: dict[str, str]

    @classmethod
    def of(
        cls,
        place: tuple[str, int, int],
        timestamp: int | None,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[tuple[str, bytes | None]],
    ) -> Letter:
        """Return the dead letter that a consumed record is."""
        own = [(n, v) for n, v in headers if not n.startswith(PREFIX)]
        facts = {
            n.removeprefix(PREFIX): (v or b"").decode("utf-8", "replace")
            for n, v in headers
            if n.startswith(PREFIX)
        }
        topic, partition, offset = place
        return cls(
            topic=topic,
            partition=partition,
            offset=offset,
            timestamp=timestamp,
            key=key,
            value=value,
            headers=own,
            facts=facts,
        )

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}@{self.offset}"

    @property
    def origin(self) -> str | None:
        """The record's origin, or its destination, in words; None where nobody knows."""
        topic = self.facts.get("topic")
        if topic is None:
            return None
        if "source.partition" in self.facts:
            return f"{topic} (from {self.facts['source.partition']}, {self.facts.get('source.offset')})"
        return f"{topic}-{self.facts.get('partition')}@{self.facts.get('offset')}"

    @property
    def task(self) -> str | None:
        connector = self.facts.get("connector.name")
        return None if connector is None else f"{connector}-{self.facts.get('task.id')}"

    @property
    def error(self) -> str | None:
        """The last part of the error's class name, and its message."""
        name = self.facts.get("exception.class.name")
        if name is None:
            return None
        return f"{name.rpartition('.')[2]}: {self.facts.get('exception.message', '')}"

    def destination(self, to: str | None = None) -> tuple[str, int]:
        """Return the topic and partition (-1: let the key choose) for the replay. Raises CannotReplay."""
        if to is not None:
            return to, -1
        topic = self.facts.get("topic")
        if not topic:
            raise CannotReplay(
                f"{self} does not say which topic it came from (its connector has "
                "errors.deadletterqueue.context.headers.enable=false); give --to TOPIC"
            )
        for part in ("key", "value"):
            if self.facts.get(f"{part}.format", "converter") != "converter":
                raise CannotReplay(
                    f"{self} is a source's record whose {part} its converter could not write: what is kept is JSON to "
                    "look at. Mend the connector and have it read the record again, or give --to TOPIC"
                )
        partition = self.facts.get("partition", "")
        return topic, int(partition) if partition.isdigit() else -1

    def again(self) -> Headers:
        """Return the headers for the replay: the record's own, and the place of the dead letter."""
        return [*self.headers, (REPLAYED, str(self).encode())]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A choice of dead letters; a field of None allows everything. `error` and `text` are parts of texts, in any case."""

    connector: str | None = None
    topic: str | None = None
    stage: str | None = None
    error: str | None = None

    @property
    def all(self) -> bool:
        return self == Wanted()

    def __call__(self, letter: Letter) -> bool:
        facts = letter.facts
        return (
            self.connector in (None, facts.get("connector.name"))
            and self.topic in (None, facts.get("topic"))
            and (self.stage is None or self.stage.upper() == facts.get("stage"))
            and (self.error is None or self.error.lower() in (letter.error or "").lower())
        )
