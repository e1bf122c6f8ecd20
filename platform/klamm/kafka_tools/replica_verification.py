"""`kafka-replica-verification`: fetch partitions from all of their replicas, and compare batch by batch.

Every broker is asked for its replicas at the same time, from the offset up to which all have agreed. What is compared is
the last offset and the checksum of each batch below the high watermark. It goes on until it is stopped.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from klamm.admin.client import Admin
from klamm.admin.errors import AdminError
from klamm.admin.filters import topic_pattern
from klamm.admin.model import TopicPartition, by_topic
from klamm.admin.offsets import NONE, known_offsets
from klamm.admin.topics import list_topics
from klamm.kafka_tools.options import COMMAND_CONFIG, Option, Options, UsageError, say
from klamm.kafka_tools.run import connected
from klamm_base.addresses import parse_addresses
from klamm_base.errors import ConfigError, KlammError
from klamm_base.interrupts import Interrupts
from klamm_kafka.client import ConnectionLost
from klamm_kafka.wire.batch import BatchHeader
from klamm_kafka.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from klamm_kafka.wire.offset_specs import LATEST
from klamm_mirror.raw import whole_batches

SUMMARY = "validate that all replicas for a set of topics have the same data."
OPTIONS = (
    Option("broker-list", "REQUIRED: The brokers to connect to.", "HOST:PORT,..."),
    Option("bootstrap-server", "The same, as the other commands call it.", "HOST:PORT,..."),
    replace(COMMAND_CONFIG, help="A .properties file with client settings; Kafka's command has none."),
    Option("topics-include", "Topics that match this regular expression.", "REGEX", default=".*"),
    Option("time", "Where to begin: -1 latest, -2 earliest, or a timestamp in ms.", "TIME", default="-1"),
    Option("fetch-size", "Bytes of a partition to fetch at a time.", "BYTES", default="1048576"),
    Option("max-wait-ms", "How long a broker may wait for new records.", "MS", default="1000"),
    Option("report-interval-ms", "How often the lag is reported.", "MS", default="30000"),
)
_REPLICA_ID: Final = -2
"""Kafka's id for who may read followers, and what lies above the high watermark."""
_NAMES_UP_TO: Final = 12  # Fetch: later versions speak of topics by their ids only
_ANSWER_BYTES: Final = 2_147_483_647
_PAUSE_S: Final = 0.1

Answers = Mapping[int, Mapping[TopicPartition, PartitionData]]
"""By broker."""


class ReplicasDiffer(KlammError):
    """Two replicas have other batches, so nothing behind can be compared."""


@dataclass(slots=True)
class Verifier:
    """Knows up to which offset all replicas agree, and which partition is furthest behind."""

    offsets: dict[TopicPartition, int]
    max_lag: int = -1
    at: tuple[TopicPartition | None, int] = (None, -1)

    def compare(self, answers: Answers) -> Iterator[str]:
        """Go through one round of answers; yields differences of checksums. Raises ReplicasDiffer."""
        self.max_lag, self.at = -1, (None, -1)
        for tp in sorted(self.offsets):
            found = {node: mine[tp] for node, mine in sorted(answers.items()) if tp in mine}
            if not found:
                continue
            yield from self._compare(tp, found)
            lag = max(data.high_watermark for data in found.values()) - self.offsets[tp]
            if lag > self.max_lag:
                self.max_lag, self.at = lag, (tp, self.offsets[tp])

    def _compare(self, tp: TopicPartition, found: Mapping[int, PartitionData]) -> Iterator[str]:
        for rows in zip(*(_below(data) for data in found.values()), strict=False):
            (first, header), *others = zip(found, rows, strict=True)
            for node, other in others:
                if other.last_offset != header.last_offset:
                    raise ReplicasDiffer(
                        f"partition {tp}: replica {first}'s offset {header.last_offset} doesn't match replica"
                        f" {node}'s offset {other.last_offset}"
                    )
                if other.crc != header.crc:
                    yield (
                        f"partition {tp} has unmatched checksum at offset {header.last_offset}; replica {first}'s"
                        f" checksum {header.crc}; replica {node}'s checksum {other.crc}"
                    )
            self.offsets[tp] = header.next_offset

    def report(self) -> str:
        """Return the line about the partition that is furthest behind."""
        tp, offset = self.at
        return (
            f"max lag is {self.max_lag} for partition {tp or 'null'} at offset {offset} among"
            f" {len(self.offsets)} partitions"
        )


def _below(data: PartitionData) -> Iterator[BatchHeader]:
    """Yield the batches below the replica's high watermark."""
    for _, header in whole_batches(data.records or b""):
        if header.last_offset >= data.high_watermark:
            return
        yield header


