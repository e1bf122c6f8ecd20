"""Transactions in simulated time: producers of both versions that begin, write, commit, abort, come back and fence each
other; appends and markers that wait and fail; time-outs; crashes at any moment; random, and shrunk by Hypothesis.

Invariants, after every step:

1. the producer id and epoch of a transactional id never go back, and are never given to two producers; one that is
   fenced writes nothing;
2. a transaction that is open in a partition is known to the coordinator: none hangs;
3. a transaction is never decided in both ways, and one that was answered is decided as it was answered;
4. what a coordinator that loads the log knows is what the live one knows.

And at the end, when the disks work again: nothing is left prepared, and only what is ongoing is open.
"""

from __future__ import annotations

import itertools
from functools import partial

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, multiple, rule
from support.txn_sim import WALL_MS, DataPartition, Sim

from klamm_broker.coordinator.model import TopicPartition
from klamm_broker.coordinator.transactions import records
from klamm_broker.coordinator.transactions.markers import RETRY_MS
from klamm_broker.coordinator.transactions.model import (
    AddRequest,
    EndRequest,
    EndResult,
    InitRequest,
    ProducerRequest,
)
from klamm_broker.coordinator.transactions.state import PREPARED, TransactionState
from klamm_broker.coordinator.transactions.transaction import EPOCH_MAX, Recorded
from klamm_broker.log.errors import LogError
from klamm_kafka.wire.errors import ErrorCode as E

NAMES = ("a", "b")  # few, so that producers meet
PARTITIONS = tuple(TopicPartition("t", i) for i in range(3))
TIMEOUT_MS = 60_000
OUTCOMES = st.sampled_from((E.NONE, E.NONE, E.KAFKA_STORAGE_ERROR, None))
VERSIONS = st.sampled_from((0, 2, 2))
FAILURES = (E.KAFKA_STORAGE_ERROR, E.NOT_ENOUGH_REPLICAS)


class Client:
    """A producer as clients are: one request at a time, and a new object for each transaction of its own."""

    def __init__(self, name: str, producer_id: int, epoch: int, version: int) -> None:
        self.name, self.producer_id, self.epoch, self.version = name, producer_id, epoch, version
        self.begin()

    def begin(self) -> None:
        self.transaction = object()
        self.added: set[TopicPartition] = set()

    @property
    def is_me(self) -> dict:
        return {
            "transactional_id": self.name,
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
        }


