"""The sink task's loop with a consumer in the test's hand: rebalances, held batches, pauses, commits."""

import contextlib

import pytest
from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException
from support.runtime import task_spec
from support.runtime_fakes import FakeProducer, RecordingControl, string_converters

from klamm.connect.child.dead_letters import DeadLetters
from klamm.connect.child.plugins import Converters
from klamm.connect.child.sink_task import SinkRunner
from klamm.connect.child.sink_topics import wanted_topics
from klamm.connect.model import Kind, TaskId
from klamm_plugins.connector import SinkTask
from klamm_plugins.converters.string import StringConverter
from klamm_plugins.errors import ConfigError, ConnectError, DataError, RetriableError
from klamm_plugins.records import TopicPartition

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Partition:
    """librdkafka's TopicPartition, as callbacks get it."""

    def __init__(self, place):
        self.topic, self.partition = place
        self.offset = OFFSET_INVALID


class FakeMessage:
    def __init__(self, place, offset, error=None):
        self._place, self._offset, self._error = place, offset, error

    def topic(self):
        return self._place.topic

    def partition(self):
        return self._place.partition

    def offset(self):
        return self._offset

    def key(self):
        return None

    def value(self):
        return str(self._offset).encode()

    def timestamp(self):
        return 1, 5

    def headers(self):
        return None

    def error(self):
        return self._error

    def __len__(self):
        return len(self.value())


# Batches go through `map(Message.topic, …)`, which takes real messages only.
@pytest.fixture(autouse=True)
def _messages(monkeypatch):
    monkeypatch.setattr("klamm.connect.child.sink_records.Message", FakeMessage)
    monkeypatch.setattr("klamm.connect.child.sink_task.Message", FakeMessage)


class Committed(dict):
    """Committed offsets by partition; called, it answers as librdkafka's `committed` does."""

    def __call__(self, partitions, timeout):
        found = [Partition(TopicPartition(p.topic, p.partition)) for p in partitions]
        for p in found:
            p.offset = self.get(TopicPartition(p.topic, p.partition), OFFSET_INVALID)
        return found


class FakeConsumer:
    """A log per partition; `script` runs one step per poll. Positions and pauses behave as librdkafka's: of a
    partition that is not assigned yet, which it is not during the callback, they are refused and ignored. A pause stays
    when the partition leaves, and holds when it comes back.
    """

    def __init__(self, script):
        self.script = list(script)
        self.logs = {P0: list(range(100)), P1: list(range(100))}
        self.positions, self.paused, self.commits = {}, set(), []
        self.committed = Committed()
        self.closed = False
        self.commit_error = None
        self.unready = 0  # seeks that come before fetching has begun

    def subscribe(self, topics, *, on_assign, on_revoke, on_lost):
        self.on_assign, self.on_revoke, self.on_lost = on_assign, on_revoke, on_lost

    def assign(self, *places):
        self.on_assign(self, [Partition(p) for p in places])
        assert self.positions.keys() >= set(places)

    def incremental_assign(self, partitions):
        for p in partitions:
            place = TopicPartition(p.topic, p.partition)
            self.positions[place] = p.offset if p.offset >= 0 else self.committed.get(place, 0)

    def revoke(self, *places, lost=False):
        (self.on_lost if lost else self.on_revoke)(self, [Partition(p) for p in places])
        for place in places:
            del self.positions[place]

    def step(self):
        if self.script:
            step = self.script.pop(0)
            if callable(step):
                step()

    def poll(self, timeout):
        self.step()
        return next(iter(self.consume(1, 0)), None)

    def consume(self, count, timeout):
        if timeout:
            self.step()
        found = []
        while len(found) < min(count, 5):
            open_ = [p for p, at in self.positions.items() if p not in self.paused and at < 100]
            if not open_:
                break
            place = min(open_, key=self.positions.__getitem__)
            found.append(FakeMessage(place, self.positions[place]))
            self.positions[place] += 1
        return found

    def pause(self, partitions):
        self.paused |= {TopicPartition(p.topic, p.partition) for p in partitions} & self.positions.keys()

    def resume(self, partitions):
        self.paused -= {TopicPartition(p.topic, p.partition) for p in partitions}

    def seek(self, partition):
        place = TopicPartition(partition.topic, partition.partition)
        if place not in self.positions:
            raise KafkaException(KafkaError(KafkaError._UNKNOWN_PARTITION))
        if self.unready:
            self.unready -= 1
            raise KafkaException(KafkaError(KafkaError._STATE))
        self.positions[place] = partition.offset

    def commit(self, *, offsets, asynchronous):
        assert asynchronous is False
        if self.commit_error:
            raise KafkaException(KafkaError(self.commit_error))
        for p in offsets:
            self.committed[TopicPartition(p.topic, p.partition)] = p.offset
        self.commits.append({TopicPartition(p.topic, p.partition): p.offset for p in offsets})

    def get_watermark_offsets(self, partition, *, cached):
        return 0, 100

    def close(self):
        self.closed = True


