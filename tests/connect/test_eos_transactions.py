"""The ends of a source's transactions, with records and offsets in the same one: with a producer in the test's hand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson
import pytest
from confluent_kafka import KafkaError, KafkaException
from hypothesis import given, settings
from hypothesis import strategies as st
from support.runtime import task_spec
from support.runtime_fakes import FakeProducer, RecordingControl, string_converters

from klamm.connect.child.exactly_once import ExactlyOnceRunner
from klamm.connect.child.offset_writer import OffsetCopy, encode_key
from klamm.connect.child.plugins import Converters
from klamm.connect.child.transactions import (
    Boundaries,
    ConnectorBoundaries,
    ContextError,
    End,
    IntervalBoundaries,
    PollBoundaries,
    Transactions,
    WorkerTransactionContext,
    boundaries,
)
from klamm.connect.child.transform_chain import TransformChain
from klamm.connect.model import Kind
from klamm_plugins.batch import SourceBatch
from klamm_plugins.connector import SourceTask
from klamm_plugins.converters.json import JsonConverter
from klamm_plugins.errors import ConnectError, RetriableError
from klamm_plugins.records import SourceRecord
from klamm_plugins.schema import STRING

OFFSETS = "connect-offsets"


class Crash(Exception):
    """The process is gone: nothing after this happens."""


class Broker:
    """A broker that holds what is committed, over the lives of several producers."""

    def __init__(self) -> None:
        self.values: list[bytes] = []
        self.position = 0

    def commit(self, sent: list[Any]) -> None:
        for each in sent:
            if each.topic == OFFSETS:
                self.position = orjson.loads(each.value)["position"]
            else:
                self.values.append(each.value)


class TransactionalFake(FakeProducer):
    """A transactional producer: `crash_at` counts calls down to the one in which the process dies."""

    def __init__(self, broker: Broker | None = None, crash_at: int = -1) -> None:
        super().__init__()
        self.broker = broker or Broker()
        self.crash_at = crash_at
        self.open: list[Any] | None = None
        self.log: list[str] = []
        self.errors: list[KafkaError] = []  # raised by the next commits

    def _call(self, what: str) -> None:
        self.log.append(what)
        if self.crash_at == 0:
            raise Crash
        self.crash_at -= 1

    def init_transactions(self, timeout: float = -1) -> None:
        self._call("init")

    def begin_transaction(self) -> None:
        assert self.open is None, "a transaction is open already"
        self._call("begin")
        self.open = []

    def produce(self, topic: str, value: bytes | None, key: bytes | None, *rest: Any) -> None:
        assert self.open is not None, "records need a transaction"
        self._call(f"send {topic}")
        super().produce(topic, value, key, *(rest or (-1, None)), *(() if len(rest) > 1 else (None,)))
        self.open.append(self.all[-1])

    def commit_transaction(self, timeout: float = -1) -> None:
        if self.errors:
            raise KafkaException(self.errors.pop(0))
        self._call("commit")
        assert self.open is not None
        self.broker.commit(self.open)
        self.open = None
        for sent in self.held[:]:
            self.ack(sent)
        self.poll(0)
        if self.crash_at == 0:
            raise Crash  # committed, but nobody has heard of it

    def abort_transaction(self, timeout: float = -1) -> None:
        self._call("abort")
        self.open = None
        self.held.clear()


class Lines(SourceTask):
    """Gives out the numbers from `position` to `end`, `batch` at a time; `columns` as a SourceBatch."""

    def __init__(self, control: Any, position: int, end: int, batch: int, *, columns: bool = False) -> None:
        self.control, self.next, self.end_at, self.batch = control, position, end, batch
        self.columns = columns
        self.context: Any = None

    def start(self, props: Any) -> None:
        pass

    def poll(self) -> Any:
        numbers = list(range(self.next, min(self.next + self.batch, self.end_at)))
        if not numbers:
            self.control.ask_to_stop(60.0)
            return None
        self.next = numbers[-1] + 1
        if self.columns:
            texts = [str(n) for n in numbers]
            return SourceBatch(
                {"file": "a"},
                "t",
                texts,
                [n + 1 for n in numbers],
                offset_name="position",
                value_schema=STRING,
            )
        records = [record(n) for n in numbers]
        self.polled(records)
        return records

    def polled(self, records: list[SourceRecord]) -> None:
        """Does nothing; subclasses override it."""


def record(n: int, topic: str = "t") -> SourceRecord:
    return SourceRecord({"file": "a"}, {"position": n + 1}, topic, value_schema=STRING, value=str(n))


@pytest.fixture
def control() -> Iterator[RecordingControl]:
    made = RecordingControl()
    yield made
    made.close()


def runner(
    control: Any,
    task: SourceTask,
    producer: TransactionalFake,
    ends: Boundaries | None = None,
    config: dict[str, str] | None = None,
    converters: Converters | None = None,
    **more: Any,
) -> ExactlyOnceRunner:
    return ExactlyOnceRunner(
        control=control,
        spec=task_spec("src", config or {}, kind=Kind.SOURCE),
        task=task,
        converters=converters or string_converters(),
        producer=producer,
        transactions=Transactions(producer, control, id="g-src-0", timeout_s=60),
        boundaries=ends or PollBoundaries(),
        offsets_topic=OFFSETS,
        commit_interval_s=60,
        commit_timeout_s=5,
        **more,
    )


@given(
    crashes=st.lists(st.integers(0, 25), max_size=6),
    batch=st.integers(1, 7),
    columns=st.booleans(),
    interval=st.booleans(),
)
@settings(max_examples=120, deadline=None)
def test_whenever_the_process_dies_each_record_is_committed_once(
    crashes: list[int], batch: int, columns: bool, interval: bool
) -> None:
    """A new process goes on at the committed offset; what was open is aborted by its fencing."""
    broker, end = Broker(), 30
    for crash_at in [*crashes, -1]:
        control = RecordingControl()
        try:
            task = Lines(control, broker.position, end, batch, columns=columns)
            ends = IntervalBoundaries(0.0) if interval else PollBoundaries()
            runner(control, task, TransactionalFake(broker, crash_at), ends).run()
        except Crash:
            continue
        finally:
            control.close()
    assert broker.values == [str(n).encode() for n in range(end)]
    assert broker.position == end


def test_each_poll_is_a_transaction_of_records_and_then_offsets(control: Any) -> None:
    producer = TransactionalFake()
    runner(control, Lines(control, 0, 3, 2), producer).run()
    one = ["begin", "send t", "send t", f"send {OFFSETS}", "commit"]
    assert producer.log == [*one, "begin", "send t", f"send {OFFSETS}", "commit"]
    offsets = producer.to(OFFSETS)
    assert [o.key for o in offsets] == [encode_key("src", {"file": "a"})] * 2
    assert control.vitals.records == 3
    assert control.vitals.figures["transaction-size-max"] == 2


def test_an_interval_collects_polls_and_the_end_commits_the_rest(control: Any) -> None:
    producer = TransactionalFake()
    runner(control, Lines(control, 0, 6, 2), producer, IntervalBoundaries(60)).run()
    assert producer.log.count("commit") == 1
    assert producer.broker.position == 6


def test_the_connector_says_where_transactions_end(control: Any) -> None:
    ends = ConnectorBoundaries()

    class Telling(Lines):
        def polled(self, records: list[SourceRecord]) -> None:
            for each in records:
                if each.value in {"1", "4"}:
                    ends.context.commit_transaction(each)
                if each.value == "7":
                    ends.context.abort_transaction(each)

    producer = TransactionalFake()
    runner(control, Telling(control, 0, 12, 10), producer, ends).run()
    # 5, 6, 7 are aborted but passed; 8 to 11 are never committed: the task did not say so.
    assert producer.broker.values == [b"0", b"1", b"2", b"3", b"4"]
    assert producer.broker.position == 8
    assert producer.open is None, "what was open is aborted at the end"


def test_a_whole_batch_is_committed_or_aborted_when_the_connector_asks(control: Any) -> None:
    ends = ConnectorBoundaries()

    class Telling(Lines):
        def polled(self, records: list[SourceRecord]) -> None:
            if records[0].value == "2":
                ends.context.abort_transaction()
            else:
                ends.context.commit_transaction()

    producer = TransactionalFake()
    runner(control, Telling(control, 0, 6, 2), producer, ends).run()
    assert producer.broker.values == [b"0", b"1", b"4", b"5"]
    assert producer.broker.position == 6


def test_both_ends_of_one_transaction_fail_the_task(control: Any) -> None:
    ends = ConnectorBoundaries()
    ends.context.commit_transaction()
    ends.context.abort_transaction()
    with pytest.raises(ContextError, match="both commit and abort of same transaction"):
        runner(control, Lines(control, 0, 2, 2), TransactionalFake(), ends).run()
    context, one = WorkerTransactionContext(), record(1)
    context.commit_transaction(one)
    context.abort_transaction(one)
    with pytest.raises(
        ContextError, match="both commit and abort of same record against topic/partition t/None"
    ):
        list(context.cut([one]))


def test_equal_records_are_told_apart() -> None:
    context = WorkerTransactionContext()
    first, second = record(1), record(1)
    context.commit_transaction(second)
    assert list(context.cut([first, second, record(2)])) == [
        ([first, second], End.COMMIT),
        ([record(2)], None),
    ]


def test_what_fails_is_aborted_and_nothing_of_it_is_committed(control: Any) -> None:
    producer = TransactionalFake()
    producer.errors = [KafkaError(KafkaError.MSG_SIZE_TOO_LARGE, "too large", txn_requires_abort=True)]
    with pytest.raises(ConnectError, match="A transaction of g-src-0 could not be committed: too large"):
        runner(control, Lines(control, 0, 2, 2), producer).run()
    assert producer.log[-1] == "abort"
    assert producer.broker.values == []


def test_a_broker_that_is_away_is_waited_for(control: Any) -> None:
    producer = TransactionalFake()
    away = KafkaError(KafkaError._TIMED_OUT, "away", retriable=True)
    producer.errors = [away, away]
    runner(control, Lines(control, 0, 2, 2), producer).run()
    assert producer.broker.values == [b"0", b"1"]


def test_a_fenced_task_says_why_and_may_be_started_again(control: Any) -> None:
    producer = TransactionalFake()
    producer.errors = [KafkaError(KafkaError._FENCED, "fenced", fatal=True)]
    with pytest.raises(
        RetriableError, match=r"taken over its transactional id, or it was unable .* after 60 s"
    ):
        runner(control, Lines(control, 0, 2, 2), producer).run()


def test_records_for_the_offsets_topic_are_refused(control: Any) -> None:
    class Own(Lines):
        def polled(self, records: list[SourceRecord]) -> None:
            records[0].topic = OFFSETS

    with pytest.raises(ConnectError, match="may not produce to their own offsets topics"):
        runner(control, Own(control, 0, 2, 2), TransactionalFake()).run()


def test_a_task_hears_of_its_records_once_they_are_committed(control: Any) -> None:
    producer = TransactionalFake()

    class Telling(Lines):
        told: list[tuple[Any, Any]] = []  # noqa: RUF012 - of this test only

        def commit_record(self, record: SourceRecord, metadata: Any) -> None:
            assert producer.open is None
            self.told.append((record.value, metadata and metadata.offset))

    task = Telling(control, 0, 2, 2)
    runner(control, task, producer).run()
    assert task.told == [("0", 17), ("1", 17)]


def test_offsets_are_copied_to_the_workers_topic_after_the_commit(control: Any) -> None:
    producer, copies = TransactionalFake(), FakeProducer(auto=True)
    runner(control, Lines(control, 0, 2, 2), producer, copy=OffsetCopy(copies, "workers")).run()
    assert [(s.key, s.value) for s in copies.to("workers")] == [
        (s.key, s.value) for s in producer.to(OFFSETS)
    ]


def test_a_pause_leaves_no_transaction_open(control: Any) -> None:
    producer = TransactionalFake()
    states: list[bool] = []

    class Pausing(Lines):
        def polled(self, records: list[SourceRecord]) -> None:
            control.paused = True

    def wait(_: float) -> None:
        states.append(producer.open is None)
        control.paused = False

    control.wait_for_order = wait
    runner(control, Pausing(control, 0, 2, 1), producer, IntervalBoundaries(60)).run()
    assert states == [True, True]
    assert producer.broker.position == 2


@pytest.mark.parametrize(
    ("config", "kind", "interval_s"),
    [
        ({}, PollBoundaries, None),
        ({"transaction.boundary": "POLL"}, PollBoundaries, None),
        ({"transaction.boundary": "connector"}, ConnectorBoundaries, None),
        ({"transaction.boundary": "interval"}, IntervalBoundaries, 10.0),
        ({"transaction.boundary": "interval", "transaction.boundary.interval.ms": "500"}, IntervalBoundaries, 0.5),
        ({"transaction.boundary": "interval", "transaction.boundary.interval.ms": "60000"}, IntervalBoundaries, 45.0),
    ],
)  # fmt: skip
def test_boundaries_by_config(config: dict[str, str], kind: type, interval_s: float | None) -> None:
    found = boundaries(config, flush_interval_s=10.0, timeout_s=60.0)
    assert type(found) is kind
    if isinstance(found, IntervalBoundaries):
        assert found.interval_s == interval_s


def test_a_bad_record_is_left_out_and_its_offset_is_committed(control: Any) -> None:
    producer = TransactionalFake()

    class Odd(Lines):
        def polled(self, records: list[SourceRecord]) -> None:
            records[-1].value = object()

    converters = Converters(json_converter(), json_converter(), string_converters().header)
    run = runner(
        control, Odd(control, 0, 2, 2), producer, config={"errors.tolerance": "all"}, converters=converters
    )
    run.run()
    assert producer.broker.values == [b'"0"']
    assert producer.broker.position == 2
    assert control.vitals.errors.skipped == 1


def test_polls_of_which_nothing_is_sent_are_no_transactions_of_their_own(control: Any) -> None:
    """Records that transforms drop need not be read again, but are not worth two round trips each time."""
    producer = TransactionalFake()

    class DropAll(TransformChain):
        def __bool__(self) -> bool:
            return True

        def apply(self, records: Any, tolerance: Any) -> Any:
            return [(record, None) for record in records]

    runner(control, Lines(control, 0, 10, 1), producer, chain=DropAll()).run()
    assert producer.log == ["begin", f"send {OFFSETS}", "commit"]
    assert producer.broker.position == 10


def json_converter() -> JsonConverter:
    made = JsonConverter()
    made.configure({"schemas.enable": False}, is_key=False)
    return made
