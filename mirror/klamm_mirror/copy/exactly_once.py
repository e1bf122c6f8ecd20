"""Exactly once: a source task's records, its offsets and their mapping, in the same transactions (KIP-618).

Whatever dies, readers of committed records see each record once: a transaction holds whole batches, and with them the
source offsets to continue from, or nothing of it is ever visible. After any failure the task begins anew at the
committed offsets. Invariant: a transaction ends only when all that was sent in it is acknowledged, and while it ends,
nothing else is sent.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from klamm_kafka.client import ClientError, Cluster, TransactionFailed
from klamm_kafka.client.partitioner import partition_of
from klamm_kafka.client.transaction import State
from klamm_kafka.client.transactional import TransactionalProducer
from klamm_kafka.wire.batch import Record
from klamm_mirror.copy.changes import Changes, Committed, Uncommitted
from klamm_mirror.copy.partition import MirrorPartition
from klamm_mirror.copy.segment_writer import changed_records
from klamm_mirror.copy.transactional_sender import TransactionalSender
from klamm_mirror.topics.internal_topics import as_records

log = logging.getLogger(__name__)

BYTES_MAX: Final = 32 << 20
"""Bytes after which a transaction ends early: half of what a task may hold in its memory."""
LOOK_S: Final = 0.01
REST_S: Final = 60.0
"""Seconds after which offsets without records are committed: what was left out is then not read again."""
STOP_S: Final = 2.0
SETTLE_S: Final = 10.0
"""Seconds that a partition may hold up the end of a transaction. Then all begin anew, and the others go on without it."""
HELD_UP_S: Final = 30.0
"""Seconds after which a partition that held up a transaction may join another one."""

Encode = Callable[[Committed], Sequence[tuple[bytes, bytes]]]
"""Returns the offset topic's records for partitions and their positions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactlyOnce:
    """A task's producer, initialized, and the place of its offsets. `target` is a client that the producer shares."""

    producer: TransactionalProducer
    target: Cluster
    offsets_topic: str
    encode: Encode
    interval_s: float
    settle: Callable[[], Awaitable[None]]
    """Waits until everything else is stored that must be there before the offsets."""


class Committer:
    """Ends the transactions of a task's partitions, which `sender` sends."""

    def __init__(
        self, once: ExactlyOnce, sender: TransactionalSender, partitions: Sequence[MirrorPartition],
        segments_topic: str | None,
    ) -> None:  # fmt: skip
        self.transactions = 0
        self.bytes = 0
        """The bytes that were acknowledged in the open transaction."""
        self._once = once
        self._producer = once.producer
        self._sender = sender
        self._segments_topic = segments_topic
        self._uncommitted, self._changes = Uncommitted(partitions), Changes(partitions)
        self._ending = asyncio.Lock()
        self._ended_at = time.monotonic()

    @property
    def why(self) -> str | None:
        """The reason for which the transaction's coordinator, or a partition of ours, makes it wait."""
        return self._producer.why

    async def run(self, stopping: asyncio.Event) -> None:
        """Ends transactions when they are due. Returns between two of them. Raises TransactionFailed, ClientError."""
        while not stopping.is_set():
            if self._due():
                await self.end(stopping)
            elif self._producer.opened.is_set():
                await asyncio.sleep(LOOK_S)
            else:
                await _wait_for_either(self._producer.opened, stopping)

    async def end(self, stopping: asyncio.Event) -> None:
        """Commits what is acknowledged, and waits before for the answers that are due."""
        async with self._ending:
            self._sender.gate.closed = True
            try:
                await self._settle(stopping)
                await self._commit(self._uncommitted.news())
            finally:
                self._ended_at, self.bytes = time.monotonic(), 0
                self._sender.open_gate()

    async def _commit(self, news: Committed) -> None:
        await self._once.settle()
        await self._write(news)
        if self._producer.transaction.state is State.OPEN:
            await self._producer.commit()
            self.transactions += 1
        self._uncommitted.committed(news)

    async def finish(self) -> None:
        """Ends the last transaction, if that is possible soon; if not, the next start aborts it."""
        stopping = asyncio.Event()
        stopping.set()
        try:
            async with asyncio.timeout(STOP_S):
                await self.end(stopping)
        except (ClientError, TimeoutError) as e:
            log.info("the last transaction is left to the next start: %s", str(e) or "no answer in time")

    def _due(self) -> bool:
        since = time.monotonic() - self._ended_at
        if self._producer.opened.is_set():
            return since >= self._once.interval_s or self.bytes >= BYTES_MAX
        return since >= REST_S and bool(self._uncommitted.news())

    async def _settle(self, stopping: asyncio.Event) -> None:
        unsettled = [p for p in self._sender.outboxes if not self._settled(p)]
        patience, until = None, time.monotonic() + SETTLE_S
        while unsettled:
            if stopping.is_set():
                patience = patience or time.monotonic() + STOP_S
                if time.monotonic() >= patience:
                    raise self._producer.transaction.failed("the task stops before all is acknowledged")
            if time.monotonic() >= until:
                for partition in unsettled:
                    if not partition.scarce:  # metadata tell when that ends
                        partition.joins_at = time.monotonic() + HELD_UP_S
                why = unsettled[0].writing.why or "no answer"
                raise self._producer.transaction.failed(f"{unsettled[0]} holds up the others: {why}")
            await asyncio.sleep(LOOK_S / 2)
            unsettled = [p for p in unsettled if not self._settled(p)]

    def _settled(self, partition: MirrorPartition) -> bool:
        """Decides whether no answer is due, and nothing of the transaction waits to be sent again. What was refused is not
        sent again, and what is not in the transaction goes into a later one.
        """
        if not partition.idle or partition.all_acked:
            return partition.idle
        return partition.unsent or not self._sender.takes_part(partition)

    async def _write(self, news: Committed) -> None:
        """Writes offsets and mapping, in as few round trips as there can be."""
        records: dict[tuple[str, int], list[Record]] = defaultdict(list)
        topic, now_ms = self._once.offsets_topic, time.time_ns() // 1_000_000
        count = await self._partition_count(topic) if news else 0
        for key, value in self._once.encode(news) if news else ():
            record = Record(timestamp=now_ms, key=key, value=value)
            records[topic, partition_of(key, count)].append(record)
        changed = changed_records(self._changes.take())
        if changed and self._segments_topic is not None:
            records[self._segments_topic, 0] = as_records(changed, now_ms)
        if records:
            await self._producer.add(records)
            await asyncio.gather(*(self._producer.produce(*at, rows) for at, rows in records.items()))

    async def _partition_count(self, topic: str) -> int:
        metadata = self._once.target.metadata
        for found in metadata.topics if metadata is not None else ():
            if found.name == topic and found.partitions:
                return len(found.partitions)
        # The client keeps the latest answer alone, so it must have the leaders of all that a transaction writes to.
        answer = await self._once.target.refresh([t for t in (topic, self._segments_topic) if t is not None])
        count = next((len(found.partitions) for found in answer.topics if found.name == topic), 0)
        if not count:
            raise TransactionFailed(f"the offset topic {topic} is not known at the target")
        return count


async def _wait_for_either(opened: asyncio.Event, stopping: asyncio.Event) -> None:
    waits = [asyncio.create_task(event.wait()) for event in (opened, stopping)]
    try:
        await asyncio.wait(waits, timeout=1.0, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