class Collecting(SinkTask):
    """Remembers what it was called with; `fail` holds errors for the next puts or flushes."""

    def __init__(self):
        self.calls, self.seen = [], {P0: [], P1: []}
        self.put_errors, self.flush_errors = [], []

    def start(self, props):
        pass

    def open(self, partitions):
        self.calls.append(("open", set(partitions)))

    def close(self, partitions):
        self.calls.append(("close", set(partitions)))

    def put(self, records):
        if records and self.put_errors:
            raise self.put_errors.pop(0)
        for r in records:
            assert r.value == str(r.offset)
            self.seen[r.topic_partition].append(r.offset)

    def flush(self, offsets):
        self.calls.append(("flush", dict(offsets)))
        if self.flush_errors:
            raise self.flush_errors.pop(0)


class Rig:
    def __init__(self, control, interval_s=60.0, task=None, dead_letters=None, converters=None, config=None):
        self.control, self.task = control, task or Collecting()
        self.consumer = FakeConsumer([])
        self.runner = SinkRunner(
            control=control,
            spec=task_spec("snk", config or {}, kind=Kind.SINK),
            task=self.task,
            converters=converters or string_converters(),
            consumer=self.consumer,
            topics=["t"],
            commit_interval_s=interval_s,
            dead_letters=dead_letters,
        )
        self.task.initialize(self.runner.context)

    def run(self, *script):
        self.consumer.script = [*script, lambda: self.control.ask_to_stop(1)]
        self.runner.run()
        assert self.consumer.closed

    def assign(self, *places):
        return lambda: self.consumer.assign(*places)

    def revoke(self, *places, lost=False):
        return lambda: self.consumer.revoke(*places, lost=lost)


@pytest.fixture
def control():
    made = RecordingControl()
    yield made
    made.close()


@pytest.fixture
def rig(control):
    return Rig(control)


def contiguous(offsets):
    return offsets == list(range(len(offsets)))


def test_it_delivers_and_commits_what_was_flushed_when_it_stops(rig):
    rig.run(rig.assign(P0, P1), None, None)
    assert rig.task.seen[P0]
    assert contiguous(rig.task.seen[P0])
    delivered = {p: len(seen) for p, seen in rig.task.seen.items() if seen}
    assert rig.consumer.commits == [delivered]
    assert rig.task.calls[0] == ("open", {P0, P1})
    assert rig.task.calls[-2:] == [("flush", delivered), ("close", {P0, P1})]
    assert rig.control.vitals.records == sum(delivered.values())


def test_a_revoked_partition_is_committed_and_closed_and_no_more_of_it_delivered(rig):
    rig.run(rig.assign(P0), None, rig.revoke(P0), rig.assign(P1), None)
    reached = len(rig.task.seen[P0])
    assert rig.consumer.commits[0] == {P0: reached}
    closes = [c for c in rig.task.calls if c[0] == "close"]
    assert closes == [("close", {P0}), ("close", {P1})]


def test_a_lost_partition_is_closed_without_a_commit(rig):
    rig.run(rig.assign(P0), None, rig.revoke(P0, lost=True))
    assert rig.consumer.commits == []
    assert ("close", {P0}) in rig.task.calls
    assert not [c for c in rig.task.calls if c[0] == "flush"]


