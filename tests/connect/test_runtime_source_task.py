"""The source task's loop with a producer in the test's hand: order of acknowledgements, commits, failures."""

import random

import orjson
import pytest
from confluent_kafka import KafkaError, KafkaException
from support.runtime import task_spec
from support.runtime_fakes import FakeProducer, RecordingControl, string_converters

from klamm.connect.child.offset_tracker import OffsetTracker
from klamm.connect.child.offset_writer import OffsetWriter, encode_key, encode_offset
from klamm.connect.child.plugins import Converters
from klamm.connect.child.source_task import RUN_RECORDS_MAX, SourceRunner
from klamm.connect.model import Kind
from klamm_plugins.batch import TEXT, RawValues, SourceBatch, raw_texts
from klamm_plugins.connector import SourceTask
from klamm_plugins.converters.json import JsonConverter
from klamm_plugins.errors import ConnectError, DataError, RetriableError
from klamm_plugins.records import Headers, SourceRecord
from klamm_plugins.schema import STRING

OFFSETS = "connect-offsets"


class Scripted(SourceTask):
    """Each step of the script is what one poll does: records, an exception to raise, or a call to make."""

    def __init__(self, control, script):
        self.control, self.script = control, list(script)
        self.commits = 0

    def start(self, props):
        pass

    def poll(self):
        if not self.script:
            self.control.ask_to_stop(60.0)
            return None
        step = self.script.pop(0)
        if isinstance(step, Exception):
            raise step
        return step() if callable(step) else step

    def commit(self):
        self.commits += 1


class Telling(Scripted):
    def __init__(self, control, script):
        super().__init__(control, script)
        self.told = []

    def commit_record(self, record, metadata):
        self.told.append((record.value, metadata and metadata.offset))


@pytest.fixture
def control():
    made = RecordingControl()
    yield made
    made.close()


def record(n, name="a", **more):
    return SourceRecord(
        {"filename": name}, {"position": n}, more.pop("topic", "t"), value_schema=STRING, value=str(n), **more
    )


def runner(control, task, producer, config=None, converters=None, interval_s=0.0, offset_producer=None):
    return SourceRunner(
        control=control,
        spec=task_spec("src", config or {}, kind=Kind.SOURCE),
        task=task,
        converters=converters or string_converters(),
        producer=producer,
        offset_producer=producer if offset_producer is None else offset_producer,
        commit_interval_s=interval_s,
        commit_timeout_s=5,
    )


def committed(producer, name="a"):
    """Positions written to the offset topic for one file, in order."""
    key = encode_key("src", {"filename": name})
    return [orjson.loads(s.value)["position"] for s in producer.to(OFFSETS) if s.key == key]


def test_keys_and_values_are_byte_for_byte_kafkas():
    assert encode_key("src", {"filename": "/in.txt"}) == b'["src",{"filename":"/in.txt"}]'
    assert encode_offset({"position": 150}) == b'{"position":150}'
    with pytest.raises(DataError, match=r"A source offset can hold only JSON values: \{'p': \{1\}\}"):
        encode_offset({"p": {1}})


def test_records_reach_the_producer_with_all_that_they_carry(control):
    producer = FakeProducer(auto=True)
    full = record(2, key="k", key_schema=STRING, partition=5, timestamp=99, headers=Headers.of(("h", "x")))
    task = Scripted(control, [[record(1), full]])
    runner(control, task, producer).run()
    plain, sent = producer.to("t")
    assert (plain.value, plain.key, plain.partition, plain.timestamp, plain.headers) == (
        b"1",
        None,
        0,
        0,
        None,
    )
    assert (sent.value, sent.key, sent.partition, sent.timestamp) == (b"2", b"k", 5, 99)
    assert sent.headers == [("h", b"x")]
    assert committed(producer)[-1] == 2
    assert task.commits >= 1
    assert control.notices("topics") == [{"event": "topics", "topics": ["t"]}]
    assert control.vitals.records == 2
    assert control.vitals.last_ack_ms is not None


