"""The gap ledger's entries: where a copy lacks records of its source, or may lack them, and why. Pure.

The ledger is a compacted topic at the target, `mm2-gaps.<source>.internal`, with JSON keys and values. Two kinds of
records are in it:

* a gap. Key: topic, topic_id, partition, from (the source offset at which it begins). Value: kind, to (exclusive; null:
  not known), when (ms), why, state. The topic's id is part of the key, because an offset means nothing without it.
* a topic that the flow mirrors. Key: topic. Value: topic_id, partitions, remote (its name at the target). So a start
  knows of topics that were deleted while no mirror ran. Named is its name by `topic.map`.

The latest record of a key counts.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final

from klamm_mirror import topic_ids
from klamm_mirror.stops import ANEW, WHY_MAX, Action, Kind, Stop
from klamm_mirror.topics.fields import MalformedRecord

GapKey = tuple[str, bytes | None, int, int]
"""Topic, topic id, partition, first offset."""


class State(StrEnum):
    """The states of a gap."""

    OPEN = "open"
    """The partition is stopped there."""
    RESOLVING = "resolving"
    """Somebody said how to go on (`action`); the task has not done it yet."""
    RECORDED = "recorded"
    """The mirror went on by its policy."""
    RESOLVED = "resolved"
    """The mirror went on as somebody said, or the records were copied after all."""


WAITING: Final = frozenset({State.OPEN, State.RESOLVING})


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """One gap. `new_id` is the id of the topic that took the name; `asked_ms` the time of somebody's `action`; `copy_end` the
    offset in the copy at which the topic was appended.
    """

    topic: str
    topic_id: bytes | None
    partition: int
    start: int
    end: int | None
    kind: Kind
    when_ms: int
    why: str
    state: State = State.OPEN
    action: Action | None = None
    new_id: bytes | None = None
    asked_ms: int | None = None
    done_ms: int | None = None
    copy_end: int | None = None

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"

    @property
    def key(self) -> GapKey:
        return self.topic, self.topic_id, self.partition, self.start

    @property
    def records(self) -> int:
        """The number of offsets in it, as far as known."""
        return 0 if self.end is None else max(self.end - self.start, 0)

    @property
    def left_out(self) -> int:
        """The number of offsets that are not copied, and will not be."""
        return 0 if self.waits or self.action is Action.RETRY else self.records

    @property
    def waits(self) -> bool:
        return self.state in WAITING

    @classmethod
    def of(cls, stop: Stop, topic: str, topic_id: bytes | None, partition: int) -> Gap:
        """Returns the open gap of a stopped partition."""
        return cls(
            topic=topic, topic_id=topic_id, partition=partition, start=stop.start, end=stop.end, kind=stop.kind,
            when_ms=stop.since_ms, why=stop.said, new_id=stop.new_id,
        )  # fmt: skip

    def asked(self, action: Action, now_ms: int) -> Gap:
        """Returns the gap with somebody's decision."""
        return replace(self, state=State.RESOLVING, action=action, asked_ms=now_ms)

    def as_json(self) -> dict[str, Any]:
        """Returns the gap as a task's status shows it."""
        return {
            "topic": self.topic, "partition": self.partition, "from": self.start, "to": self.end,
            "kind": str(self.kind), "state": str(self.state), "when": self.when_ms, "why": self.why[:WHY_MAX],
            "action": None if self.action is None else str(self.action),
        }  # fmt: skip

    def encode(self) -> tuple[bytes, bytes]:
        """Returns key and value of the ledger's record."""
        key = {
            "topic": self.topic, "topic_id": _text(self.topic_id), "partition": self.partition, "from": self.start,
        }  # fmt: skip
        value = {
            "kind": str(self.kind), "to": self.end, "when": self.when_ms, "why": self.why, "state": str(self.state),
            "action": None if self.action is None else str(self.action), "new_topic_id": _text(self.new_id),
            "asked": self.asked_ms, "done": self.done_ms, "copy_end": self.copy_end,
        }  # fmt: skip
        return _json(key), _json(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """A topic that the flow mirrors. `remote`: its name at the target, where it is not the replication policy's. `named`: its
    name by `topic.map`, where a rule is about it. `made`: the id of the remote topic, if the mirror made it. `cluster`: the id of
    the cluster that has the topic.
    """

    topic: str
    topic_id: bytes
    partitions: int
    remote: str | None = None
    named: str | None = None
    made: bytes | None = None
    cluster: str | None = None

    def encode(self) -> tuple[bytes, bytes]:
        """Returns key and value of the ledger's record."""
        value = {
            "topic_id": _text(self.topic_id), "partitions": self.partitions, "remote": self.remote, "named": self.named,
            "made": _text(self.made), "cluster": self.cluster,
        }  # fmt: skip
        return _json({"topic": self.topic}), _json(value)


def decode(key: bytes | None, value: bytes | None) -> Gap | Known:
    """Returns a record of the ledger. Raises MalformedRecord."""
    try:
        name, found = json.loads(key or b""), json.loads(value or b"")
        if "partition" not in name:
            return Known(
                topic=name["topic"], topic_id=topic_ids.from_text(found["topic_id"]),
                partitions=int(found["partitions"]), remote=found.get("remote"),
                named=found.get("named"), made=_id(found.get("made")), cluster=found.get("cluster"),
            )  # fmt: skip
        action = found.get("action")
        return Gap(
            topic=name["topic"], topic_id=_id(name.get("topic_id")), partition=int(name["partition"]),
            start=int(name["from"]), end=found.get("to"), kind=Kind(found["kind"]), when_ms=int(found["when"]),
            why=str(found["why"]), state=State(found["state"]), action=None if action is None else Action(action),
            new_id=_id(found.get("new_topic_id")), asked_ms=found.get("asked"), done_ms=found.get("done"),
            copy_end=found.get("copy_end"),
        )  # fmt: skip
    except (ValueError, KeyError, TypeError) as e:
        raise MalformedRecord(f"no entry of a gap ledger: {type(e).__name__}: {e}") from None


@dataclass(slots=True)
class GapTable:
    """The latest entries of a ledger."""

    gaps: dict[GapKey, Gap] = field(default_factory=dict)
    topics: dict[str, Known] = field(default_factory=dict)

    def apply(self, entry: Gap | Known) -> None:
        """Takes an entry that came after all others of its key."""
        if isinstance(entry, Gap):
            self.gaps[entry.key] = entry
        else:
            self.topics[entry.topic] = entry

    def of(self, partitions: Iterable[tuple[str, int]]) -> list[Gap]:
        """Returns the gaps of these partitions, the latest first."""
        wanted = set(partitions)
        found = [g for g in self.gaps.values() if (g.topic, g.partition) in wanted]
        return sorted(found, key=lambda g: -g.when_ms)

    def waiting(self, topic: str | None = None) -> list[Gap]:
        """Returns the gaps at which partitions are stopped, in order."""
        found = [g for g in self.gaps.values() if g.waits and topic in {None, g.topic}]
        return sorted(found, key=lambda g: (g.topic, g.partition, g.start))

    def unmapped(self) -> frozenset[tuple[str, int]]:
        """Returns the partitions that are to be copied from another log, or to another copy, and whose offsets are not
        mapped anew yet.
        """
        return frozenset(
            (g.topic, g.partition) for g in self.gaps.values() if g.kind in ANEW and g.done_ms is None
        )

    def appended_at(self, topic: str, partition: int) -> int:
        """Returns the copy's offset at which the present topic was appended, if the latest new beginning was that; else 0."""
        begun = [g for g in self.of([(topic, partition)]) if g.kind in ANEW and g.done_ms is not None]
        latest = max(begun, key=lambda g: g.done_ms or 0, default=None)
        return 0 if latest is None or latest.action is not Action.APPEND else latest.copy_end or 0

    def mapped_since(self) -> dict[tuple[str, int], float]:
        """Returns the times (ms) before which an offset in these partitions may belong to another log; infinite: now, too."""
        found: dict[tuple[str, int], float] = dict.fromkeys(self.unmapped(), math.inf)
        for gap in self.gaps.values():
            if gap.kind in ANEW or gap.kind is Kind.DELETED:
                place = gap.topic, gap.partition
                found[place] = max(found.get(place, 0), gap.done_ms or gap.when_ms)
        return found

    def remotes(self) -> dict[str, str]:
        """Returns the names at the target of topics that have not the one of the replication policy."""
        return {name: known.remote for name, known in self.topics.items() if known.remote is not None}

    def made(self) -> dict[str, bytes]:
        """Returns the ids of remote topics that the flow made, by source topic."""
        return {name: known.made for name, known in self.topics.items() if known.made is not None}

    def news(
        self,
        counts: Mapping[str, int],
        ids: Mapping[str, bytes],
        named: Callable[[str], str | None] = lambda _: None,
        made: Mapping[str, bytes] = MappingProxyType({}),
        cluster: str | None = None,
    ) -> list[Known]:
        """Returns the entries to write for topics at the source, by numbers of partitions and ids. `named` returns a topic's
        name by `topic.map`; `made` are the ids of remote topics that were just made; `cluster` is the source's id.

        A topic whose id has changed keeps its entry, but for `made`: its task decides what follows.
        """
        found = []
        for topic, count in counts.items():
            known, topic_id = self.topics.get(topic), ids.get(topic)
            if topic_id is not None and known is None:
                new = Known(
                    topic=topic, topic_id=topic_id, partitions=count, named=named(topic), cluster=cluster
                )
                found.append(replace(new, made=made.get(topic)))
            elif known is not None:
                now = replace(known, made=made.get(topic, known.made))
                if known.topic_id == topic_id:
                    now = replace(
                        now, partitions=max(count, known.partitions), named=named(topic), cluster=cluster
                    )
                if now != known:
                    found.append(now)
        return found

    def ended(self, there: Container[str], wants: Callable[[str], bool]) -> list[str]:
        """Returns wanted topics that the source has no longer and whose end is in the ledger, partition by partition."""
        open_ = self.gone(there, wants)
        return [
            topic
            for topic in sorted(self.topics)
            if topic not in there and topic not in open_ and wants(topic)
        ]

    def gone(self, there: Container[str], wants: Callable[[str], bool]) -> dict[str, int]:
        """Returns the numbers of partitions of wanted topics that the source has no longer, until the ledger has the end
        of each of their partitions, and nobody needs to decide.
        """
        ended = {
            (g.topic, g.topic_id, g.partition)
            for g in self.gaps.values() if g.kind is Kind.DELETED and not g.waits
        }  # fmt: skip
        return {
            topic: known.partitions for topic, known in self.topics.items()
            if topic not in there and wants(topic)
            and any((topic, known.topic_id, p) not in ended for p in range(known.partitions))
        }  # fmt: skip


def _text(topic_id: bytes | None) -> str | None:
    return None if topic_id is None else topic_ids.to_text(topic_id)


def _id(text: str | None) -> bytes | None:
    return None if text is None else topic_ids.from_text(text)


def _json(value: dict[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