def run(options: Options) -> int:
    """Compare until SIGTERM or Ctrl-C; 1 as soon as replicas have other batches."""
    brokers = options.get("broker-list") or options.get("bootstrap-server")
    if brokers is None:
        raise UsageError('Missing required argument "[broker-list]"')
    try:
        parse_addresses(brokers)
    except ConfigError:
        raise UsageError("Please provide valid host:port like host1:9091,host2:9092\n") from None
    with Interrupts() as interrupts:
        return connected(
            brokers, options.get("command-config"), lambda admin: _verify(admin, options, interrupts)
        )


async def _verify(admin: Admin, options: Options, interrupts: Interrupts) -> int:
    pattern = topic_pattern(options.text("topics-include"))
    topics = [t for t in await list_topics(admin) if pattern.fullmatch(t.name)]
    if not topics:
        raise KlammError(
            "No topics found. [topics-include] if specified, is either filtering out all topics or there is no topic."
        )
    replicas: dict[int, list[TopicPartition]] = {}
    for topic in topics:
        for p in topic.partitions:
            for node in p.replicas:
                replicas.setdefault(node, []).append(TopicPartition(topic.name, p.number))
    begin = await _begin(admin, {tp for mine in replicas.values() for tp in mine}, _number(options, "time"))
    verifier = Verifier(begin)
    _print("verification process is started")
    every_s, reported = _number(options, "report-interval-ms") / 1000, time.monotonic()
    said: set[str] = set()
    while not interrupts.count:
        answers = await _round(admin, replicas, verifier.offsets, options, said)
        try:
            for line in verifier.compare(answers):
                _print(line)
        except ReplicasDiffer as e:
            _print(str(e))
            return 1
        if time.monotonic() - reported > every_s:
            _print(verifier.report())
            reported = time.monotonic()
    return interrupts.code


async def _begin(admin: Admin, partitions: set[TopicPartition], at: int) -> dict[TopicPartition, int]:
    """Return where to begin; a partition without a record that late is read from its end."""
    found = await known_offsets(admin, partitions, at)
    if late := {tp for tp, offset in found.items() if offset == NONE}:
        found |= await known_offsets(admin, late, LATEST)
    return found


async def _round(
    admin: Admin,
    replicas: Mapping[int, Sequence[TopicPartition]],
    offsets: Mapping[TopicPartition, int],
    options: Options,
    said: set[str],
) -> Answers:
    """Ask all brokers at once. A replica that does not answer has nothing, and why is said once."""
    brokers = await admin.brokers()

    async def of(node: int) -> Mapping[TopicPartition, PartitionData]:
        found: Mapping[TopicPartition, PartitionData] = {}
        try:
            if node not in brokers:
                raise ConnectionLost(f"broker {node} is not in the cluster's metadata")
            found = await _fetched(admin, node, replicas[node], offsets, options)
        except (ConnectionLost, AdminError) as e:
            _say_once(f"replicas of broker {node} are not compared: {e}", said)
            await asyncio.sleep(_PAUSE_S)
        for tp, data in found.items():
            if data.error_code:
                _say_once(
                    f"replica {node} of {tp} is not compared: {AdminError(data.error_code, str(tp))}", said
                )
        return {tp: found.get(tp) or _nothing(tp) for tp in replicas[node]}

    answers = await asyncio.gather(*(of(node) for node in sorted(replicas)))
    return dict(zip(sorted(replicas), answers, strict=True))


def _nothing(tp: TopicPartition) -> PartitionData:
    return PartitionData(partition_index=tp.partition, high_watermark=-1, records=None)


def _say_once(text: str, said: set[str]) -> None:
    if text not in said:
        said.add(text)
        say(text)


async def _fetched(
    admin: Admin,
    node: int,
    mine: Sequence[TopicPartition],
    offsets: Mapping[TopicPartition, int],
    options: Options,
) -> Mapping[TopicPartition, PartitionData]:
    """Return what one broker has of each partition. Raises AdminError."""
    size = _number(options, "fetch-size")
    topics = [
        FetchTopic(
            topic=topic,
            partitions=[
                FetchPartition(
                    partition=p, fetch_offset=offsets[TopicPartition(topic, p)], partition_max_bytes=size
                )
                for p in numbers
            ],
        )
        for topic, numbers in by_topic(mine).items()
    ]
    request = FetchRequest(
        replica_id=_REPLICA_ID, max_wait_ms=_number(options, "max-wait-ms"), min_bytes=1,
        max_bytes=_ANSWER_BYTES, topics=topics,
    )  # fmt: skip
    answer = await admin.ask_broker(node, request, cap=_NAMES_UP_TO)
    if answer.error_code:
        raise AdminError(answer.error_code, f"broker {node}")
    return {TopicPartition(t.topic, p.partition_index): p for t in answer.responses for p in t.partitions}


def _number(options: Options, name: str) -> int:
    found = options.number(name)
    assert found is not None, "has a default"
    return found


def _print(text: str) -> None:
    now = time.time()
    stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(now)) + f",{int(now * 1000) % 1000:03d}"
    sys.stdout.write(f"{stamp}: {text}\n")
    sys.stdout.flush()