def test_a_task_knows_at_a_commit_which_partitions_go_away(control):
    class Watching(Collecting):
        def flush(self, offsets):
            self.calls.append(("leaving", self.context.leaving))

    rig = Rig(control, interval_s=0.0, task=Watching())
    rig.run(rig.assign(P0, P1), None, rig.revoke(P0), None)
    found = [gone for name, gone in rig.task.calls if name == "leaving"]
    assert found[0] == set()  # a regular commit
    assert [gone for gone in found if gone] == [{P0}, {P1}]
    assert rig.runner.context.leaving == set()


class Hurried(Collecting):
    """Asks for its batch again at once."""

    def put(self, records):
        self.context.timeout(0)
        super().put(records)


def test_a_held_batch_comes_again_before_anything_else(control):
    rig = Rig(control, task=Hurried())
    rig.task.put_errors = [RetriableError("busy"), RetriableError("busy")]
    rig.run(rig.assign(P0), *[None] * 8)
    assert contiguous(rig.task.seen[P0])
    assert rig.consumer.commits == [{P0: len(rig.task.seen[P0])}]
    assert rig.consumer.paused == set()


def test_why_a_put_is_tried_again_is_shown_until_it_gets_through(control):
    shown = []

    class Watched(Hurried):
        def put(self, records):
            if records:
                shown.append(control.vitals.report()["details"].get("retrying"))
            super().put(records)

    rig = Rig(control, task=Watched())
    rig.task.put_errors = [RetriableError("busy"), RetriableError("No space left on device")]
    rig.run(rig.assign(P0), *[None] * 8)
    assert shown[0] is None
    assert [(each["put"]["error"], each["put"]["attempts"]) for each in shown[1:3]] == [
        ("busy", 1),
        ("No space left on device", 2),
    ]
    assert all(each is None for each in shown[3:])
    assert "retrying" not in control.vitals.report()["details"]


def test_a_flush_that_fails_is_shown_until_one_succeeds(control):
    shown = []

    class Watched(Collecting):
        def flush(self, offsets):
            shown.append(control.vitals.report()["details"].get("retrying"))
            super().flush(offsets)

    rig = Rig(control, interval_s=0, task=Watched())
    rig.task.flush_errors = [OSError(28, "No space left on device")]
    rig.run(rig.assign(P0), *[None] * 4)
    assert shown[0] is None
    assert shown[1]["flush"]["error"] == "[Errno 28] No space left on device"
    assert not any(shown[2:])
    assert "retrying" not in control.vitals.report()["details"]


def test_records_of_a_partition_that_goes_while_its_batch_is_held_are_left_to_others(control):
    rig = Rig(control, task=Hurried())
    rig.task.put_errors = [RetriableError("busy")]
    rig.run(rig.assign(P0), rig.revoke(P0), rig.assign(P1), None, None)
    assert rig.task.seen[P0] == []
    assert P0 not in rig.consumer.committed


def test_a_partition_that_comes_while_a_batch_is_held_loses_nothing(control):
    rig = Rig(control, task=Hurried())

    class Stubborn(RetriableError):
        pass

    rig.task.put_errors = [Stubborn("busy")] * 4
    rig.run(rig.assign(P0), rig.assign(P1), *[None] * 12)
    assert rig.task.seen[P1]
    assert contiguous(rig.task.seen[P0])
    assert contiguous(rig.task.seen[P1])


def test_a_pause_commits_stops_delivery_and_loses_nothing(control):
    rig = Rig(control)
    seen_paused = []

    def pause():
        control.paused = True

    def look():
        seen_paused.append(list(rig.task.seen[P0]))

    def resume():
        control.paused = False

    # A partition that arrives during the pause is fetched from once before it can be paused.
    rig.run(rig.assign(P0), pause, look, rig.assign(P1), look, resume, None, None)
    assert seen_paused[0] == seen_paused[1]
    assert rig.consumer.commits[0] == {P0: len(seen_paused[0])}
    assert contiguous(rig.task.seen[P0])
    assert contiguous(rig.task.seen[P1])
    assert rig.task.seen[P1]
    assert [n["state"] for n in control.notices("state")] == ["PAUSED", "RUNNING"]


