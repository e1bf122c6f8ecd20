"""Produce within a transaction: asks the transaction coordinator before anything is written (KIP-890).

Every partition of a request is verified before any of it is written, so a request that has to wait can be handled
anew from its bytes. A request of very many partitions is written in steps: before each of them `is_over` tells whether the
transaction has ended meanwhile. While the last transaction of a client is being ended, a client that leaves adding partitions to us
gets further attempts here for a moment: its records have come already.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from klamm_broker.coordinator.model import TopicPartition
from klamm_broker.coordinator.transactions.model import ProducerRequest
from klamm_broker.log.steps import Steps
from klamm_broker.server import heavy
from klamm_broker.server.transactions import Errors, Support
from klamm_kafka.wire.acls import AclOperation, ResourceType
from klamm_kafka.wire.api_keys import ApiKey
from klamm_kafka.wire.batch import iter_headers
from klamm_kafka.wire.errors import ErrorCode, ProtocolError
from klamm_kafka.wire.hot import ProduceData

if TYPE_CHECKING:
    from klamm_broker.coordinator.transactions.coordinator import OpenTransaction
    from klamm_broker.security.authorizer import Access
    from klamm_broker.server.state import BrokerState
    from klamm_broker.server.topics import Partition, Topic
    from klamm_kafka.wire.hot import TopicKey

log = logging.getLogger(__name__)

STEP: Final = 32
"""Partitions in one step of a request of very many."""
ABORTABLE_FROM: Final = 11
ADDS_FROM: Final = 12
NOT_ADDED: Final = (ErrorCode.INVALID_TXN_STATE, "Partition was not added to the transaction")
_NOT_VERIFIED: Final = frozenset({
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR,
    ErrorCode.NETWORK_EXCEPTION,
})  # fmt: skip
"""Errors that a client does not expect of a partition's leader: it gets NOT_ENOUGH_REPLICAS instead, and tries again."""


def may_use(access: Access | None, transactional_id: str) -> bool:
    """Decides whether a producer may write as this transactional id."""
    return access is None or access.may(
        AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id, ApiKey.PRODUCE.name
    )


def may_write(access: Access | None, topic: Topic | None, key: TopicKey) -> bool:
    """Decides whether a producer may write to a topic, existing or not. Of an unknown id there is nothing to protect."""
    if access is None:
        return True
    name = key if topic is None else topic.name
    if isinstance(name, bytes) or name in access.writable:
        return True
    return access.may(AclOperation.WRITE, ResourceType.TOPIC, name, ApiKey.PRODUCE.name)


