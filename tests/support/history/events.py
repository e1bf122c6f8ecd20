"""The operations of clients, the final contents of logs, and what a check finds: plain data.

Times are ticks of one counter for the whole history: an operation that completed at a smaller tick than another
was invoked at happened before it. Values of writes are unique in a history; that is how records are recognised. A
topic that is deleted and made anew is two topics with two names here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

Place = tuple[str, int]
"""Topic and partition."""


class Outcome(Enum):
    """The answer that the client got. UNKNOWN: it may have happened or not (an error after sending, a time-out)."""

    OK = "ok"
    FAILED = "failed"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """One record that a producer was given. `number` is its place in the order of the session.

    `session` names a producer with one sequence of records; `idempotent` ones promise no duplicate and their order.
    `offset` is what the acknowledgement said, -1 where it did not. `transaction` names the one that it is part of.
    """

    session: str
    number: int
    topic: str
    partition: int
    value: bytes | None
    outcome: Outcome
    offset: int = -1
    key: bytes | None = None
    idempotent: bool = True
    transaction: str | None = None

    @property
    def place(self) -> Place:
        return self.topic, self.partition


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """A transaction, by a unique name. OK: committed; FAILED: aborted. `offsets`: (group, topic, partition) → offset."""

    name: str
    outcome: Outcome
    invoked: int
    completed: int
    offsets: Mapping[tuple[str, str, int], int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """An offset commit outside transactions. Committers of a group only ever move forward."""

    group: str
    topic: str
    partition: int
    offset: int
    outcome: Outcome
    invoked: int
    completed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedRead:
    """An offset that a group has committed, as the broker says; -1: nothing."""

    group: str
    topic: str
    partition: int
    offset: int
    invoked: int
    completed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """A reader without a group went from `start` to `end` and saw these (offset, value), in this order."""

    reader: str
    committed: bool
    topic: str
    partition: int
    start: int
    end: int
    records: tuple[tuple[int, bytes | None], ...]

    @property
    def place(self) -> Place:
        return self.topic, self.partition


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """A record that a member of a group (read_uncommitted, at least once) was given."""

    group: str
    topic: str
    partition: int
    offset: int
    value: bytes | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicChange:
    """The creation or the deletion of a topic."""

    topic: str
    partitions: int
    created: bool
    outcome: Outcome


class LogRecord(NamedTuple):
    """A record in a log. `control` is `commit` or `abort` for a marker, else empty."""

    offset: int
    value: bytes | None
    key: bytes | None = None
    producer_id: int = -1
    producer_epoch: int = -1
    sequence: int = -1
    transactional: bool = False
    control: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """The content of a partition in the end, with aborted records and markers. `stable`: the last stable offset."""

    topic: str
    partition: int
    start: int
    end: int
    stable: int
    records: tuple[LogRecord, ...]
    compacted: bool = False

    @property
    def place(self) -> Place:
        return self.topic, self.partition


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """A consume-transform-produce job: `origin` of a value in `sink` is the value in `source` that it was made of."""

    group: str
    source: str
    sink: str
    origin: Callable[[bytes], bytes]


@dataclass(slots=True, kw_only=True)
class History:
    """All of it. `topics`: name and number of partitions of every topic in the end (None: was not asked)."""

    writes: list[Write] = field(default_factory=list)
    transactions: list[Transaction] = field(default_factory=list)
    commits: list[Commit] = field(default_factory=list)
    committed_reads: list[CommittedRead] = field(default_factory=list)
    scans: list[Scan] = field(default_factory=list)
    deliveries: list[Delivery] = field(default_factory=list)
    topic_changes: list[TopicChange] = field(default_factory=list)
    flows: list[Flow] = field(default_factory=list)
    logs: dict[Place, Log] = field(default_factory=dict)
    topics: Mapping[str, int] | None = None


@dataclass(frozen=True, slots=True)
class Violation:
    """A broken guarantee: the rule's name and a sentence with names, offsets and values."""

    rule: str
    what: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.what}"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The findings, and how much was looked at, by rule."""

    violations: tuple[Violation, ...]
    examined: Mapping[str, int]

    def __str__(self) -> str:
        if not self.violations:
            return f"no violation ({sum(self.examined.values())} checks)"
        shown = "\n".join(f"  {violation}" for violation in self.violations[:20])
        return f"{len(self.violations)} violations, the first ones:\n{shown}"