class Transactions(RuleBasedStateMachine):
    clients = Bundle("clients")

    def __init__(self) -> None:
        super().__init__()
        self.sim = Sim(auto=False, id_expiration_ms=7 * 24 * 3_600_000)
        self.sim.data = {at: DataPartition() for at in PARTITIONS}
        self.seen: dict[str, tuple[int, int]] = {}
        self.newest: dict[str, tuple[int, int]] = {}
        self.answered: dict[object, bool] = {}
        self.earlier: dict[str, list[Client]] = {}
        self.settled: dict[object, bool] = {}

    @initialize(level=st.sampled_from((2, 2, 1)), worn=st.booleans())
    def before(self, level, worn):
        """Sets the broker's feature level: below 2 it fences producers in another way, and no client speaks version 2.

        A worn id has few epochs left.
        """
        self.sim.transaction_version = level
        if worn:
            recorded = Recorded(producer_id=0, epoch=EPOCH_MAX - 4, timeout_ms=TIMEOUT_MS, updated_ms=WALL_MS)
            record = records.encode(NAMES[0], recorded, transaction_version=level)
            self.sim.state[self.sim.coordinator.partition_for(NAMES[0])] = [record]
            self.sim.first_free = 1
            self.sim.restart()

    def request(self, call, *, outcome=E.NONE):
        """Returns the answer, when it comes at once or after what `outcome` says of an append; None when it is lost.

        Without an outcome what it asked for stays under way, and others come upon it.
        """
        token = self.sim.ask(call)
        for _ in range(0 if outcome is None else 3):
            if token in self.sim.replies:
                return self.sim.replies[token]
            if not self.sim.in_flight:
                return None
            self.sim.finish(next(reversed(self.sim.in_flight)), outcome)
            outcome = E.NONE
        return self.sim.replies.get(token)

    # Producers

    @rule(target=clients, name=st.sampled_from(NAMES), version=VERSIONS, outcome=OUTCOMES)
    def init(self, name, version, outcome):
        client = self.begin(name, version, outcome)
        return multiple() if client is None else client

    @rule(
        target=clients,
        name=st.sampled_from(NAMES),
        version=VERSIONS,
        parts=st.sets(st.sampled_from(PARTITIONS), min_size=1),
        committed=st.sampled_from((True, False, None)),
        outcome=OUTCOMES,
        works=st.booleans(),
    )
    def transact(self, name, version, parts, committed, outcome, works):
        """Does most of what producers do: a transaction from beginning to end, or left open."""
        client = self.begin(name, version, E.NONE)
        if client is None:
            return multiple()
        for at in sorted(parts):
            self.produce(client, at, E.NONE)
        if committed is not None:
            self.decide(client, committed=committed, outcome=outcome)
            if outcome is None:  # it comes again
                self.decide(client, committed=committed, outcome=E.NONE)
        if works:
            self.sim.finish_all()
            for zombie in self.earlier.get(name, ())[-3:]:
                self.decide(zombie, committed=bool(committed), outcome=E.NONE)
        self.earlier.setdefault(name, []).append(client)
        return client

    def begin(self, name, version, outcome):
        request = InitRequest(transactional_id=name, timeout_ms=TIMEOUT_MS)
        answer = self.request(partial(self.sim.coordinator.init, request), outcome=outcome)
        return self.started(name, answer, version if self.sim.transaction_version == 2 else 0)

    @rule(target=clients, client=consumes(clients))
    def recover(self, client):
        """KIP-360: a producer goes on after an error under the id and epoch that it has."""
        expected = (client.producer_id, client.epoch)
        request = InitRequest(transactional_id=client.name, timeout_ms=TIMEOUT_MS, expected=expected)
        answer = self.request(lambda token, now: self.sim.coordinator.init(request, token, now))
        recovered = self.started(client.name, answer, client.version)
        return multiple() if recovered is None else recovered

    def started(self, name, answer, version):
        if answer is None or answer.error is not E.NONE:
            return None
        now = (answer.producer_id, answer.producer_epoch)
        assert answer.producer_epoch < EPOCH_MAX, "nobody could fence it"
        assert now > self.newest.get(name, (-1, -1)), "given to an earlier producer as well"
        self.newest[name] = now
        return Client(name, answer.producer_id, answer.producer_epoch, version)

    @rule(client=clients, at=st.sampled_from(PARTITIONS), outcome=OUTCOMES)
    def write(self, client, at, outcome):
        self.produce(client, at, outcome)

    def produce(self, client, at, outcome):
        """Produces as clients and Produce do: add, by the client or (version 2) by the broker, or verify, then append.

        A client of version 0 adds a partition to each of its transactions, also while the marker of the last one is not written.
        """
        producer = ProducerRequest(**client.is_me)
        coordinator, partition = self.sim.coordinator, self.sim.data[at]
        known = partition.producers.in_transaction(client.producer_id, client.epoch)
        if not known if client.version == 2 else at not in client.added:
            add = AddRequest(**client.is_me, partitions=frozenset({at}), client_version=client.version)
            call = partial(coordinator.add_partitions, add)
            if self.request(call, outcome=outcome) is not E.NONE:
                return
            client.added.add(at)
        if (
            client.version == 0
            and not known
            and coordinator.verify_partitions(producer, [at])[at] is not E.NONE
        ):
            return
        try:
            partition.write(client.producer_id, client.epoch, client.transaction)
        except LogError:
            return
        assert (client.producer_id, client.epoch) == self.newest[client.name], "a fenced producer has written"

    @rule(client=clients, committed=st.booleans(), outcome=OUTCOMES)
    def end(self, client, committed, outcome):
        self.decide(client, committed=committed, outcome=outcome)

    def decide(self, client, *, committed, outcome):
        request = EndRequest(**client.is_me, committed=committed, client_version=client.version)
        answer = self.request(partial(self.sim.coordinator.end, request), outcome=outcome)
        assert answer is None or isinstance(answer, EndResult)
        if answer is None:
            client.begin()  # what it writes now may be in the same transaction, or in the next
            return
        if answer.error is not E.NONE:
            return
        assert (client.producer_id, client.epoch) == self.newest[client.name], "a fenced producer has decided"
        self.answered[client.transaction] = committed
        if client.version == 2:
            assert (answer.producer_id, answer.producer_epoch) > (client.producer_id, client.epoch)
            assert answer.producer_epoch < EPOCH_MAX, "nobody could fence it"
            client.producer_id, client.epoch = self.newest[client.name] = (
                answer.producer_id,
                answer.producer_epoch,
            )
        client.begin()

    # The world

    @rule(which=st.integers(0, 10), errors=st.lists(st.sampled_from((E.NONE, E.NONE, *FAILURES)), min_size=1))
    def finish(self, which, errors):
        for error in errors:
            logs = list(self.sim.in_flight)
            if logs:
                self.sim.finish(logs[which % len(logs)], error)

    @rule(ms=st.sampled_from((RETRY_MS, TIMEOUT_MS // 3, TIMEOUT_MS)))
    def wait(self, ms):
        self.sim.advance(ms)

    @rule(written=st.integers(0, 3))
    def crash(self, written):
        self.sim.restart(written=written)

    # Invariants

    @invariant()
    def ids_and_epochs_grow(self):
        for name, transaction in self.sim.coordinator.transactions.items():
            recorded = transaction.recorded
            now = (recorded.producer_id, recorded.epoch)
            if recorded.epoch >= 0 and not is_raised_in_memory(transaction):
                assert self.seen.get(name, now) <= now, name
                self.seen[name] = now

    @invariant()
    def no_transaction_hangs(self):
        known = {
            (t.recorded.producer_id, at)
            for t in self.sim.coordinator.transactions.values()
            if t.recorded.state is TransactionState.ONGOING or t.recorded.state in PREPARED
            for at in t.recorded.partitions
        }
        for at, partition in self.sim.data.items():
            for entry in partition.producers.entries.values():
                if entry.current_txn_first_offset is not None:
                    assert (entry.producer_id, at) in known

    @invariant()
    def fates_agree(self):
        writes = itertools.chain.from_iterable(p.writes for p in self.sim.data.values())
        for write in writes:
            if write.committed is None:
                continue
            fate = self.settled.setdefault(write.transaction, write.committed)
            assert fate is write.committed, "committed here and aborted there"
            answered = self.answered.get(write.transaction)
            assert answered in (None, fate), "decided, but not as it was answered"

    @invariant()
    def the_log_says_the_same(self):
        if not any(isinstance(log, int) for log in self.sim.in_flight):
            raised = {n for n, t in self.sim.coordinator.transactions.items() if is_raised_in_memory(t)}
            replayed, live = self.sim.replayed(), self.sim.live()
            for name in replayed.keys() | live.keys():
                assert name in raised or replayed[name] == live[name]

    def teardown(self):
        for _ in range(3):
            self.sim.finish_all()
            self.sim.advance(RETRY_MS)
        self.sim.finish_all()
        for transaction in self.sim.coordinator.transactions.values():
            assert transaction.recorded.state not in PREPARED
            assert transaction.pending is None
        self.no_transaction_hangs()
        self.fates_agree()
        self.the_log_says_the_same()


def is_raised_in_memory(transaction):
    """Below version 2 the epoch of a fence is there before it is written, as in Kafka: nobody is given it."""
    return transaction.failed_fence or transaction.pending is TransactionState.PREPARE_ABORT


TestTransactions = Transactions.TestCase
TestTransactions.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)


def test_the_end_of_a_fenced_producer_is_no_repetition_of_its_successors():
    """The successor ends its transaction in version 0: its epoch is the next one, but not by that end."""
    state = Transactions()
    state.before(level=2, worn=False)
    parts = {PARTITIONS[0]}
    first = state.transact(name="a", version=2, parts=parts, committed=True, outcome=E.NONE, works=True)
    state.transact(name="a", version=0, parts=parts, committed=True, outcome=E.NONE, works=True)
    assert (first.producer_id, first.epoch) < state.newest["a"]
    state.teardown()


def test_a_client_of_version_0_writes_nothing_more_before_the_markers():
    """Its next transaction begins with AddPartitionsToTxn, which is refused until the last one is complete."""
    state, at = Transactions(), PARTITIONS[0]
    state.before(level=2, worn=False)
    client = state.transact(name="a", version=0, parts={at}, committed=True, outcome=E.NONE, works=False)
    state.write(client=client, at=at, outcome=E.NONE)
    assert len(state.sim.data[at].writes) == 1
    state.finish(which=0, errors=[E.NONE, E.NONE])
    state.write(client=client, at=at, outcome=E.NONE)
    state.decide(client, committed=False, outcome=E.NONE)
    state.teardown()
    assert [write.committed for write in state.sim.data[at].writes] == [True, False]