class Verification:
    """The verification of one request. `transaction_version` goes to the log with the records."""

    def __init__(self, broker: BrokerState, data: ProduceData, version: int) -> None:
        self._broker = broker
        self._adds = version >= ADDS_FROM
        self._support = Support.INVALID_STATE
        if self._adds:
            self._support = Support.ADDS
        elif version >= ABORTABLE_FROM:
            self._support = Support.ABORTABLE
        self.transaction_version = 2 if self._adds else 0
        self._transactional_id = data.transactional_id or ""
        self._partitions: list[Partition] = []
        self._producers: set[tuple[int, int]] = set()
        self._producer: ProducerRequest | None = None
        self._open: OpenTransaction | None = None
        self._errors: Errors = {}
        self._waiting: asyncio.Future[Errors] | None = None
        self._give_up_at = 0.0
        self._is_unsure = False

    @classmethod
    def of(
        cls, broker: BrokerState, data: ProduceData, version: int, access: Access | None = None
    ) -> Verification:
        """Returns the verification of a request, which has looked at its batches."""
        return heavy.finished(cls.making(broker, data, version, access))

    @classmethod
    def making(
        cls, broker: BrokerState, data: ProduceData, version: int, access: Access | None
    ) -> Steps[Verification]:
        """Does what `of` does, in steps."""
        made = cls(broker, data, version)
        if may_use(access, made._transactional_id):
            yield from made._collecting(data, access)
        return made

    def _collecting(self, data: ProduceData, access: Access | None) -> Steps[None]:
        topics, left = self._broker.topics, STEP
        for key, partitions in data.topics:
            topic = topics.by_name.get(key) if isinstance(key, str) else topics.by_id.get(key)
            if not may_write(access, topic, key):
                continue
            for index, records in partitions:
                left -= 1
                if not left:
                    left = STEP
                    yield None
                if topic is None or records is None or not 0 <= index < len(topic.partitions):
                    continue
                if topic.config.mirrors:
                    continue  # the log refuses them, and no marker may come there
                try:
                    producers = {
                        (header.producer_id, header.producer_epoch)
                        for _, header in iter_headers(records)
                        if header.is_transactional
                    }
                except ProtocolError:
                    continue  # the log says what is wrong with it
                if producers:
                    self._producers |= producers
                    self._partitions.append(topic.partitions[index])

    def attempt(self) -> bool:
        """Ask the coordinator. Returns whether the answer is there; otherwise call `when_done`."""
        if len(self._producers) != 1:
            return True
        ((producer_id, epoch),) = self._producers
        self._producer = ProducerRequest(
            transactional_id=self._transactional_id, producer_id=producer_id, producer_epoch=epoch
        )
        transactions = self._broker.transactions
        answer = transactions.verify(self._producer, self._partitions, self._support)
        if isinstance(answer, asyncio.Future):
            self._waiting = answer
            return False
        self._errors = answer
        self._open = transactions.coordinator.open_transaction(self._producer)
        return not self._worth_waiting

    @property
    def allows_steps(self) -> bool:
        """True if the request may be written in steps: its transaction is known and open, or it has nothing of any."""
        return self._open is not None or len(self._producers) != 1

    def paused(self) -> None:
        """Take note that others were served. A transaction that was not known to be open could have ended meanwhile."""
        self._is_unsure = not self.allows_steps

    def is_over(self) -> bool:
        """Decides whether the transaction that was verified has been decided since. Then nothing more may be written."""
        if self._is_unsure:
            return True
        if self._open is None or self._producer is None:
            return False
        return self._broker.transactions.coordinator.open_transaction(self._producer) != self._open

    @property
    def _worth_waiting(self) -> bool:
        if not self._adds or ErrorCode.CONCURRENT_TRANSACTIONS not in self._errors.values():
            return False
        now = self._broker.loop.time()
        if self._give_up_at == 0.0:
            limit_ms = self._broker.config["add.partitions.to.txn.retry.backoff.max.ms"]
            self._give_up_at = now + limit_ms / 1000
        return now < self._give_up_at

    def when_done(self, then: Callable[[], None]) -> None:
        """Call `then` once the answer is there."""
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting.add_done_callback(lambda done: self._told(done, then))
            return
        pause_ms = self._broker.config["add.partitions.to.txn.retry.backoff.ms"]
        self._broker.loop.call_later(pause_ms / 1000, self._again, then)

    def _told(self, done: asyncio.Future[Errors], then: Callable[[], None]) -> None:
        error = done.exception()
        if error is None and not done.result():
            self._again(then)  # it is told a turn of the loop later: the transaction could have ended since
            return
        if error is not None:
            log.error("the verification of a transaction failed", exc_info=error)
            self._errors = {
                TopicPartition(p.topic.name, p.index): ErrorCode.UNKNOWN_SERVER_ERROR
                for p in self._partitions
            }
        else:
            self._errors = done.result()
        if self._worth_waiting:
            self.when_done(then)
        else:
            then()

    def _again(self, then: Callable[[], None]) -> None:
        if self.attempt():
            then()
        else:
            self.when_done(then)

    def error(self, topic: str, index: int) -> tuple[ErrorCode, str | None] | None:
        """Returns why nothing may be written to this partition, with a sentence if Kafka has one; None if writing is permitted."""
        if len(self._producers) > 1:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING, None
        error = self._errors.get(TopicPartition(topic, index))
        if error is None:
            return None
        if error is ErrorCode.INVALID_TXN_STATE:
            return NOT_ADDED
        if error in _NOT_VERIFIED or (error is ErrorCode.CONCURRENT_TRANSACTIONS and not self._adds):
            why = f"Unable to verify the partition has been added to the transaction. Underlying error: {error.name}"
            return ErrorCode.NOT_ENOUGH_REPLICAS, why
        return error, None