def test_a_failed_flush_commits_nothing_and_goes_back(control, caplog):
    rig = Rig(control, interval_s=0)
    rig.task.flush_errors = [ConnectError("disk full")]
    rig.run(rig.assign(P0), None, None)
    assert rig.task.seen[P0][:6] == [0, 1, 2, 3, 4, 5]
    assert rig.task.seen[P0].count(0) == 2, "delivered again"
    assert all(c[P0] <= max(rig.task.seen[P0]) + 1 for c in rig.consumer.commits)
    assert "flush failed, nothing is committed; rewinding" in caplog.text


def test_a_failed_flush_while_a_batch_is_held_goes_back_for_all_partitions(control):
    rig = Rig(control)

    def hold_p1_before_it_delivers_anything():
        rig.consumer.assign(P1)
        rig.consumer.paused.add(P0)
        rig.task.put_errors = [RetriableError("busy")]

    def commit():
        assert rig.task.seen[P0]
        assert not rig.task.seen[P1]
        rig.task.flush_errors = [ConnectError("disk full")]
        rig.runner.context.request_commit()

    rig.run(rig.assign(P0), hold_p1_before_it_delivers_anything, commit, *[None] * 4)
    assert rig.task.seen[P0].count(0) == 2, "delivered again"
    assert contiguous(rig.task.seen[P1])
    assert rig.consumer.committed[P1] == len(rig.task.seen[P1]) > 0


class Emptying(Collecting):
    """Takes its records out of the list, and the first time fails with none of them written."""

    def put(self, records):
        self.context.timeout(0)
        mine = list(records)
        records.clear()
        super().put(mine)


def test_a_task_that_empties_its_list_gets_all_of_it_again(control):
    rig = Rig(control, task=Emptying())
    rig.task.put_errors = [RetriableError("busy")]
    rig.run(rig.assign(P0), *[None] * 4)
    assert rig.task.seen[P0]
    assert contiguous(rig.task.seen[P0])


def test_a_commit_that_the_group_refuses_is_made_again(control, caplog):
    rig = Rig(control, interval_s=0)
    rig.consumer.commit_error = KafkaError.REBALANCE_IN_PROGRESS

    def recover():
        rig.consumer.commit_error = None

    rig.run(rig.assign(P0), None, recover)
    assert "offsets could not be committed" in caplog.text
    assert rig.consumer.committed == {P0: len(rig.task.seen[P0])}


def test_after_an_error_what_was_delivered_before_is_committed(rig):
    rig.task.put_errors = []

    def break_down():
        rig.task.put_errors = [ConnectError("gone")]

    rig.consumer.script = [rig.assign(P0), break_down]
    with pytest.raises(ConnectError, match="gone"):
        rig.runner.run()
    assert rig.consumer.committed == {P0: len(rig.task.seen[P0])}
    assert rig.consumer.closed


def test_an_error_of_the_consumer_fails_the_task(rig):
    error = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    rig.consumer.consume = lambda count, timeout: [FakeMessage(P0, 0, error)]
    with pytest.raises(ConnectError, match=r"The consumer failed: .*TOPIC_AUTHORIZATION_FAILED"):
        rig.runner.run()


class Choosy(Collecting):
    """Starts at an offset of its own, pauses a partition, asks for a commit, claims too much."""

    def open(self, partitions):
        self.context.offset({P0: 40})

    def put(self, records):
        super().put(records)
        if records:
            self.context.pause(P0)
            self.context.request_commit()

    def pre_commit(self, offsets):
        return {P0: offsets[P0] - 1, P1: 99}


def test_a_task_may_choose_where_to_start_pause_commit_early_and_what_to_commit(control, caplog):
    rig = Rig(control, task=Choosy())
    rig.run(rig.assign(P0), None, None, None)
    assert rig.task.seen[P0][0] == 40
    assert P0 in rig.consumer.paused
    assert rig.consumer.committed == {P0: max(rig.task.seen[P0])}
    assert "pre_commit returned offset 99 of t-1, which was not delivered; ignored" in caplog.text