@pytest.mark.parametrize("seed", range(20))
def test_out_of_order_acknowledgements_commit_the_contiguous_prefix_only(control, seed):
    rng = random.Random(seed)
    producer = FakeProducer()
    polls = [[record(10 * p + i, name) for i in range(3) for name in "ab"] for p in range(6)]
    acked: set[tuple[str, int]] = set()
    checked = 0

    def position(sent):
        return int(sent.value)

    def step():
        """Acknowledges one record somewhere; offsets are acknowledged at once."""
        nonlocal checked
        data = [s for s in producer.held if s.topic == "t"]
        if data and rng.random() < 0.8:
            chosen = rng.choice(data)
            producer.ack(chosen)
            acked.add((names[id(chosen)], position(chosen)))
        for sent in [s for s in producer.held if s.topic == OFFSETS]:
            name = orjson.loads(sent.key)[1]["filename"]
            reached = orjson.loads(sent.value)["position"]
            before = [
                n
                for p in polls
                for r in p
                if r.source_partition["filename"] == name and (n := int(r.value)) <= reached
            ]
            missing = [n for n in before if (name, n) not in acked]
            assert not missing, f"{name} committed at {reached} without {missing}"
            checked += 1
            producer.ack(sent)

    names = {}
    produce = producer.produce
    order = iter([r for p in polls for r in p])

    def remember(topic, value, key, *rest):
        produce(topic, value, key, *rest)
        if topic == "t":
            names[id(producer.all[-1])] = next(order).source_partition["filename"]

    producer.produce = remember
    producer.on_poll = step
    script = [s for p in polls for s in ([p], [None] * rng.randint(0, 8))]
    task = Scripted(control, [item for group in script for item in group])
    runner(control, task, producer).run()
    assert checked > 0
    assert committed(producer, "a")[-1] == committed(producer, "b")[-1] == 52
    for name in "ab":
        assert committed(producer, name) == sorted(set(committed(producer, name))), "offsets never go back"


def test_what_is_not_acknowledged_when_the_time_is_over_is_not_committed(control, caplog):
    producer = FakeProducer()
    task = Scripted(control, [[record(1)], [record(2)], lambda: control.ask_to_stop(0.3)])

    def ack_all_but_the_second():
        for sent in producer.held[:]:
            if sent.value != b"2":
                producer.ack(sent)

    producer.on_poll = ack_all_but_the_second
    runner(control, task, producer, interval_s=60).run()
    assert committed(producer) == [1]
    assert "1 records were not acknowledged" in caplog.text


@pytest.mark.parametrize(
    ("code", "kind", "said"),
    [
        (KafkaError.MSG_SIZE_TOO_LARGE, DataError, "could not be sent to topic t: .*MSG_SIZE_TOO_LARGE"),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, ConnectError, "could not be sent to topic t"),
    ],
)
def test_a_record_that_the_broker_refuses_fails_the_task_and_nothing_behind_it_is_committed(
    control, code, kind, said
):
    producer = FakeProducer()
    task = Scripted(control, [[record(1)], [record(2)], [record(3)], None, None])

    def refuse_the_second():
        for sent in producer.held[:]:
            if sent.value == b"2":
                producer.fail(sent, code)
            else:
                producer.ack(sent)

    producer.on_poll = refuse_the_second
    with pytest.raises(kind, match=said):
        runner(control, task, producer).run()
    assert set(committed(producer)) <= {1}


def test_a_source_that_is_busy_for_a_moment_is_polled_again(control):
    producer = FakeProducer(auto=True)
    task = Scripted(control, [[record(1)], RetriableError("busy"), [record(2)]])
    runner(control, task, producer).run()
    assert [s.value for s in producer.to("t")] == [b"1", b"2"]


def test_why_a_source_is_polled_again_is_shown_until_it_gives_something(control):
    shown = []

    def look():
        shown.append(control.vitals.report()["details"].get("retrying"))
        return [record(2)]

    task = Scripted(control, [[record(1)], RetriableError("the database is away"), look])
    runner(control, task, FakeProducer(auto=True)).run()
    assert shown[0]["poll"]["error"] == "the database is away"
    assert "retrying" not in control.vitals.report()["details"]


