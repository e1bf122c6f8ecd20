"""A transactional producer's requests to its coordinator, and small batches of its own. One event loop.

Every call waits without limit for brokers that are away; `why` says for what. The open transaction may meanwhile end at
the coordinator, by its timeout. Then TransactionFailed is raised, and `init` begins anew. ProducerFenced: another
producer has the id. The state is in `transaction`. Larger data goes by `IdempotentSender` with the producer id of
`init`; `add` must have its partitions before.

This producer speaks the first version of the protocol, in which the coordinator is told of partitions before batches
(AddPartitionsToTxn); brokers that know the second (KIP-890) serve it, too.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from klamm_base.backoff import Backoff
from klamm_kafka.client.cluster import TRANSACTION, Cluster, broker_error
from klamm_kafka.client.errors import BrokerError, ClientError, ConnectionLost
from klamm_kafka.client.transaction import Partition, State, Transaction
from klamm_kafka.wire.batch import Record, encode_batch
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from klamm_kafka.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from klamm_kafka.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from klamm_kafka.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from klamm_kafka.wire.struct import Message

log = logging.getLogger(__name__)

PRODUCE_VERSION: Final = 11
"""From version 12 on, a batch in a transaction means the second version of the protocol."""
_ADD_VERSION: Final = 3  # later versions are for brokers
_END_VERSION: Final = 4
_INIT_VERSION: Final = 5
_ACKS_ALL: Final = -1
_TIMEOUT_MS: Final = 30_000
_CONCURRENT_S: Final = 0.02
"""The pause before the next try while the coordinator completes the transaction before, as in Java's producer."""
_LONG_S: Final = 1.0
"""Seconds after which the transaction before takes long: the pause is then longer, and `why` says so."""
_LONG_PAUSE_S: Final = 0.5
_MOVED: Final = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})
_OF_PARTITION: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.POLICY_VIOLATION,
    }
)
"""Refusals of a single partition. The coordinator then adds no other of the request, either."""

T = TypeVar("T")


