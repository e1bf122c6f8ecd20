"""Consume-transform-produce by a client of our own: every request as it is on the wire, in both transaction versions.

librdkafka's `send_offsets_to_transaction` does not come back when it loses its connection in the middle (seen with
Apache Kafka, too), and it speaks the first version only. This client repeats whatever got no answer, as Java's does,
and takes nothing but success: an error that may not be retried is a fault of the broker, since nobody else uses its id.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from support.faults.load import Load
from support.faults.logs import batches_of
from support.faults.recorder import Pending, Recorder
from support.history import Outcome, Transaction
from support.raw import RawClient, fetch_request

from klamm_kafka.wire.batch import Record, encode_batch
from klamm_kafka.wire.compression import Compression
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from klamm_kafka.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from klamm_kafka.wire.messages.end_txn import EndTxnRequest
from klamm_kafka.wire.messages.init_producer_id import InitProducerIdRequest
from klamm_kafka.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from klamm_kafka.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from klamm_kafka.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from klamm_kafka.wire.struct import Message

PAUSE_S: Final = 0.02
ANSWER_S: Final = 120.0
"""Until a connection is given up. A request that is repeated while the first one is still being worked on may be carried
out after its transaction has ended, and hang: what KIP-890 is about, and seen at Kafka on a busy machine. A broker that
is killed closes its connections at once.
"""
CALL_S: Final = 180.0
"""The patience for an answer: Kafka may be killed twice while it starts, and a start takes long on a busy machine."""


@dataclass(frozen=True, slots=True)
class Versions:
    """The versions of the requests that make up a transaction version (KIP-890)."""

    produce: int
    commit_offsets: int
    end: int
    implicit: bool


FIRST: Final = Versions(produce=11, commit_offsets=3, end=3, implicit=False)
SECOND: Final = Versions(produce=12, commit_offsets=5, end=5, implicit=True)


class Refused(AssertionError):
    """The broker answered with an error that a client may not retry."""


class Caller:
    """Sends a request until it is answered, over as many connections as it takes."""

    def __init__(self, load: Load, bootstrap: str) -> None:
        self._load = load
        self._port = int(bootstrap.rpartition(":")[2])
        self._client: RawClient | None = None

    def ask(self, message: Message, version: int, codes: Callable[[Any], Iterable[int]]) -> Any:
        """Returns the first answer without an error that may be retried. Raises Refused, TimeoutError."""
        deadline = time.monotonic() + CALL_S
        while time.monotonic() < deadline:
            try:
                if self._client is None:
                    self._client = RawClient(self._port, timeout_s=ANSWER_S)
                answer = self._client.request(message, version)
            except OSError as e:
                self.close()
                self._load.last_error = f"{type(message).__name__}: {e}"
                time.sleep(PAUSE_S)
                continue
            errors = [ErrorCode(code) for code in codes(answer) if code]
            if not errors:
                return answer
            self._load.last_error = f"{type(message).__name__}: {errors}"
            if not all(error.retriable for error in errors):
                raise Refused(f"{self._load.name}: {type(message).__name__} v{version}: {errors}")
            time.sleep(PAUSE_S)
        raise TimeoutError(f"{self._load.name}: {self._load.last_error}")

    def close(self) -> None:
        if self._client is not None:
            self._client.sock.close()
            self._client = None


class FlowLoad(Load):
    """Takes one partition of `source` into all of `sink`; results and the group's offset are in one transaction."""

    def __init__(self, name: str, recorder: Recorder, bootstrap: str, seed: int, *, group: str, source: str, partition: int, sink: str, partitions: int, versions: Versions) -> None:  # fmt: skip
        super().__init__(name, recorder, bootstrap, seed)
        self.group, self.source, self.partition = group, source, partition
        self.sink, self.partitions, self.versions = sink, partitions, versions
        self.caller = Caller(self, bootstrap)
        self.producer = -1, -1
        self.sequences: dict[int, int] = {}
        self.pending: Pending
        self.committed = self.aborted = self.crashes = 0

    def work(self) -> None:
        try:
            while not self.stopping.is_set():
                self.init()
                position = self._committed()
                while position >= 0 and not self.stopping.is_set():
                    position = self._turn(position)
        finally:
            self.caller.close()

    def init(self) -> None:
        """Take the transactional id over, which ends what it has left open."""
        request = InitProducerIdRequest(transactional_id=self.name, transaction_timeout_ms=60_000)
        answer = self.caller.ask(request, 5, lambda a: [a.error_code])
        self._use(answer.producer_id, answer.producer_epoch)

    def _use(self, producer_id: int, epoch: int) -> None:
        if (producer_id, epoch) != self.producer:
            self.producer, self.sequences = (producer_id, epoch), {}
            self.pending = Pending(
                self.recorder, f"{self.name}.{producer_id}.{epoch}.{self.recorder.unique()}", idempotent=True
            )

    def _committed(self) -> int:
        topics = [OffsetFetchRequestTopic(name=self.source, partition_indexes=[self.partition])]
        request = OffsetFetchRequest(group_id=self.group, topics=topics, require_stable=True)
        answer = self.caller.ask(
            request, 7, lambda a: [a.error_code, *(p.error_code for t in a.topics for p in t.partitions)]
        )
        return max(0, answer.topics[0].partitions[0].committed_offset)

    def _turn(self, position: int) -> int:
        """Makes one transaction; returns where to go on, or -1 to start anew."""
        request = fetch_request(
            self.source,
            position,
            partition=self.partition,
            max_wait_ms=100,
            max_bytes=20_000,
            isolation_level=1,
        )
        answer = self.caller.ask(
            request, 11, lambda a: [a.error_code, *(p.error_code for t in a.responses for p in t.partitions)]
        )
        data = bytes(answer.responses[0].partitions[0].records or b"")
        following, records = batches_of(data, position)
        if following == position:
            return position
        name = f"{self.name}.{self.recorder.unique()}"
        invoked = self.recorder.tick()
        crash = self.chance.random() < 0.04
        commit = self.chance.random() > 0.1
        pending = self.pending
        try:
            self._write(name, pending, [r.value or b"" for r in records])
            self._add_offsets(following)
            if crash:
                self.crashes += 1
                self.init()
                outcome = Outcome.FAILED
            else:
                outcome = self._end(commit=commit)
        except BaseException:
            self._note(name, Outcome.UNKNOWN, invoked, following)
            raise
        finally:
            pending.give_up()
        self._note(name, outcome, invoked, following)
        if outcome is Outcome.OK:
            return following
        return -1 if self.chance.random() < 0.5 else self._committed()

    def _write(self, name: str, pending: Pending, sources: list[bytes]) -> None:
        chosen: dict[int, list[bytes]] = {}
        for source in sources:
            value = source + b"|%d" % self.recorder.unique()
            chosen.setdefault(self.chance.randrange(self.partitions), []).append(value)
        if not self.versions.implicit:
            topic = AddPartitionsToTxnTopic(name=self.sink, partitions=list(chosen))
            request = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self.name, v3_and_below_producer_id=self.producer[0],
                v3_and_below_producer_epoch=self.producer[1], v3_and_below_topics=[topic],
            )  # fmt: skip
            self.caller.ask(
                request,
                3,
                lambda a: [
                    p.partition_error_code
                    for t in a.results_by_topic_v3_and_below
                    for p in t.results_by_partition
                ],
            )
        for partition, values in chosen.items():
            self._produce(name, pending, partition, values)

    def _produce(self, name: str, pending: Pending, partition: int, values: list[bytes]) -> None:
        sequence = self.sequences.get(partition, 0)
        numbers = [pending.add(self.sink, partition, v, transaction=name) for v in values]
        batch = encode_batch(
            [Record(timestamp=int(time.time() * 1000), value=v) for v in values],
            compression=self.chance.choice([Compression.NONE, Compression.LZ4]),
            producer_id=self.producer[0], producer_epoch=self.producer[1], base_sequence=sequence,
            is_transactional=True,
        )  # fmt: skip
        data = PartitionProduceData(index=partition, records=bytes(batch))
        request = ProduceRequest(
            transactional_id=self.name, acks=-1, timeout_ms=5000,
            topic_data=[TopicProduceData(name=self.sink, partition_data=[data])],
        )  # fmt: skip
        answer = self.caller.ask(
            request,
            self.versions.produce,
            lambda a: [p.error_code for t in a.responses for p in t.partition_responses],
        )
        offset = answer.responses[0].partition_responses[0].base_offset
        self.sequences[partition] = sequence + len(values)
        for i, number in enumerate(numbers):
            pending.answered(number, None, offset + i if offset >= 0 else -1)

    def _add_offsets(self, position: int) -> None:
        producer_id, epoch = self.producer
        common = {"transactional_id": self.name, "producer_id": producer_id, "producer_epoch": epoch}
        if not self.versions.implicit:
            request = AddOffsetsToTxnRequest(**common, group_id=self.group)
            self.caller.ask(request, 3, lambda a: [a.error_code])
        place = TxnOffsetCommitRequestPartition(
            partition_index=self.partition, committed_offset=position, committed_metadata=""
        )
        topic = TxnOffsetCommitRequestTopic(name=self.source, partitions=[place])
        self.caller.ask(
            TxnOffsetCommitRequest(**common, group_id=self.group, topics=[topic]),
            self.versions.commit_offsets,
            lambda a: [p.error_code for t in a.topics for p in t.partitions],
        )

    def _end(self, *, commit: bool) -> Outcome:
        producer_id, epoch = self.producer
        request = EndTxnRequest(
            transactional_id=self.name, producer_id=producer_id, producer_epoch=epoch, committed=commit
        )
        answer = self.caller.ask(request, self.versions.end, lambda a: [a.error_code])
        if self.versions.implicit:
            self._use(answer.producer_id, answer.producer_epoch)
        self.committed += commit
        self.aborted += not commit
        return Outcome.OK if commit else Outcome.FAILED

    def _note(self, name: str, outcome: Outcome, invoked: int, position: int) -> None:
        self.recorder.history.transactions.append(
            Transaction(
                name=name, outcome=outcome, invoked=invoked, completed=self.recorder.tick(),
                offsets={(self.group, self.source, self.partition): position},
            )
        )  # fmt: skip
        self.progress += 1

    def finish(self) -> None:
        """End whatever it has left open. After the thread's end."""
        try:
            self.init()
        finally:
            self.caller.close()


def origin(value: bytes) -> bytes:
    """Returns what a result of `FlowLoad` was made of."""
    return value.rpartition(b"|")[0]
