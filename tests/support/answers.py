"""The same requests to Klamm's broker and to Apache Kafka, and what differs between the answers.

A case is a list of requests. Both brokers get it over one connection each, at the same versions; the answers are
flattened to `path = value` and compared path by path. What may differ by nature (ports, ids, directories, the words
of an error message) is made equal before; what differs on purpose is named by the test, and a name that explains
nothing fails, so that the list of differences cannot grow stale.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

from support.broker import wait_until
from support.raw import RawClient

from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.messages.api_versions import ApiVersionsRequest
from klamm_kafka.wire.messages.create_topics import CreateTopicsRequest
from klamm_kafka.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
)
from klamm_kafka.wire.messages.describe_transactions import DescribeTransactionsRequest
from klamm_kafka.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from klamm_kafka.wire.struct import Message, Struct

Ask = tuple[Message, int]
Request = Ask | Callable[[list[Any]], Ask]
"""A message and its version; or what makes them of the answers that came before."""
BY_NAME = ("name", "topic", "api_key", "group_id", "key", "partition_index", "user", "mechanism")
"""Fields that tell the elements of a list apart: Kafka keeps no order in most of its lists."""
ANY = ("error_message", "batch_index_error_message", "cluster_id", "log_dir", "total_bytes", "usable_bytes")
"""Fields of which only counts whether there is something in them."""
COUNTS = ("transaction_start_time_ms", "last_timestamp", "coordinator_epoch")
"""Numbers of which only counts whether there is one: -1 says that there is none."""
CHANGES = ("Alter", "IncrementalAlter", "UpdateFeatures")
ENDS = ("EndTxn", "InitProducerId")
MARKED_S = 3.0
NOBODY = bytes(range(16))
"""An id that no topic has."""


@dataclass(frozen=True, slots=True)
class Side:
    """One broker. Topics have ids of its own there: `topic_ids` gives a topic's id by name."""

    name: str
    port: int
    topic_ids: Mapping[str, bytes]

    def ask(self, case: Callable[[Side], Sequence[Request]]) -> dict[str, Any]:
        """Returns the answers to a case, flat. A connection that the broker closes is an answer too."""
        found: dict[str, Any] = {}
        with RawClient(self.port, timeout_s=60) as client:
            answers: list[Any] = []
            producers: dict[int, str] = {}
            for n, asked in enumerate(case(self)):
                message, version = asked(answers) if callable(asked) else asked
                where = f"{n}.{type(message).__name__.removesuffix('Request')}.v{version}"
                try:
                    answer = client.request(message, version)
                except ConnectionError:
                    return found | {where: "connection closed"}
                answers.append(answer)
                if self.name == "Kafka" and changes(message, answer):
                    wait_caught_up(self.port)
                    time.sleep(1)  # its parts hear of it one after the other
                if self.name == "Kafka" and type(message).__name__.startswith(ENDS):
                    self._wait_marked(message.transactional_id)
                if isinstance(message, CreateTopicsRequest) and not message.validate_only:
                    self._wait_led([t.name for t in answer.topics if not t.error_code])
                found |= {path: self._plain(path, value, producers) for path, value in flat(answer, where)}
        return found

    def _wait_led(self, topics: list[str]) -> None:
        """Waits until partition 0 of each has its leader: Kafka answers a creation before its broker leads."""
        listed = [ListOffsetsPartition(partition_index=0, timestamp=-1)]
        request = ListOffsetsRequest(
            replica_id=-1, topics=[ListOffsetsTopic(name=t, partitions=listed) for t in topics]
        )
        with RawClient(self.port, timeout_s=60) as client:
            wait_until(
                lambda: not any(t.partitions[0].error_code for t in client.request(request, 5).topics),
                f"{self.name} leads {topics}",
            )

    def _wait_marked(self, transactional_id: str | None) -> None:
        """Waits until the markers of a transaction are written, which Kafka does after it has answered. Not for ever: those of
        one that was ended by hand before never are.
        """
        request = DescribeTransactionsRequest(transactional_ids=[transactional_id or ""])
        deadline = time.monotonic() + MARKED_S
        with RawClient(self.port, timeout_s=60) as client:
            while client.request(request, 0).transaction_states[0].transaction_state.startswith("Prepare"):
                if time.monotonic() > deadline:
                    return
                time.sleep(0.02)

    def _plain(self, path: str, value: Any, producers: dict[int, str]) -> Any:
        field = path.rpartition(".")[2]
        if field == "producer_id" and value >= 0:
            return producers.setdefault(value, f"producer {len(producers)}")
        match value:
            case _ if field == "port" and value == self.port:
                return "its port"
            case _ if field.endswith("error_code"):
                return ErrorCode(value).name
            case _ if field == "session_id" and value:
                return "a session"
            case _ if field in ANY:
                return "something" if value else None
            case int() if field in COUNTS and value >= 0:
                return "some number"
            case bytes() if value in self.topic_ids.values():
                return next(f"id of {name}" for name, id_ in self.topic_ids.items() if id_ == value)
            case bytes() if field == "topic_id" and any(value) and value != NOBODY:
                return "some id"
        return value


