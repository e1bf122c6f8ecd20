"""Sends batches to the leaders of the target: several requests under way per broker, order kept per partition.

A broker that is away or no longer leads is waited for as long as it takes; `MirrorPartition.writing` says why. Errors
that no repetition helps are raised from `run`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Final

from klamm_broker.client import BrokerError, ClientError, Cluster, ConnectionLost, broker_error
from klamm_broker.wire.errors import ErrorCode
from klamm_broker.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from klamm_broker.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from klamm_mirror.partition import Backoff, MirrorPartition
from klamm_mirror.raw import Batch
from klamm_plugins.errors import ConnectError, DataError

log = logging.getLogger(__name__)

REQUESTS_MAX: Final = 5
REQUEST_BYTES: Final = 4 << 20
TIMEOUT_MS: Final = 30_000
LOOK_S: Final = 0.1
_NAMES_VERSION: Final = 12  # later versions know topics by id only
_ACKS_ALL: Final = -1
_TOO_LARGE: Final = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})
_FORGOTTEN: Final = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
    }
)
_BAD: Final = frozenset(
    {ErrorCode.INVALID_RECORD, ErrorCode.INVALID_TIMESTAMP, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE}
)

Item = tuple[MirrorPartition, Batch]
OnAck = Callable[[MirrorPartition, Batch, int], None]
"""Partition, batch, the target's offset of its first record (-1: not told)."""


