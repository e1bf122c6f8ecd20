"""A dead letter as its topic holds it: the record as it was, and what Connect's headers say went wrong. Pure.

Any worker's: the headers are Kafka's (`__connect.errors.*`), ours adds those of a source's record. Where
`errors.deadletterqueue.context.headers.enable` was false there are none, and nobody knows where a record came from.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from klamm_base.errors import KlammError

PREFIX: Final = "__connect.errors."
REPLAYED: Final = "klamm.replayed.from"
"""Header of a record that was sent again: where its dead letter is (`topic-partition@offset`); a list, if it came back."""

Headers = list[tuple[str, bytes | None]]


class CannotReplay(KlammError):
    """A dead letter that cannot be sent where it was meant to go; says why, and what helps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    """`headers` are the record's own; `facts` are Connect's, without their prefix. `timestamp` is epoch ms."""

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
        """From a consumed record."""
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
        """Where the record came from, or was meant to go, in words; None where nobody knows."""
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
        """The topic and partition (-1: let the key choose) that it is sent to again. Raises CannotReplay."""
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
        """The headers that it is sent with: its own, and where it was in the meantime."""
        return [*self.headers, (REPLAYED, str(self).encode())]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which dead letters are meant; what is None does not matter. `error` and `text` are parts, in any case."""

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