def test_a_record_that_cannot_be_converted_fails_the_task_in_kafkas_words(control):
    converters = string_converters()
    value = JsonConverter()
    value.configure({"schemas.enable": False}, is_key=False)
    converters = Converters(converters.key, value, converters.header)
    producer = FakeProducer(auto=True)
    bad = SourceRecord({"filename": "a"}, {"position": 2}, "t", value=object())
    task = Scripted(control, [[record(1)], [bad]])
    with pytest.raises(
        ConnectError, match=r"^Tolerance exceeded in error handler: Error in stage VALUE_CONVERTER"
    ) as e:
        runner(control, task, producer, converters=converters).run()
    assert isinstance(e.value.__cause__, DataError)
    assert "VALUE_CONVERTER for topic t, source partition {'filename': 'a'}" in str(e.value.__cause__)
    assert committed(producer) == [1], "what was acknowledged is committed on the way out"


def test_with_errors_tolerated_a_bad_record_is_left_out_logged_and_passed(control, caplog):
    value = JsonConverter()
    value.configure({"schemas.enable": False}, is_key=False)
    plain = string_converters()
    producer = FakeProducer(auto=True)
    bad = SourceRecord({"filename": "a"}, {"position": 2}, "t", value_schema=STRING, value=object())
    task = Telling(control, [[record(1), bad]])
    runner(
        control, task, producer, {"errors.tolerance": "all"}, Converters(plain.key, value, plain.header)
    ).run()
    assert [s.value for s in producer.to("t")] == [b'"1"']
    assert committed(producer)[-1] == 2
    assert "record skipped (1 so far)" in caplog.text
    assert (bad.value, None) in task.told


def test_a_task_that_wants_it_hears_of_each_acknowledged_record(control):
    producer = FakeProducer(auto=True)
    task = Telling(control, [[record(1), record(2)]])
    runner(control, task, producer).run()
    assert task.told == [("1", 17), ("2", 17)]


def test_pausing_commits_and_says_so(control):
    producer = FakeProducer(auto=True)

    def pause():
        control.paused = True

    task = Scripted(control, [[record(1)], pause])
    run = runner(control, task, producer, interval_s=60)
    resumed = []

    def wait(timeout_s):
        resumed.append(committed(producer))
        control.paused = False

    control.wait_for_order = wait
    run.run()
    assert resumed == [[1]]
    assert [n["state"] for n in control.notices("state")] == ["PAUSED", "RUNNING"]


def test_offsets_that_the_broker_does_not_take_come_with_the_next_commit(control, caplog):
    producer, refused = FakeProducer(), []

    def answer():
        for sent in producer.held[:]:
            if sent.topic == OFFSETS and not refused:
                refused.append(sent)
                producer.fail(sent, KafkaError.NOT_ENOUGH_REPLICAS)
            else:
                producer.ack(sent)

    producer.on_poll = answer
    task = Scripted(control, [[record(1)], None, None, None])
    runner(control, task, producer).run()
    assert committed(producer) == [1, 1]
    assert "offsets could not be committed to connect-offsets" in caplog.text
    assert task.commits == 1


def test_offsets_go_by_the_workers_producer_when_the_connector_has_its_own(control):
    producer, offsets = FakeProducer(auto=True), FakeProducer(auto=True)
    runner(control, Scripted(control, [[record(1)]]), producer, offset_producer=offsets).run()
    assert not producer.to(OFFSETS)
    assert committed(offsets) == [1]


def test_a_poll_is_cut_into_runs_so_that_commits_are_fine(control):
    producer = FakeProducer()
    count = RUN_RECORDS_MAX * 2

    def ack_the_first_half():
        for sent in producer.held[:]:
            if sent.topic == OFFSETS or int(sent.value) < RUN_RECORDS_MAX:
                producer.ack(sent)

    producer.on_poll = ack_the_first_half
    task = Scripted(control, [[record(n) for n in range(count)], None, lambda: control.ask_to_stop(0.2)])
    runner(control, task, producer).run()
    assert committed(producer)[-1] == RUN_RECORDS_MAX - 1


def test_lag_is_what_the_task_says_and_unknown_when_it_cannot(control, caplog):
    class Lagging(Scripted):
        left = 7

        def lag(self):
            if self.left is None:
                raise OSError("gone")
            return self.left

    task = Lagging(control, [[record(1)]])
    runner(control, task, FakeProducer(auto=True)).run()
    assert control.vitals.lag == 7
    task.left = None
    runner(control, task, FakeProducer(auto=True))._ask_lag()
    assert control.vitals.lag is None
    assert "the task's lag() raised" in caplog.text