class Sender:
    """`cluster` is the target's, used by nobody else. `wake` says that there may be something to send."""

    def __init__(self, cluster: Cluster, partitions: Sequence[MirrorPartition], on_ack: OnAck) -> None:
        self.wake = asyncio.Event()
        self.room = asyncio.Event()
        """Set when something was acknowledged."""
        self.producers = 0
        self.why: str | None = None
        self._cluster = cluster
        self._partitions = list(partitions)
        self._on_ack = on_ack
        self._leaders: dict[tuple[str, int], int] = {}
        self._stale = True
        self._metadata = Backoff()
        self._requests: dict[int, int] = defaultdict(int)
        self._tasks: set[asyncio.Task[None]] = set()
        self._error: BaseException | None = None

    async def run(self) -> None:
        """Until cancelled. Raises ConnectError, DataError for what no repetition helps."""
        producer = await self._new_producer()
        for partition in self._partitions:
            partition.producer = producer
        while True:
            if self._error is not None:
                raise self._error
            if self._stale and time.monotonic() >= self._metadata.until:
                await self._find_leaders()
            if not self._send_ready():
                self.wake.clear()
                try:
                    async with asyncio.timeout(LOOK_S):
                        await self.wake.wait()
                except TimeoutError:
                    pass

    async def drain(self, timeout_s: float) -> None:
        """Wait for the answers that are due."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=timeout_s)

    def _send_ready(self) -> bool:
        """Send one request to each broker that has room and something waiting; whether any was sent."""
        ready: dict[int, list[MirrorPartition]] = defaultdict(list)
        for partition in self._partitions:
            leader = self._leaders.get((partition.remote, partition.partition), -1)
            if leader >= 0 and self._requests[leader] < REQUESTS_MAX:
                ready[leader].append(partition)
        sent = False
        for leader, partitions in ready.items():
            items = _take(partitions)
            if not items:
                continue
            sent = True
            self._after(items[-1][0])
            self._requests[leader] += 1
            task = asyncio.create_task(self._send(leader, items))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return sent

    def _after(self, partition: MirrorPartition) -> None:
        """The next request begins with the partitions that follow: a few that always have something starve none."""
        at = self._partitions.index(partition) + 1
        self._partitions = self._partitions[at:] + self._partitions[:at]

    async def _send(self, leader: int, items: list[Item]) -> None:
        try:
            connection = await self._cluster.broker(leader)  # those who wait here go on in their order
            version = min(connection.version_for(ProduceRequest), _NAMES_VERSION)
            answer: ProduceResponse = await connection.request(
                _request(items), version, timeout_s=TIMEOUT_MS / 1000 + 5
            )
            results = {(t.name, r.index): r for t in answer.responses for r in t.partition_responses}
            for partition, batch in items:
                result = results.get((partition.remote, partition.partition))
                if result is None:
                    self._failed([(partition, batch)], ConnectionLost("an answer without the partition"))
                else:
                    await self._judge(partition, batch, result)
        except ClientError as e:
            self._failed(items, e)
            if not e.retriable:
                self._error = ConnectError(f"The target cluster cannot be written to: {e}")
        except Exception as e:
            self._error = e
        finally:
            self._requests[leader] -= 1
            self.wake.set()
            self.room.set()

    async def _judge(
        self, partition: MirrorPartition, batch: Batch, result: PartitionProduceResponse
    ) -> None:
        code, now = result.error_code, time.monotonic()
        if code in {ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER}:
            partition.acked(batch, time.time_ns() // 1_000_000)
            self._on_ack(partition, batch, result.base_offset if code == ErrorCode.NONE else -1)
            return
        error = broker_error(code, f"producing to {partition.remote}-{partition.partition}")
        if code in _FORGOTTEN:
            if partition.is_only(batch):
                log.warning("%s: the target has forgotten our producer; a new one goes on", partition)
                partition.new_producer(await self._new_producer())
            partition.failed(now, str(error))
        elif error.retriable:
            self._failed([(partition, batch)], error)
        else:
            raise _explain(partition, batch, error, result.error_message)

    def _failed(self, items: list[Item], error: ClientError) -> None:
        for partition, _ in items:
            if partition.writing.why is None:
                log.warning("%s waits for the target: %s", partition, error)
            partition.failed(time.monotonic(), str(error))
        self._stale = True

    async def _find_leaders(self) -> None:
        try:
            answer = await self._cluster.refresh(sorted({p.remote for p in self._partitions}))
        except ClientError as e:
            self._metadata.failed(time.monotonic(), str(e))
            if self.why is None:
                log.warning("the target cluster is waited for: %s", e)
            self.why = str(e)
            return
        self._leaders = {
            (t.name, p.partition_index): p.leader_id
            for t in answer.topics if t.name is not None
            for p in t.partitions
        }  # fmt: skip
        missing = [p for p in self._partitions if self._leaders.get((p.remote, p.partition), -1) < 0]
        self.why = f"{missing[0].remote}-{missing[0].partition} has no leader" if missing else None
        self._stale = bool(missing)
        if missing:
            self._metadata.failed(time.monotonic(), self.why or "")
        else:
            self._metadata.succeeded()

    async def _new_producer(self) -> tuple[int, int]:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
        backoff = Backoff()
        while True:
            try:
                answer: InitProducerIdResponse = await self._cluster.request(request)
                if answer.error_code == ErrorCode.NONE:
                    self.producers += 1
                    self.why = None
                    return answer.producer_id, answer.producer_epoch
                raise broker_error(answer.error_code, "asking for a producer id")
            except ClientError as e:
                if not e.retriable:
                    raise ConnectError(f"The target cluster cannot be written to: {e}") from None
                if self.why is None:
                    log.warning("the target cluster is waited for: %s", e)
                self.why = str(e)
                backoff.failed(time.monotonic(), str(e))
                await asyncio.sleep(max(backoff.until - time.monotonic(), 0))


def _take(partitions: list[MirrorPartition]) -> list[Item]:
    """A batch of each partition that has one, up to a request's size."""
    items: list[Item] = []
    size, now = 0, time.monotonic()
    for partition in partitions:
        batch = partition.take(now)
        if batch is not None:
            items.append((partition, batch))
            size += len(batch.data)
            if size >= REQUEST_BYTES:
                break
    return items


def _request(items: list[Item]) -> ProduceRequest:
    topics: dict[str, TopicProduceData] = {}
    for partition, batch in items:
        topic = topics.setdefault(
            partition.remote, TopicProduceData(name=partition.remote, partition_data=[])
        )
        topic.partition_data.append(PartitionProduceData(index=partition.partition, records=batch.data))
    return ProduceRequest(acks=_ACKS_ALL, timeout_ms=TIMEOUT_MS, topic_data=list(topics.values()))


def _explain(partition: MirrorPartition, batch: Batch, error: BrokerError, said: str | None) -> ConnectError:
    where = f"{partition}, offsets {batch.first} to {batch.last}"
    if error.code in _TOO_LARGE:
        return DataError(
            f"{where}: a batch of {len(batch.data)} bytes is larger than the target accepts for {partition.remote}: "
            f"raise max.message.bytes of that topic (or message.max.bytes of the target's brokers)"
        )
    text = f"{where}: {error}" + (f": {said}" if said else "")
    return DataError(text) if error.code in _BAD else ConnectError(text)
