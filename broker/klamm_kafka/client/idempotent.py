"""Sends record batches to the leaders of their partitions.

Several requests are under way per broker, each partition keeps its order, and nothing is written twice as long as the
producer lives. The sender waits without limit for a broker that is away or no longer leads; `Outbox.writing` says why.
The subclass decides about batches that a broker refuses for good (`refused`). One event loop.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Generic, TypeVar

from klamm_base.backoff import Backoff
from klamm_kafka.client.cluster import Cluster, broker_error
from klamm_kafka.client.connection import Connection
from klamm_kafka.client.errors import BrokerError, ClientError, ConnectionLost
from klamm_kafka.client.outbox import IN_FLIGHT_MAX, Outbox, P
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from klamm_kafka.wire.messages.metadata import MetadataResponse
from klamm_kafka.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

log = logging.getLogger(__name__)

REQUEST_BYTES: Final = 4 << 20
TIMEOUT_MS: Final = 30_000
LOOK_S: Final = 0.1
NO_PRODUCER: Final = (-1, -1)
TOO_LARGE: Final = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})
_FORGOTTEN: Final = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
    }
)

B = TypeVar("B", bound=Outbox)  # type: ignore[type-arg]


class IdempotentSender(Generic[B, P]):
    """A sender with its own `cluster`, which nobody else uses. Set `wake` when there may be something to send.

    `outboxes` are those that have something, in the order in which they are served; a served one goes behind the others.
    """

    def __init__(
        self,
        cluster: Cluster,
        outboxes: Iterable[B],
        *,
        in_flight: int = IN_FLIGHT_MAX,
        timeout_ms: int = TIMEOUT_MS,
        request_bytes: int = REQUEST_BYTES,
    ) -> None:
        self.wake = asyncio.Event()
        self.producers = 0
        self.why: str | None = None
        """The reason that nothing can be written to the cluster as a whole."""
        self.producer = NO_PRODUCER
        self.transactional_id: str | None = None
        self.outboxes: dict[B, None] = dict.fromkeys(outboxes)
        self.stale = True
        """True while the leaders must be asked for."""
        self._cluster = cluster
        self._in_flight, self._timeout_ms, self._request_bytes = in_flight, timeout_ms, request_bytes
        self._leaders: dict[tuple[str, int], int] = {}
        self._metadata = Backoff()
        self._requests: dict[int, int] = defaultdict(int)
        self._pauses: dict[int, float] = {}  # until when a broker wants no requests
        self._tasks: set[asyncio.Task[None]] = set()
        self._error: BaseException | None = None

    # ---- hooks of a subclass

    PRODUCE_VERSION = 12
    """The highest version of Produce to use. Later versions know topics by id only, see `called`."""
    ACKS = -1
    """All in-sync replicas must have the batches."""
    CREATE = False
    """Create missing topics, if the cluster permits that."""

    def called(self, outbox: B) -> str | bytes:
        """Returns the outbox's topic as requests call it: its name, or its id for versions of Produce that know ids."""
        return outbox.remote

    def delivered(self, outbox: B, parcel: P, offset: int) -> None:
        """Called when a broker has stored the parcel. `offset` is that of its first record, -1: not told."""
        raise NotImplementedError

    async def refused(
        self, outbox: B, parcel: P, error: BrokerError, answer: PartitionProduceResponse
    ) -> None:
        """Called when repetition does not help. Raises the exception that ends `run`, or mends the outbox.

        Until it returns, the outbox waits for an answer. `answer` may name the records at fault.
        """
        raise NotImplementedError

    async def forgotten(self, outbox: B, error: BrokerError) -> None:
        """Called when the cluster does not know our producer any more: gives the outbox a new one."""
        log.warning("%s: the cluster has forgotten our producer; a new one goes on", outbox)
        outbox.new_producer(await self.new_producer(outbox))

    def unusable(self, error: ClientError) -> Exception | None:
        """Returns the exception that ends `run` if the cluster refuses us or is too old; None to try again."""
        return error

    def away(self, error: ClientError) -> None:
        """Logs that no broker can be asked. `why` is None the first time."""
        if self.why is None:
            log.warning("waiting for the cluster: %s", error)

    def failed(self, outbox: B, error: ClientError) -> None:
        """Logs that a batch failed and is sent again."""
        if outbox.writing.why is None:
            log.warning("%s waits for its leader: %s", outbox, error)

    def every_outbox(self) -> Iterable[B]:
        """Returns all outboxes, those that have nothing included, if the sender is to know their leaders."""
        return self.outboxes

    def topics(self) -> list[str]:
        """Returns the topics whose leaders are needed."""
        return sorted({o.remote for o in self.every_outbox()})

    def learned(self, answer: MetadataResponse) -> str | None:
        """Called with news of topics and leaders. Returns what is missing in it, so that it is asked for again."""
        return None

    def answered(self) -> None:
        """Called when a request has ended, with or without success."""

    async def before_sending(self, connection: Connection, outboxes: Sequence[B]) -> Mapping[B, BrokerError]:
        """Called before each request, in the order of the requests, with the connection on which it goes. Returns the
        outboxes that may not be sent, with the errors to judge them by.
        """
        return {}

    async def prepare(self) -> None:
        """Called before each round of sending."""

    def may_send(self, now: float) -> bool:
        """Decides whether the rate limit allows a request."""
        return True

    def taken(self, items: Sequence[tuple[B, P]]) -> None:
        """Called with the batches of a request, stamped, before it goes out."""

    # ---- running

    async def run(self) -> None:
        """Send until cancelled. Raises what `unusable` and `refused` raise."""
        self.producer = await self.new_producer()
        for outbox in self.every_outbox():
            outbox.producer = self.producer
        while True:
            if self._error is not None:
                raise self._error
            if self.stale and time.monotonic() >= self._metadata.until:
                await self._find_leaders()
            await self.prepare()
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

    def leader(self, topic: str, partition: int) -> int:
        """Returns the leader's node id; -1 if none is known."""
        return self._leaders.get((topic, partition), -1)

    def _send_ready(self) -> bool:
        """Send one request to each broker that has room and something waiting. Returns whether any was sent."""
        now = time.monotonic()
        if not self.may_send(now):
            return False
        ready: dict[int, list[B]] = defaultdict(list)
        for outbox in list(self.outboxes):
            if outbox.empty:
                del self.outboxes[outbox]
                continue
            leader = self._leaders.get((outbox.remote, outbox.partition), -1)
            if (
                leader >= 0
                and self._requests[leader] < self._in_flight
                and now >= self._pauses.get(leader, 0)
            ):
                ready[leader].append(outbox)
        any_sent = False
        for leader, outboxes in ready.items():
            items = self._take(outboxes, now)
            if not items:
                continue
            any_sent = True
            self._requests[leader] += 1
            task = asyncio.create_task(self._send(leader, items))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return any_sent

    def _take(self, outboxes: list[B], now: float) -> list[tuple[B, P]]:
        """Take a batch of each partition that has one, up to the size of a request."""
        items: list[tuple[B, P]] = []
        size = 0
        for outbox in outboxes:
            parcel = outbox.take(now)
            if parcel is not None:
                items.append((outbox, parcel))
                size += len(parcel.data)
                if size >= self._request_bytes:
                    break
        if len(self.outboxes) > 1:
            for outbox, _ in items:  # a few busy outboxes starve no other
                del self.outboxes[outbox]
                self.outboxes[outbox] = None
        self.taken(items)
        return items

    async def _send(self, leader: int, items: list[tuple[B, P]]) -> None:
        left = list(items)
        try:
            connection = await self._cluster.broker(leader)  # waiting outboxes go on in their order
            barred = await self.before_sending(connection, [outbox for outbox, _ in items])
            for item in [item for item in items if item[0] in barred]:
                left.remove(item)
                await self._undelivered(*item, barred[item[0]])
            if not left:
                return
            version = min(connection.version_for(ProduceRequest), self.PRODUCE_VERSION)
            answer: ProduceResponse = await connection.request(
                self._request(left), version, timeout_s=self._timeout_ms / 1000 + 5
            )
            if answer.throttle_time_ms > 0:
                self._pauses[leader] = time.monotonic() + answer.throttle_time_ms / 1000
            results = {
                (t.name or t.topic_id, r.index): r for t in answer.responses for r in t.partition_responses
            }
            while left:
                outbox, parcel = left.pop(0)
                result = results.get((self.called(outbox), outbox.partition))
                if result is None:
                    self._failed([(outbox, parcel)], ConnectionLost("an answer without the partition"))
                else:
                    await self._judge(outbox, parcel, result)
        except ClientError as e:
            self._failed(left, e)
            if not e.retriable:
                self._error = self.unusable(e)
        except Exception as e:
            self._error = e
        finally:
            self._requests[leader] -= 1
            self.wake.set()
            self.answered()

    async def _judge(self, outbox: B, parcel: P, result: PartitionProduceResponse) -> None:
        code = result.error_code
        if code in {ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER}:
            self.delivered(outbox, parcel, result.base_offset if code == ErrorCode.NONE else -1)
            return
        await self._undelivered(outbox, parcel, broker_error(code, f"producing to {outbox}"), result)

    async def _undelivered(
        self, outbox: B, parcel: P, error: BrokerError, answer: PartitionProduceResponse | None = None
    ) -> None:
        if error.code in _FORGOTTEN:
            if outbox.is_only(parcel):
                await self.forgotten(outbox, error)
            outbox.failed(time.monotonic(), str(error))
        elif error.retriable:
            self._failed([(outbox, parcel)], error)
        else:
            answer = answer or PartitionProduceResponse(index=outbox.partition, error_code=error.code)
            await self.refused(outbox, parcel, error, answer)

    def _failed(self, items: list[tuple[B, P]], error: ClientError) -> None:
        for outbox, _ in items:
            self.failed(outbox, error)
            outbox.failed(time.monotonic(), str(error))
        self.stale = True

    async def _find_leaders(self) -> None:
        self.stale = False  # topics added meanwhile are not in the answer; the next request asks for them
        try:
            answer = await self._cluster.refresh(self.topics(), create=self.CREATE)
        except ClientError as e:
            self.stale = True
            self._metadata.failed(time.monotonic(), str(e))
            self._away(e)
            if not e.retriable and (ends := self.unusable(e)) is not None:
                raise ends from None
            return
        self._leaders = {
            (t.name, p.partition_index): p.leader_id
            for t in answer.topics if t.name is not None
            for p in t.partitions
        }  # fmt: skip
        lacking = self.learned(answer)
        missing = [o for o in self.every_outbox() if self.leader(o.remote, o.partition) < 0]
        self.why = f"{missing[0]} has no leader" if missing else None
        if missing or lacking:
            self.stale = True
            self._metadata.failed(time.monotonic(), self.why or lacking or "")
        else:
            self._metadata.succeeded()

    def _away(self, error: ClientError) -> None:
        self.away(error)
        self.why = str(error)

    async def new_producer(self, outbox: B | None = None) -> tuple[int, int]:
        """Returns producer id and epoch for an outbox (None: for all), once a broker gives them. Raises what `unusable`
        returns.
        """
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
                if not e.retriable and (ends := self.unusable(e)) is not None:
                    raise ends from None
                self._away(e)
                await asyncio.sleep(backoff.failed(time.monotonic(), str(e)))

    def _request(self, items: list[tuple[B, P]]) -> ProduceRequest:
        topics: dict[str | bytes, TopicProduceData] = {}
        for outbox, parcel in items:
            topic = topics.setdefault(called := self.called(outbox), _topic_data(called))
            topic.partition_data.append(PartitionProduceData(index=outbox.partition, records=parcel.data))
        return ProduceRequest(
            transactional_id=self.transactional_id,
            acks=self.ACKS,
            timeout_ms=self._timeout_ms,
            topic_data=list(topics.values()),
        )


def _topic_data(called: str | bytes) -> TopicProduceData:
    """Returns a request's part for a topic, without data yet."""
    if isinstance(called, str):
        return TopicProduceData(name=called, partition_data=[])
    return TopicProduceData(topic_id=called, partition_data=[])