def test_a_partition_that_left_while_it_was_paused_is_fetched_when_it_comes_back(rig):
    reached = []

    def look():
        assert rig.consumer.paused == {P0}
        reached.append(len(rig.task.seen[P0]))

    script = [rig.assign(P0), None, lambda: rig.task.context.pause(P0), None, None, look]
    rig.run(*script, rig.revoke(P0), rig.assign(P0), None, None)
    assert len(rig.task.seen[P0]) > reached[0]
    assert contiguous(rig.task.seen[P0])


class Full(Collecting):
    """Has no room after the second time that records came."""

    rounds = 0

    def put(self, records):
        super().put(records)
        self.rounds += bool(records)
        if self.rounds == 2:
            self.context.pause(*self.context.assignment)


def test_a_task_that_has_paused_all_its_partitions_waits_for_its_target(control, monkeypatch):
    entered = []
    monkeypatch.setattr(control.vitals, "enter", entered.append)
    rig = Rig(control, task=Full())
    rig.run(rig.assign(P0), None, None, None)
    polls = entered[::2]  # between them: put, which is for the target, too
    assert polls[:4] == ["assignment", "input", "target", "target"]


class Jumping(Collecting):
    """During its first put with records goes to offset 40 of partition 1, from which nothing came yet."""

    jumped = False

    def put(self, records):
        super().put(records)
        if records and not self.jumped:
            self.jumped = True
            self.context.offset({P1: 40})


def test_a_seek_that_comes_too_early_is_made_when_the_partition_is_ready(control):
    rig = Rig(control, task=Jumping())

    def assign_with_p1_late():
        rig.consumer.assign(P0, P1)
        rig.consumer.paused.add(P1)

    def p1_is_fetched():
        rig.consumer.paused.discard(P1)

    rig.consumer.unready = 3
    rig.run(assign_with_p1_late, p1_is_fetched, *[None] * 6)
    assert rig.consumer.unready == 0
    assert rig.task.seen[P1]
    assert rig.task.seen[P1] == list(range(40, 40 + len(rig.task.seen[P1]))), "nothing from before the seek"
    assert contiguous(rig.task.seen[P0])
    assert rig.consumer.committed[P1] == 40 + len(rig.task.seen[P1])


def test_a_seek_that_waits_goes_with_its_partition(control):
    rig = Rig(control, task=Jumping())

    def assign_with_p1_late():
        rig.consumer.assign(P0, P1)
        rig.consumer.paused.add(P1)

    rig.consumer.unready = 100
    rig.run(assign_with_p1_late, rig.revoke(P1), rig.assign(P1), *[None] * 4)
    assert rig.task.seen[P1][0] == 0, "who gets a partition anew begins where it was committed"


def test_a_seek_that_cannot_be_made_fails_the_task(control):
    rig = Rig(control, task=Jumping())
    rig.consumer.seek = refuse
    rig.consumer.script = [rig.assign(P0, P1)]
    with pytest.raises(ConnectError, match=r"Cannot go to offset 40 of .*"):
        rig.runner.run()


def refuse(partition):
    raise KafkaException(KafkaError(KafkaError._FATAL))


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"topics": "a, b"}, ["a", "b"]),
        ({"topics.regex": "log.*|x"}, ["log-1", "logs", "x"]),
        ({"topics.regex": r"log-\d+"}, ["log-1"]),
        ({"topics.regex": r"(?!log|__).*"}, ["xy", "x"]),
        ({"topics.regex": r"(?:log|x)\p{Alpha}?"}, ["logs", "x", "xy"]),
        ({"topics.regex": ".*"}, ["log-1", "logs", "x", "xy", "__mine"]),
    ],
)
def test_subscriptions(config, expected):
    """A whole name must match, as Java reads the pattern; Kafka's own topics are nobody's data."""
    found = wanted_topics(config)
    names = ["log-1", "logs", "x", "xy", "__consumer_offsets", "__transaction_state", "__mine"]
    assert (found if isinstance(found, list) else found.of(names)) == sorted(expected)


def test_new_topics_are_looked_for_as_often_as_javas_consumer_does():
    config = {"topics.regex": "a"}
    assert wanted_topics(config).refresh_s == 300
    assert wanted_topics(config, consumer={"metadata.max.age.ms": 5_000}).refresh_s == 5
    assert wanted_topics(config, internal=True).internal


