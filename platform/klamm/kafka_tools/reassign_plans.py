"""Plans of `kafka-reassign-partitions`: their JSON, which replicas move, and where replicas could stand. No I/O."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from klamm.admin.model import TopicPartition
from klamm.admin.replicas import Reassignment
from klamm_base.errors import KlammError

ANY: Final = "any"
Replica = tuple[TopicPartition, int]
"""A partition's replica on a broker."""
Assignment = Mapping[TopicPartition, Sequence[int]]


class Terse(KlammError):
    """A failure that Kafka's tool prints as it is; others stand behind `Error: `."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Partitions in the order of a file with their replicas, and the directories that were asked for."""

    rows: tuple[tuple[TopicPartition, tuple[int, ...]], ...]
    dirs: Mapping[Replica, str]

    @property
    def targets(self) -> dict[TopicPartition, tuple[int, ...]]:
        return dict(self.rows)


def parse_plan(text: str) -> Plan:
    """Return the plan of a JSON text. Raises KlammError in Kafka's words where it has words."""
    rows: list[tuple[TopicPartition, tuple[int, ...]]] = []
    dirs: dict[Replica, str] = {}
    for row in _list_of(_document(text), "partitions"):
        fields = row if isinstance(row, dict) else {}
        topic, partition, replicas = (fields.get(k) for k in ("topic", "partition", "replicas"))
        numbers = isinstance(replicas, list) and all(type(r) is int for r in replicas)
        if not (isinstance(topic, str) and type(partition) is int and isinstance(replicas, list) and numbers):
            raise KlammError(
                f"{json.dumps(row)[:120]} must have a topic (text), a partition (number) and replicas (broker ids)"
            )
        tp = TopicPartition(topic, partition)
        places = fields.get("log_dirs") or [ANY] * len(replicas)
        if not isinstance(places, list) or len(places) != len(replicas):
            raise KlammError(
                f"Size of replicas list {replicas} is different from size of log dirs list"
                f" {_java_list(places)} for partition {tp}"
            )
        rows.append((tp, tuple(replicas)))
        dirs |= {(tp, r): str(place) for r, place in zip(replicas, places, strict=True) if place != ANY}
    return Plan(rows=tuple(rows), dirs=dirs)


def parse_topics(text: str) -> list[str]:
    """Return the topics of a file for --generate. Raises KlammError."""
    topics = [
        row.get("topic") if isinstance(row, dict) else None for row in _list_of(_document(text), "topics")
    ]
    if not all(isinstance(t, str) for t in topics):
        raise KlammError('each of "topics" must be like {"topic": "foo"}')
    names = [str(t) for t in topics]
    if doubles := _doubles(names):
        raise KlammError(f"List of topics to reassign contains duplicate entries: {_java_list(doubles)}")
    return names


def parse_brokers(text: str) -> list[int]:
    """Return the broker ids of --broker-list. Raises KlammError."""
    words = text.split(",")
    for word in words:
        if not word.isdecimal():
            raise KlammError(f'For input string: "{word}"')
    ids = [int(w) for w in words]
    if doubles := _doubles(ids):
        raise KlammError(f"Broker list contains duplicate entries: {_java_list(doubles)}")
    return ids


def check_plan(plan: Plan) -> None:
    """Raise KlammError for a plan that cannot be executed."""
    if not plan.rows:
        raise KlammError("Partition reassignment list cannot be empty")
    if any(not replicas for _, replicas in plan.rows):
        raise KlammError("Partition replica list cannot be empty")
    if doubles := _doubles([tp for tp, _ in plan.rows]):
        said = ",".join(map(str, doubles))
        raise KlammError(f"Partition reassignment contains duplicate topic partitions: {said}")
    twice = [
        f"{tp} contains multiple entries for {','.join(map(str, found))}"
        for tp, replicas in plan.rows
        if (found := _doubles(replicas))
    ]
    if twice:
        said = ". ".join(twice)
        raise KlammError(f"Partition replica lists may not contain duplicate entries: {said}")


def as_json(assignment: Assignment, dirs: Mapping[Replica, str]) -> str:
    """Return an assignment as the JSON that --reassignment-json-file takes."""
    rows = [
        {
            "topic": tp.topic,
            "partition": tp.partition,
            "replicas": list(replicas),
            "log_dirs": [dirs.get((tp, r), ANY) for r in replicas],
        }
        for tp, replicas in sorted(assignment.items())
    ]
    return json.dumps({"version": 1, "partitions": rows}, separators=(",", ":"), ensure_ascii=False)