def test_a_record_that_is_too_large_is_named_with_its_size_and_what_to_set(control):
    class Refusing(FakeProducer):
        def produce(self, topic, *rest):
            raise KafkaException(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE))

    task = Scripted(control, [[record(7, timestamp=5)]])
    with pytest.raises(DataError) as e:
        runner(control, task, Refusing()).run()
    said = str(e.value)
    assert said.startswith(
        "A record of 1 bytes, source partition {'filename': 'a'}, offset {'position': 7}, could not"
    )
    assert "producer.override.max.request.size and the topic's max.message.bytes" in said


@pytest.mark.parametrize("keyed", [False, True])
def test_a_producer_that_is_full_now_and_then_gets_each_record_once_and_in_order(control, keyed):
    class Full(FakeProducer):
        room = 3

        def produce(self, topic, *rest):
            if topic == "t" and not self.room:
                raise BufferError
            self.room -= topic == "t"
            super().produce(topic, *rest)

        def poll(self, timeout):
            self.room = 3
            return super().poll(timeout)

    producer = Full(auto=True)
    more = {"key": "k", "key_schema": STRING, "timestamp": 5} if keyed else {}
    task = Scripted(control, [[record(n, **more) for n in range(20)]])
    runner(control, task, producer).run()
    assert [sent.value for sent in producer.to("t")] == [b"%d" % n for n in range(20)]
    assert {(sent.key, sent.timestamp) for sent in producer.to("t")} == {(b"k", 5) if keyed else (None, 0)}
    assert committed(producer)[-1] == 19


def test_bytes_that_a_task_has_checked_go_to_the_topic_as_they_are(control):
    def decode(data):
        raise AssertionError("nobody looks at them")

    lines = [b"a", "\u00fc".encode(), b"c"]
    batch = SourceBatch(
        {"filename": "a"}, "t", RawValues(TEXT, lines, decode), [1, 3, 5], offset_name="position"
    )
    producer = FakeProducer(auto=True)
    runner(control, Scripted(control, [batch]), producer).run()
    assert [sent.value for sent in producer.to("t")] == lines
    assert committed(producer)[-1] == 5


def test_bytes_become_values_for_a_converter_that_needs_these(control):
    converters = string_converters()
    json = JsonConverter()
    json.configure({"schemas.enable": "false"}, is_key=False)
    raw = raw_texts([b"a", b'"'])
    batch = SourceBatch({"filename": "a"}, "t", raw, [1, 3], offset_name="position", value_schema=STRING)
    producer = FakeProducer(auto=True)
    task = Scripted(control, [batch])
    runner(control, task, producer, converters=Converters(converters.key, json, converters.header)).run()
    assert [sent.value for sent in producer.to("t")] == [b'"a"', b'"\\""']


def test_offsets_are_committed_by_a_source_that_keeps_its_producer_full():
    """There is room when acknowledgements come, not when a commit is due."""
    producer, tracker = FakeProducer(auto=True), OffsetTracker()
    writer = OffsetWriter(producer, tracker, connector="src", topic=OFFSETS, timeout_s=60)
    for name in "abc":
        tracker.submit({"filename": name}, {"position": 7}, 0)
    produce, room = producer.produce, 1

    def full(*args):
        nonlocal room
        if not room:
            raise BufferError("Local: Queue full")
        room -= 1
        produce(*args)

    producer.produce = full
    assert writer.begin()
    assert not writer.finish()
    for _ in range(2):
        producer.poll(0)
        room = 1
        assert not writer.finish()
    producer.poll(0)
    assert writer.finish()
    assert [committed(producer, name) for name in "abc"] == [[7], [7], [7]]
    assert not tracker.committable()


def test_a_look_at_what_is_under_way_costs_the_same_for_ten_thousand_files(control, monkeypatch):
    """Each poll asks for it; a source may have a partition for each file that it has seen since the last commit."""
    monkeypatch.setattr(OffsetTracker, "pending", property(lambda self: pytest.fail("counts")))
    producer = FakeProducer()
    task = Scripted(control, [])
    one = runner(control, task, producer, interval_s=60)
    task.script = [[record(1, "a"), record(2, "b")]]
    one._step()
    assert one._pending
    for sent in producer.to("t"):
        producer.ack(sent)
    producer.poll(0)
    assert not one._pending