@pytest.mark.parametrize("config", [{}, {"topics": "a", "topics.regex": "b"}, {"topics.regex": "("}])
def test_bad_subscriptions_are_refused(config):
    with pytest.raises(ConfigError):
        wanted_topics(config)


def test_lag_is_unknown_without_partitions_and_counts_from_what_was_committed(rig):
    runner, consumer = rig.runner, rig.consumer
    assert runner._lag() is None, "nothing is assigned: nothing is known"
    consumer.committed.update({P0: 100})  # its end: a sink that caught up, and starts again
    rig.runner._consumer.subscribe([], on_assign=runner._on_assign, on_revoke=None, on_lost=None)
    consumer.assign(P0, P1)
    assert runner._lag() == 100, "of P1, which has no committed offset and begins at the start"
    consumer.committed.update({P1: 40})
    assert runner._lag() == 100, "asked for once"


def end(place, offset):
    """Returns what the consumer gives when it comes to the end of a partition."""
    return FakeMessage(place, offset, KafkaError(KafkaError._PARTITION_EOF))


def test_what_is_behind_the_last_record_and_is_none_is_no_lag(rig):
    """Markers of transactions: the watermark is 100, the last record was 97."""
    runner, consumer = rig.runner, rig.consumer
    runner._consumer.subscribe([], on_assign=runner._on_assign, on_revoke=None, on_lost=None)
    consumer.committed.update({P0: 98})
    consumer.assign(P0)
    assert runner._lag() == 2, "whether there is a record is not known yet"
    runner._take([end(P0, 100)])
    assert runner._lag() == 0
    runner._after_batch = {P0: 98}
    assert runner._lag() == 2, "what was consumed is still to be put"
    runner._after_batch = {}
    runner._seek({P0: 90})
    assert runner._lag() == 10, "it comes to the end anew"
    runner._take([end(P0, 300)])
    assert runner._lag() == 10, "an end beyond the end: of the topic that was there before"


class Reporting(Collecting):
    """Reports its first record as bad."""

    def put(self, records):
        if records and not self.seen[records[0].topic_partition]:
            with contextlib.suppress(ConnectError):
                self.context.errant_record_reporter.report(records[0], DataError("no"))
        super().put(records)


def dead_letter_rig(control, producer):
    letters = DeadLetters(control, producer, "dlq", task=TaskId("snk", 0), with_context=False)
    return Rig(control, task=Reporting(), dead_letters=letters)


def test_nothing_is_committed_past_a_dead_letter_that_is_not_acknowledged(control, caplog):
    producer = FakeProducer()
    rig = dead_letter_rig(control, producer)
    rig.run(rig.assign(P0), None)
    (letter,) = producer.to("dlq")
    assert letter.value == b"0"
    assert rig.consumer.commits == []
    assert "dead letters are not acknowledged yet, nothing is committed" in caplog.text


def test_it_is_committed_once_the_dead_letter_is_acknowledged(control):
    producer = FakeProducer(auto=True)
    rig = dead_letter_rig(control, producer)
    rig.run(rig.assign(P0), None)
    assert len(producer.to("dlq")) == 1
    assert rig.consumer.commits == [{P0: len(rig.task.seen[P0])}]


def test_a_dead_letter_that_is_refused_fails_the_task(control):
    producer = FakeProducer()

    def refuse():
        for sent in producer.held[:]:
            producer.fail(sent, KafkaError.TOPIC_AUTHORIZATION_FAILED)

    producer.on_poll = refuse
    rig = dead_letter_rig(control, producer)
    with pytest.raises(ConnectError, match="could not be written to the dead letter topic dlq"):
        rig.run(rig.assign(P0), None, None)
    assert rig.consumer.commits == []
    assert rig.consumer.closed


class Busy(StringConverter):
    """Cannot take the record at offset 2 for a while."""

    tries = 4

    def to_connect_data(self, topic, value):
        if value == b"2" and self.tries:
            self.tries -= 1
            raise RetriableError("the registry is away")
        return super().to_connect_data(topic, value)

    def to_connect_data_many(self, topic, values):
        return [self.to_connect_data(topic, v) for v in values]


