"""The transaction coordinator: finds and makes transactional ids, and connects requests, time and the log.

It is a plain state machine, as the group coordinator is: every method takes the time (`Now`) and returns effects in
order, or an answer at once; nothing waits and nothing is written here (`coordinator.effects`). It is not thread-safe and
not reentrant.

One object holds all partitions of `__transaction_state`. While a partition is loading, requests for its ids are answered
COORDINATOR_LOAD_IN_PROGRESS, which every client repeats. After loading, transactions that were decided before the broker
stopped are completed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from klamm_broker.coordinator.effects import Effect, KeyValue, Now, Token, Turn
from klamm_broker.coordinator.model import TopicPartition
from klamm_broker.coordinator.partitioning import partition_for
from klamm_broker.coordinator.producer_ids import NO_PRODUCER_EPOCH, ProducerIdResult
from klamm_broker.coordinator.timers import Timers
from klamm_broker.coordinator.transactions import transitions, view
from klamm_broker.coordinator.transactions.ending import Ending
from klamm_broker.coordinator.transactions.expiry import Expiry
from klamm_broker.coordinator.transactions.loading import Loader, largest_producer_id
from klamm_broker.coordinator.transactions.markers import MarkerWriter
from klamm_broker.coordinator.transactions.model import (
    AddRequest,
    EndRequest,
    EndResult,
    InitRequest,
    ListFilter,
    ListResult,
    ProducerRequest,
    TransactionConfig,
    TransactionDescription,
)
from klamm_broker.coordinator.transactions.state import PREPARED, TransactionState
from klamm_broker.coordinator.transactions.table import TransactionTable
from klamm_broker.coordinator.transactions.transaction import Recorded, Transaction, is_exhausted
from klamm_kafka.wire.errors import ErrorCode

OpenTransaction = tuple[Transaction, int]
"""A transactional id, and the number of its open transaction."""
_TIMEOUTS = ("timeouts",)
_EXPIRY = ("expiry",)


class TransactionCoordinator:
    """The coordinator of all transactional ids.

    `new_producer_id` returns an id that was never used, `coordinator_epoch` the leader epoch of a partition of
    `__transaction_state`, `transaction_version` the broker's feature level.
    """

    def __init__(
        self,
        config: TransactionConfig,
        *,
        new_producer_id: Callable[[], ProducerIdResult],
        coordinator_epoch: Callable[[int], int],
        transaction_version: Callable[[], int] = lambda: 2,
    ) -> None:
        self.config = config
        self._new_producer_id = new_producer_id
        self._turn = Turn()
        self._timers = Timers()
        self._table = TransactionTable(self._turn, transaction_version)
        self._markers = MarkerWriter(self._table, self._turn, self._timers, coordinator_epoch)
        self._ending = Ending(self._table, self._turn, self._markers, new_producer_id)
        self._expiry = Expiry(config, self._table, self._turn, self._ending)
        self._loading: dict[int, Loader] = {}

    @property
    def transactions(self) -> Mapping[str, Transaction]:
        """The loaded transactions, by transactional id."""
        return self._table.by_id

    # InitProducerId

    def init(self, request: InitRequest, token: Token, now: Now) -> list[Effect]:
        """Handle an InitProducerId with a transactional id. The reply is a ProducerIdResult."""
        self._turn.begin(now)
        error = self._refused(request)
        if error is not ErrorCode.NONE:
            self._turn.reply(token, ProducerIdResult(error=error))
            return self._turn.end()
        transaction = self._table.by_id.get(request.transactional_id)
        if transaction is None:
            transaction, error = self._make(request)
        if transaction is None or (error := _refused_init(transaction, request)) is not ErrorCode.NONE:
            self._turn.reply(token, ProducerIdResult(error=error))
        elif transaction.recorded.state is TransactionState.ONGOING:
            self._fence(transaction, token)
        else:
            self._begin_epoch(transaction, request, token)
        return self._turn.end()

    def _refused(self, request: InitRequest) -> ErrorCode:
        if not request.transactional_id:
            return ErrorCode.INVALID_REQUEST
        if not 0 < request.timeout_ms <= self.config.max_timeout_ms:
            return ErrorCode.INVALID_TRANSACTION_TIMEOUT
        return self.unavailable(request.transactional_id)

    def _make(self, request: InitRequest) -> tuple[Transaction | None, ErrorCode]:
        made = self._new_producer_id()
        if made.error is not ErrorCode.NONE:
            return None, made.error
        recorded = Recorded(
            producer_id=made.producer_id, timeout_ms=request.timeout_ms, updated_ms=self._turn.now.wall_ms
        )
        transactional_id = request.transactional_id
        transaction = Transaction(
            transactional_id, recorded, log_partition=self.partition_for(transactional_id)
        )
        self._table.put(transaction)
        return transaction, ErrorCode.NONE

    def _fence(self, transaction: Transaction, token: Token) -> None:
        """Abort the open transaction of an earlier producer. The new producer comes again and gets the epoch after that."""

        def done(result: EndResult) -> None:
            failed = result.error is not ErrorCode.NONE
            error = result.error if failed else ErrorCode.CONCURRENT_TRANSACTIONS
            self._turn.reply(token, ProducerIdResult(error=error))

        self._ending.abort(transaction, done)

    def _begin_epoch(self, transaction: Transaction, request: InitRequest, token: Token) -> None:
        new = self._next_epoch(transaction.recorded, request)
        if isinstance(new, ErrorCode):
            self._turn.reply(token, ProducerIdResult(error=new))
            return
        prepared = transaction.prepare(new)

        def done(error: ErrorCode) -> None:
            if error is ErrorCode.NONE:
                result = ProducerIdResult(producer_id=prepared.producer_id, producer_epoch=prepared.epoch)
            else:
                result = ProducerIdResult(error=error)
            self._turn.reply(token, result)

        self._table.write(transaction, prepared, done)

    def _next_epoch(self, recorded: Recorded, request: InitRequest) -> Recorded | ErrorCode:
        expected_epoch = None if request.expected is None else request.expected[1]
        now_ms = self._turn.now.wall_ms
        if recorded.epoch_exhausted and expected_epoch in (None, recorded.epoch):
            made = self._new_producer_id()
            if made.error is not ErrorCode.NONE:
                return made.error
            return transitions.begin_id(
                recorded,
                made.producer_id,
                timeout_ms=request.timeout_ms,
                record_last_epoch=expected_epoch is not None,
                now_ms=now_ms,
            )
        return transitions.begin_epoch(
            recorded, timeout_ms=request.timeout_ms, expected_epoch=expected_epoch, now_ms=now_ms
        )

    # Partitions

    def add_partitions(self, request: AddRequest, token: Token, now: Now) -> list[Effect]:
        """Add partitions to the producer's transaction, which begins with the first. The reply is an ErrorCode."""
        self._turn.begin(now)
        missing, transaction = self._find(request)
        answer = missing if transaction is None else _refused_add(transaction, request)
        if transaction is None or answer is not None:
            self._turn.reply(token, answer)
            return self._turn.end()
        added = transitions.add_partitions(
            transaction.recorded,
            request.partitions,
            client_version=request.client_version,
            now_ms=now.wall_ms,
        )
        self._table.write(
            transaction, transaction.prepare(added), lambda error: self._turn.reply(token, error)
        )
        return self._turn.end()

    def verify_partitions(
        self, request: ProducerRequest, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """Check that these are part of the producer's open transaction. Returns TRANSACTION_ABORTABLE for those that are not."""
        error, transaction = self._find(request)
        if transaction is not None:
            recorded = transaction.recorded
            error = _refused_producer(recorded, request)
            if error is ErrorCode.NONE:
                inside = transaction.undecided
                return {
                    at: ErrorCode.NONE if at in inside else ErrorCode.TRANSACTION_ABORTABLE
                    for at in partitions
                }
        return dict.fromkeys(partitions, error)

    def open_transaction(self, request: ProducerRequest) -> OpenTransaction | None:
        """Returns the producer's open transaction, which equals no other one; None when it has none.

        Until it is decided, no marker of it is written: what is appended before belongs to it.
        """
        _, transaction = self._find(request)
        if transaction is None or transaction.recorded.state is not TransactionState.ONGOING:
            return None
        if _refused_producer(transaction.recorded, request) is not ErrorCode.NONE:
            return None
        return transaction, transaction.decided

    # The end

    def end(self, request: EndRequest, token: Token, now: Now) -> list[Effect]:
        """Handle an EndTxn. The reply is an EndResult."""
        self._turn.begin(now)
        error, transaction = self._find(request)
        if transaction is None:
            self._turn.reply(token, EndResult(error))
        else:
            self._ending.end(transaction, request, lambda result: self._turn.reply(token, result))
        return self._turn.end()

    # Administration

    def describe(self, transactional_id: str) -> TransactionDescription:
        """Answer a DescribeTransactions for one id."""
        error = self.unavailable(transactional_id) if transactional_id else ErrorCode.INVALID_REQUEST
        if error is not ErrorCode.NONE:
            return TransactionDescription(transactional_id=transactional_id, error=error)
        return view.describe(transactional_id, self._table.by_id.get(transactional_id))

    def list_transactions(self, wanted: ListFilter, now: Now) -> ListResult:
        """Answer a ListTransactions."""
        if self._loading:
            return ListResult(error=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return view.list_transactions(self._table.by_id.values(), wanted, now_ms=now.wall_ms)

    def statistics(self) -> Mapping[str, int]:
        """Returns numbers for metrics and logs: transactional ids by state."""
        counts = {state.title: 0 for state in TransactionState}
        for transaction in self._table.by_id.values():
            counts[transaction.recorded.state.title] += 1
        return counts

    # Time

    def start(self, now: Now) -> None:
        """Begin to look for time-outs and unused ids. Called once."""
        self._timers.set(_TIMEOUTS, now.mono_ms + self.config.timeout_check_interval_ms)
        self._timers.set(_EXPIRY, now.mono_ms + self.config.expiry_check_interval_ms)

    def next_deadline_ms(self) -> int | None:
        """Returns the time of the next necessary `tick`, on the clock of `Now.mono_ms`. An earlier call does no harm."""
        return self._timers.next_ms()

    def tick(self, now: Now) -> list[Effect]:
        """Do what is due."""
        self._turn.begin(now)
        while (key := self._timers.pop_due(now.mono_ms)) is not None:
            if key == _TIMEOUTS:
                self._timers.set(_TIMEOUTS, now.mono_ms + self.config.timeout_check_interval_ms)
                self._expiry.abort_timed_out()
            elif key == _EXPIRY:
                self._timers.set(_EXPIRY, now.mono_ms + self.config.expiry_check_interval_ms)
                self._expiry.forget_unused()
            else:
                self._markers.retry(key[1])
        return self._turn.end()

    # Loading

    def start_loading(self, partition: int) -> None:
        """Make the partition's ids unavailable until its records have been replayed."""
        self._loading[partition] = Loader()

    def replay(self, partition: int, batch: Iterable[KeyValue]) -> None:
        """Take in records of a partition that is being loaded, in the order of its log."""
        if partition in self._loading:  # else the topic was deleted meanwhile
            self._loading[partition].replay(batch)

    def finish_loading(self, partition: int, now: Now) -> tuple[int, list[Effect]]:
        """Complete the decided transactions of a replayed partition. Returns the largest producer id in use, and the effects."""
        self._turn.begin(now)
        loader = self._loading.pop(partition, None)
        loaded = [] if loader is None else loader.transactions(partition)
        for transaction in loaded:
            self._table.put(transaction)
        for transaction in loaded:
            if transaction.recorded.state in PREPARED:
                self._markers.begin(transaction)
            elif transaction.recorded.state is TransactionState.PREPARE_EPOCH_FENCE:
                self._ending.resume_fence(transaction)
        return largest_producer_id(loaded), self._turn.end()

    # Finding transactions

    def on_topic_created(self, partitions: int) -> None:
        """Take over the number of partitions of the new, empty `__transaction_state`; its creator chose it."""
        self.config = self.config._replace(log_partitions=partitions)
        for transaction in self._table.by_id.values():
            transaction.log_partition = self.partition_for(transaction.transactional_id)

    def on_topic_deleted(self) -> None:
        """Forget every transactional id, as `__transaction_state` is gone."""
        self._table.clear()
        self._markers.clear()
        self._loading.clear()

    def partition_for(self, transactional_id: str) -> int:
        return partition_for(transactional_id, self.config.log_partitions)

    def unavailable(self, transactional_id: str) -> ErrorCode:
        """Returns COORDINATOR_LOAD_IN_PROGRESS while the partition of this id is loading, else NONE."""
        if self._loading and self.partition_for(transactional_id) in self._loading:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return ErrorCode.NONE

    def _find(self, request: ProducerRequest) -> tuple[ErrorCode, Transaction | None]:
        if not request.transactional_id:
            return ErrorCode.INVALID_REQUEST, None
        error = self.unavailable(request.transactional_id)
        if error is not ErrorCode.NONE:
            return error, None
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING, self._table.by_id.get(request.transactional_id)


def _refused_init(transaction: Transaction, request: InitRequest) -> ErrorCode:
    if transaction.pending is not None:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    recorded = transaction.recorded
    if request.expected is not None and recorded.epoch != NO_PRODUCER_EPOCH:
        producer_id, epoch = request.expected
        # The previous id may come from a repeated request, whose answer with the new id was lost.
        is_repeated = producer_id == recorded.previous_producer_id and is_exhausted(epoch)
        if producer_id != recorded.producer_id and not is_repeated:
            return ErrorCode.PRODUCER_FENCED
    return ErrorCode.CONCURRENT_TRANSACTIONS if recorded.state in PREPARED else ErrorCode.NONE


def _refused_add(transaction: Transaction, request: AddRequest) -> ErrorCode | None:
    """Returns the answer that can be given at once; None for partitions that must be written."""
    if transaction.pending is not None:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    recorded = transaction.recorded
    error = _refused_producer(recorded, request)
    if error is not ErrorCode.NONE:
        return error
    if recorded.state is TransactionState.ONGOING and request.partitions <= recorded.partitions:
        return ErrorCode.NONE
    return None


def _refused_producer(recorded: Recorded, request: ProducerRequest) -> ErrorCode:
    if recorded.producer_id != request.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if recorded.epoch != request.producer_epoch:
        return ErrorCode.PRODUCER_FENCED
    return ErrorCode.CONCURRENT_TRANSACTIONS if recorded.state in PREPARED else ErrorCode.NONE