# ---- throttles


def moves(
    running: Mapping[TopicPartition, Reassignment], proposed: Assignment, current: Assignment
) -> dict[TopicPartition, tuple[set[int], set[int]]]:
    """Return the sources and destinations of each partition that moves or will move."""
    found = {tp: (set(r.replicas) - set(r.adding), set(r.adding)) for tp, r in running.items()}
    for tp, replicas in proposed.items():
        sources = found[tp][0] if tp in found else set(current[tp])
        found[tp] = (sources, set(replicas) - sources)
    return found


def throttled_replicas(
    found: Mapping[TopicPartition, tuple[set[int], set[int]]],
) -> dict[str, tuple[str, str]]:
    """Return values of leader.replication.throttled.replicas and follower.…, by topic."""

    def listed(topic: str, side: int) -> str:
        names = {f"{tp.partition}:{b}" for tp, pair in found.items() if tp.topic == topic for b in pair[side]}
        return ",".join(sorted(names))

    return {topic: (listed(topic, 0), listed(topic, 1)) for topic in sorted({tp.topic for tp in found})}


# ---- places for replicas


def spread(
    current: Assignment, racks: Mapping[int, str | None], *, start: int, shift: int
) -> dict[TopicPartition, list[int]]:
    """Return replicas on these brokers for the topics of an assignment, as evenly as Kafka's tool does.

    `start` and `shift` are chosen at random by the caller. Raises KlammError for too few brokers.
    """
    if not racks:
        raise KlammError("All brokers are currently fenced, or have all their log directories cordoned.")
    order = _rack_alternated(racks)
    result: dict[TopicPartition, list[int]] = {}
    for topic in sorted({tp.topic for tp in current}):
        count = sum(tp.topic == topic for tp in current)
        factor = len(current[min(tp for tp in current if tp.topic == topic)])
        if factor > len(order):
            raise KlammError(f"Replication factor: {factor} larger than available brokers: {len(order)}")
        for partition in range(count):
            result[TopicPartition(topic, partition)] = _replicas(
                order, racks, factor, (partition + start) % len(order), shift + partition // len(order)
            )
    return result


def _replicas(
    order: Sequence[int], racks: Mapping[int, str | None], factor: int, first: int, shift: int
) -> list[int]:
    """Return replicas that begin at a place in the order; no rack has two before each rack has one."""
    chosen = [order[first]]
    all_racks = set(racks.values())
    step = 0
    while len(chosen) < factor:
        used = {racks[b] for b in chosen}
        offset = 1 + (shift * (len(all_racks) if None not in all_racks else 1) + step) % (len(order) - 1)
        broker = order[(first + offset) % len(order)]
        fresh_rack = None in all_racks or racks[broker] not in used or used == all_racks
        if fresh_rack and broker not in chosen:
            chosen.append(broker)
        step += 1
    return chosen


def _rack_alternated(racks: Mapping[int, str | None]) -> list[int]:
    by_rack: dict[str, list[int]] = {}
    for broker in sorted(racks):
        by_rack.setdefault(racks[broker] or "", []).append(broker)
    waiting = [by_rack[r] for r in sorted(by_rack)]
    order: list[int] = []
    while any(waiting):
        order += [group.pop(0) for group in waiting if group]
    return order


# ---- parts


def _document(text: str) -> dict[str, Any]:
    try:
        document = json.loads(text)
    except ValueError as e:
        raise KlammError(f"The input string is not a valid JSON: {e}") from None
    if not isinstance(document, dict):
        raise KlammError(f"expected a JSON object, received {json.dumps(document)[:80]}")
    if document.get("version", 1) != 1:
        raise KlammError(f"Not supported version field value {document['version']}")
    return document


def _list_of(document: Mapping[str, Any], name: str) -> list[Any]:
    rows = document.get(name, [])
    if not isinstance(rows, list):
        raise KlammError(f"{name} must be a list")
    return rows


def _doubles(values: Sequence[Any]) -> list[Any]:
    return sorted({v for v in values if values.count(v) > 1})


def _java_list(values: Iterable[Any] | Collection[Any]) -> str:
    return f"[{', '.join(map(str, values))}]"