def busy_rig(control):
    """Its retries wait in a time of their own, which passes by waiting only."""
    known = string_converters()
    config = {"errors.retry.timeout": "60000"}
    rig = Rig(control, converters=Converters(known.key, Busy(), known.header), config=config)
    retry, now = rig.runner._tolerance.retry, [0.0]
    in_group = retry.wait

    def wait(seconds):
        now[0] += seconds
        in_group(seconds)

    retry._clock, retry.wait = lambda: now[0], wait
    return rig


def test_a_record_is_tried_again_in_the_group_and_nothing_is_lost(control):
    rig = busy_rig(control)
    rig.run(rig.assign(P0), *[None] * 20)
    assert len(rig.task.seen[P0]) > 5
    assert contiguous(rig.task.seen[P0])
    assert rig.consumer.paused == set()
    assert control.vitals.errors.retries == 3, "the first try was the whole batch's"


def test_a_partition_that_goes_while_a_record_is_tried_again_is_left_to_others(control):
    rig = busy_rig(control)
    rig.run(rig.assign(P0), rig.revoke(P0), rig.assign(P1), *[None] * 20)
    assert rig.task.seen[P0] == []
    assert P0 not in rig.consumer.committed
    assert rig.task.seen[P1]
    assert contiguous(rig.task.seen[P1])


def test_a_partition_that_comes_back_while_a_record_is_tried_again_comes_from_its_committed_offset(control):
    rig = busy_rig(control)
    rig.run(rig.assign(P0), rig.revoke(P0), rig.assign(P0), *[None] * 20)
    assert rig.task.seen[P0]
    assert contiguous(rig.task.seen[P0])


def test_a_stop_while_a_record_is_tried_again_commits_nothing_of_its_batch(control):
    rig = busy_rig(control)
    rig.run(rig.assign(P0), None)
    assert rig.task.seen[P0] == []
    assert rig.consumer.commits == []


def test_the_error_of_put_is_the_tasks_whatever_close_raises_after_it(rig, caplog):
    """The restart policy judges it: bad data is not tried again."""

    def close(partitions):
        raise RuntimeError("already closed")

    rig.task.close = close
    rig.task.put_errors = [DataError("no number")]
    rig.consumer.script = [rig.assign(P0)]
    with pytest.raises(DataError, match="no number"):
        rig.runner.run()
    assert "already closed" in caplog.text
    assert rig.consumer.closed


@pytest.mark.parametrize("code", [KafkaError.LEADER_NOT_AVAILABLE, KafkaError._TRANSPORT])
def test_an_error_that_passes_fails_no_task(rig, code):
    real, errors = rig.consumer.consume, [KafkaError(code)] * 2

    def consume(count, timeout):
        return [FakeMessage(P0, 0, errors.pop())] if errors else real(count, timeout)

    rig.consumer.consume = consume
    rig.run(rig.assign(P0), None)
    assert rig.task.seen[P0]


def test_a_message_that_comes_while_nothing_may_changes_nothing_of_what_was_delivered(control):
    """The message was fetched before the pause, and comes again. What was put before it is still to be committed."""
    rig = Rig(control)

    def hold():
        rig.task.put_errors = [RetriableError("busy")] * 99

    rig.run(rig.assign(P0), hold, rig.consumer.paused.clear, None)
    assert rig.consumer.committed == {P0: len(rig.task.seen[P0])}


def test_an_idle_task_waits_for_its_input_also_while_it_hands_over_nothing(rig):
    """An empty `put` comes with each poll: it is no sign that the task moves, nor that its target is waited for."""
    seen = []

    def look():
        seen.append((control.vitals.report()["waiting_for"], control.vitals.place()))

    control = rig.control
    rig.consumer.logs, rig.consumer.positions = {}, {}
    rig.run(look, look, look)
    assert [waits for waits, _ in seen] == [None] * 3, "not for long"
    assert len({place for _, place in seen}) == 1, "and since its start"
    assert seen[0][1][0] == "assignment"