def changes(message: Message, answer: Message) -> bool:
    """True for a request that changes what its broker answers afterwards: not if all of it was refused."""
    codes = [code for path, code in flat(answer, "") if path.endswith("error_code")]
    by_name = type(message).__name__.startswith(CHANGES)
    return by_name and not getattr(message, "validate_only", False) and 0 in codes


def wait_caught_up(port: int) -> None:
    """Waits until a Kafka broker knows what its controller has decided up to now: it answers questions from a copy."""
    log = DescribeQuorumRequestTopicData(
        topic_name="__cluster_metadata", partitions=[DescribeQuorumRequestPartitionData(partition_index=0)]
    )
    with RawClient(port, timeout_s=60) as client:
        (topic,) = client.request(DescribeQuorumRequest(topics=[log]), 0).topics
        end = topic.partitions[0].high_watermark
        asked = ApiVersionsRequest(client_software_name="test", client_software_version="1")
        # the epoch of the features is the offset of the last record that the broker has applied
        wait_until(lambda: client.request(asked, 3).finalized_features_epoch >= end - 1, f"{port} to know it")


def flat(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yields `(path, value)` of every leaf. An empty list is a leaf."""
    match value:
        case Struct():
            for name in fields(value):
                yield from flat(getattr(value, name), f"{path}.{name}")
        case [Struct(), *_]:
            unnamed, seen = count(), Counter[Any]()
            for element in value:
                name = _name(element)
                name = next(unnamed) if name is None else name
                again = f" again {seen[name]}" if seen[name] and hasattr(element, "partition_index") else ""
                seen[name] += 1
                yield from flat(element, f"{path}[{name}{again}]")
        case memoryview() | bytearray():
            yield path, bytes(value)
        case _:
            yield path, value


def fields(value: Struct) -> list[str]:
    return [spec.name for spec in type(value).FIELDS]


def _name(element: Struct) -> Any:
    """Returns what tells it apart in its list; None where that is its place among those without a name."""
    names = fields(element)
    found = ((key, getattr(element, key)) for key in BY_NAME if key in names)
    return next(
        (value for key, value in found if value or key in {"api_key", "group_id", "partition_index", "user"}),
        None,
    )


def differences(ours: Mapping[str, Any], kafkas: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Paths where the two are not equal, with both values ("nothing" where one has no such path).

    That we say why where Kafka says nothing is no difference; the reverse is one.
    """
    paths = [*kafkas, *(path for path in ours if path not in kafkas)]
    pairs = {path: (ours.get(path, "nothing"), kafkas.get(path, "nothing")) for path in paths}
    return {path: (a, b) for path, (a, b) in pairs.items() if a != b and not _says_more(path, a, b)}


def _says_more(path: str, ours: Any, kafkas: Any) -> bool:
    return path.endswith(".error_message") and ours == "something" and kafkas is None


def compare(
    ours: Side,
    kafka: Side,
    case: Callable[[Side], Sequence[Request]],
    intended: Mapping[str, str] | None = None,
) -> None:
    """Fail with every difference that `intended` (pattern of paths to reason) does not name, and the reverse."""
    found = differences(ours.ask(case), kafka.ask(case))
    patterns = {re.compile(pattern): reason for pattern, reason in (intended or {}).items()}
    unnamed = {p: pair for p, pair in found.items() if not any(pattern.search(p) for pattern in patterns)}
    lines = [f"{path}: Klamm {a!r}, Kafka {b!r}" for path, (a, b) in unnamed.items()]
    assert not lines, "\n".join(["answers differ:", *lines])
    stale = [p.pattern for p in patterns if not any(p.search(path) for path in found)]
    assert not stale, f"no longer different: {stale}"