class TransactionalProducer:
    """A producer with a transactional id. `previous` is its producer id and epoch in an earlier life of this process.

    With `previous`, `init` notices whether another producer has come meanwhile (KIP-360, KIP-588); without, it fences
    all others. `cluster` may be shared.
    """

    def __init__(
        self,
        cluster: Cluster,
        transactional_id: str,
        *,
        timeout_ms: int,
        previous: tuple[int, int] = (-1, -1),
    ) -> None:
        self.id = transactional_id
        self.why: str | None = None
        self.transaction = Transaction(producer=previous)
        self.opened = asyncio.Event()
        """Set while a transaction is open."""
        self._cluster = cluster
        self._timeout_ms = timeout_ms
        self._adding = asyncio.Lock()

    async def init(self) -> tuple[int, int]:
        """Ends what an earlier producer with this id left open. Returns producer id and epoch."""
        producer_id, epoch = self.transaction.producer
        if producer_id >= 0:
            await self._abort_own(producer_id, epoch)
        request = InitProducerIdRequest(
            transactional_id=self.id,
            transaction_timeout_ms=self._timeout_ms,
            producer_id=producer_id,
            producer_epoch=epoch,
        )

        async def ask() -> tuple[int, int]:
            answer: InitProducerIdResponse = await self._ask(request, _INIT_VERSION)
            if answer.error_code in {ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH}:
                raise self.transaction.fenced(
                    f"another producer has taken over the transactional id {self.id}"
                )
            if answer.error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING and request.producer_id >= 0:
                # The coordinator has forgotten the id, so there is nobody to be fenced by.
                request.producer_id = request.producer_epoch = -1
                answer = await self._ask(request, _INIT_VERSION)
            self._check(answer.error_code, "beginning")
            return answer.producer_id, answer.producer_epoch

        self.transaction.initialized(*await self._patiently(ask))
        return self.transaction.producer

    async def add(self, partitions: Iterable[Partition]) -> None:
        """Makes partitions part of the transaction. Opens it if necessary. Waits for topics that are not known yet."""
        wanted = list(partitions)

        async def ask() -> None:
            for error in (await self.add_known(wanted)).values():
                raise error

        await self._patiently(ask)

    async def add_known(self, partitions: Iterable[Partition]) -> dict[Partition, BrokerError]:
        """Makes partitions part of the transaction, as `add` does, but leaves out those that the cluster refuses or does
        not know. Returns these with their errors.
        """
        wanted, refused = list(partitions), dict[Partition, BrokerError]()
        if not self.transaction.missing(wanted):
            return refused
        async with self._adding:
            while missing := self.transaction.missing(p for p in wanted if p not in refused):
                found = await self._patiently(partial(self._add, missing))
                refused |= found
                if not found:
                    self.transaction.added(missing)
                    self.opened.set()
        return refused

    async def produce(self, topic: str, partition: int, records: Sequence[Record]) -> None:
        """Writes records of its own, as one batch."""
        await self.add([(topic, partition)])
        sequence = self.transaction.take_sequence((topic, partition), len(records))
        producer_id, epoch = self.transaction.producer
        batch = encode_batch(
            records, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, is_transactional=True
        )  # fmt: skip
        data = TopicProduceData(
            name=topic, partition_data=[PartitionProduceData(index=partition, records=batch)]
        )
        request = ProduceRequest(
            transactional_id=self.id, acks=_ACKS_ALL, timeout_ms=_TIMEOUT_MS, topic_data=[data]
        )
        await self._patiently(lambda: self._produce(topic, partition, request))

    async def commit(self) -> None:
        """Commits. Raises TransactionFailed where it is not known to be committed."""
        await self._end(commit=True)

    async def abort(self) -> None:
        """Aborts the open transaction."""
        await self._end(commit=False)

    # ---- inside

    async def _abort_own(self, producer_id: int, epoch: int) -> None:
        """Ends what the earlier life left open, if anything. Coordinators with the first version of the protocol would
        fence the open transaction in `init`, and take us for another producer then.
        """
        request = EndTxnRequest(
            transactional_id=self.id, producer_id=producer_id, producer_epoch=epoch, committed=False
        )

        async def ask() -> None:
            code = (await self._ask(request, _END_VERSION)).error_code
            if code in _MOVED:
                self._cluster.forget_coordinator(self.id, TRANSACTION)
            if code and (error := broker_error(code, f"aborting a transaction of {self.id}")).retriable:
                raise error

        await self._patiently(ask)

    async def _end(self, *, commit: bool) -> None:
        self.transaction.ending()
        producer_id, epoch = self.transaction.producer
        request = EndTxnRequest(
            transactional_id=self.id, producer_id=producer_id, producer_epoch=epoch, committed=commit
        )

        async def ask() -> None:
            answer: EndTxnResponse = await self._ask(request, _END_VERSION)
            self._check(answer.error_code, "committing" if commit else "aborting")

        await self._patiently(ask)
        self.transaction.ended()
        self.opened.clear()

    async def _add(self, partitions: Sequence[Partition]) -> dict[Partition, BrokerError]:
        """Adds all partitions, or none of them: then the result names those that are refused."""
        topics: dict[str, AddPartitionsToTxnTopic] = {}
        for topic, partition in partitions:
            topics.setdefault(topic, AddPartitionsToTxnTopic(name=topic, partitions=[])).partitions.append(
                partition
            )
        producer_id, epoch = self.transaction.producer
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.id,
            v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=list(topics.values()),
        )
        answer: AddPartitionsToTxnResponse = await self._ask(request, _ADD_VERSION)
        codes = {
            (t.name, p.partition_index): p.partition_error_code
            for t in answer.results_by_topic_v3_and_below
            for p in t.results_by_partition
        }
        refused = {at: code for at, code in codes.items() if code in _OF_PARTITION}
        if not refused:
            # The coordinator has attempted none when it refuses one: the one that says why comes first.
            last = ErrorCode.OPERATION_NOT_ATTEMPTED
            for at, code in sorted(codes.items(), key=lambda each: each[1] == last):
                self._check(code, f"adding {at[0]}-{at[1]}")
        what = f"in a transaction of {self.id}"
        return {at: broker_error(code, f"adding {at[0]}-{at[1]} {what}") for at, code in refused.items()}

    async def _produce(self, topic: str, partition: int, request: ProduceRequest) -> None:
        try:
            connection = await self._cluster.leader(topic, partition)
            version = min(connection.version_for(ProduceRequest), PRODUCE_VERSION)
            answer: ProduceResponse = await connection.request(request, version)
            code = answer.responses[0].partition_responses[0].error_code
            if code != ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
                self._check(code, f"producing to {topic}-{partition}")
        except ClientError as e:
            if e.retriable:
                self._cluster.metadata = None  # another broker may lead by the next time
            raise

    async def _ask(self, request: Message, version_max: int) -> Any:
        connection = await self._cluster.coordinator(self.id, TRANSACTION)
        version = min(connection.version_for(type(request)), version_max)
        return await connection.request(request, version)

    def _check(self, code: int, what: str) -> None:
        if code == ErrorCode.NONE:
            return
        if code in _MOVED:
            self._cluster.forget_coordinator(self.id, TRANSACTION)
        raise self.transaction.judge(code, broker_error(code, f"{what} in a transaction of {self.id}"))

    async def _patiently(self, step: Callable[[], Awaitable[T]]) -> T:
        backoff, began = Backoff(), time.monotonic()
        while True:
            try:
                result = await step()
            except ClientError as e:
                if isinstance(e, BrokerError) and e.code == ErrorCode.CONCURRENT_TRANSACTIONS:
                    await self._wait_for_completion(time.monotonic() - began)
                    continue
                if not e.retriable:
                    raise
                if isinstance(e, ConnectionLost):
                    self._cluster.forget_coordinator(self.id, TRANSACTION)
                if self.why is None:
                    log.info("the transaction of %s waits: %s", self.id, e)
                self.why = str(e)
                await asyncio.sleep(backoff.failed(time.monotonic(), str(e)))
                if self.transaction.state is State.FENCED:
                    raise
            else:
                self.why = None
                return result

    async def _wait_for_completion(self, waited_s: float) -> None:
        """Pauses while the coordinator writes the end of the transaction before into its partitions."""
        if waited_s > _LONG_S:
            if self.why is None:
                log.warning("%s waits for the end of its transaction before", self.id)
            self.why = "the transaction before is not over: each of its partitions needs a leader, and enough replicas in sync, to take its end"
        await asyncio.sleep(_LONG_PAUSE_S if waited_s > _LONG_S else _CONCURRENT_S)
