"""`errors.*` of sources and sinks alike: tried again, kept with where it came from, counted; transforms among them."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.broker import broker, new_name, new_topic  # noqa: F401
from support.runtime import Watched, install_plugins, task_spec, wait_for, worker_props
from support.runtime_broker import fill, read_all, sink_lines, stored_offsets
from support.runtime_fakes import FakeProducer, RecordingControl, string_converters

from klamm.connect.child.dead_letters import DeadLetters
from klamm.connect.child.error_figures import ErrorFigures, sentence
from klamm.connect.child.origins import SourceOrigin
from klamm.connect.child.plugins import Converters
from klamm.connect.child.retry import Retry, Stopped, backoff_ms
from klamm.connect.child.tolerance import Stage, Tolerance
from klamm.connect.model import Kind, State, TaskId
from klamm_plugins.converters.simple_header import SimpleHeaderConverter
from klamm_plugins.converters.string import StringConverter
from klamm_plugins.errors import ConnectError, DataError, RetriableError
from klamm_plugins.records import Headers, SourceRecord

R, F = State.RUNNING, State.FAILED
MOODY = "support.runtime_plugins.MoodyConverter"
E = "__connect.errors."


@pytest.fixture
def control():
    made = RecordingControl()
    yield made
    made.close()


class Clock:
    """Time that passes only when somebody waits."""

    def __init__(self):
        self.now, self.waits = 0.0, []

    def __call__(self):
        return self.now

    def wait(self, seconds):
        self.waits.append(seconds)
        self.now += seconds


def retry(control, timeout_ms, delay_max_ms=60_000):
    clock = Clock()
    config = {"errors.retry.timeout": str(timeout_ms), "errors.retry.delay.max.ms": str(delay_max_ms)}
    made = Retry(config, stopping=control.stopping, wait=clock.wait, figures=ErrorFigures(), clock=clock)
    return made, clock


def failing(times, error=RetriableError):
    left = [times]

    def operation():
        if left[0]:
            left[0] -= 1
            raise error("busy")
        return "done"

    return operation


def test_what_may_pass_is_tried_again_after_300_ms_600_ms_and_so_on(control):
    made, clock = retry(control, 10_000)
    assert made.call("VALUE_CONVERTER", failing(3)) == "done"
    assert clock.now == pytest.approx(0.3 + 0.6 + 1.2)
    assert max(clock.waits) <= 0.2, "in steps, so that the task lives"


@pytest.mark.parametrize("timeout_ms", [0, 500])
def test_its_last_error_is_the_records_when_the_time_is_over(control, timeout_ms):
    made, clock = retry(control, timeout_ms)
    with pytest.raises(RetriableError):
        made.call("VALUE_CONVERTER", failing(99))
    assert clock.now == pytest.approx(timeout_ms / 1000)
    assert made.on is bool(timeout_ms)


def test_without_end_it_goes_on_and_other_errors_are_let_through(control):
    made, _ = retry(control, -1, delay_max_ms=1_000)
    assert made.call("TRANSFORMATION", failing(200)) == "done"
    with pytest.raises(DataError):
        made.call("TRANSFORMATION", failing(1, DataError))


def test_what_is_tried_again_is_shown_with_its_last_error_until_it_gets_through(control):
    figures = control.vitals.errors
    made = Retry(
        {"errors.retry.timeout": "-1"}, stopping=control.stopping, wait=lambda _: None, figures=figures
    )
    shown, tries = [], iter(range(3))

    def operation():
        shown.append(control.vitals.report()["details"].get("retrying"))
        if (n := next(tries)) < 2:
            raise RetriableError(f"busy {n}") from OSError(28, "No space left\n on device")
        return "done"

    made._clock = iter(range(0, 10_000, 100)).__next__
    assert made.call("VALUE_CONVERTER", operation) == "done"
    since_ms = shown[1]["VALUE_CONVERTER"]["since_ms"]
    assert [shown[0], shown[2]] == [
        None,
        {
            "VALUE_CONVERTER": {
                "error": "busy 1: [Errno 28] No space left on device", "since_ms": since_ms, "attempts": 2
            }
        },
    ]  # fmt: skip
    assert "retrying" not in control.vitals.report()["details"]
    with pytest.raises(DataError):
        made.call("TRANSFORMATION", iter_errors(RetriableError("busy"), DataError("bad")))
    assert "retrying" not in control.vitals.report()["details"]


def test_a_sentence_says_what_is_behind_an_error_once():
    full = OSError(28, "No space left on device")
    error = RetriableError("file /dev/full cannot be written: No space left on device")
    error.__cause__ = full
    assert sentence(error) == str(error)
    other = RetriableError("the batch was not written")
    other.__cause__ = full
    assert sentence(other) == "the batch was not written: [Errno 28] No space left on device"
    assert sentence(RetriableError()) == "RetriableError"


def iter_errors(*errors):
    left = list(errors)

    def operation():
        raise left.pop(0)

    return operation


def test_a_stop_ends_the_wait_and_judges_nobody(control):
    made, clock = retry(control, -1)
    waits = clock.wait
    made.wait = lambda s: (waits(s), control.ask_to_stop())
    with pytest.raises(Stopped):
        made.call("VALUE_CONVERTER", failing(99))
    assert len(clock.waits) == 1


@given(st.integers(1, 10_000), st.integers(0, 2**40), st.floats(0, 2**50), st.floats(0, 0.999))
def test_a_wait_is_within_its_bounds(attempt, most, left_ms, chance):
    delay = backoff_ms(attempt, delay_max_ms=most, left_ms=left_ms, chance=chance)
    assert 0 <= delay <= min(most, left_ms)


def test_figures_are_kafkas(control):
    config = {"errors.tolerance": "all", "errors.retry.timeout": "1", "errors.log.enable": "true"}
    dead = DeadLetters(control, FakeProducer(auto=True), "d", task=TaskId("c", 0), with_context=False)
    tolerance = Tolerance(
        config, control=control, dead_letters=dead, origin=SourceOrigin(string_converters())
    )
    record = SourceRecord({}, {}, "t")
    kept = []
    with pytest.raises(RetriableError) as e:
        tolerance.retry.call(Stage.TRANSFORMATION, failing(10**9))
    tolerance.failed(record, e.value, stage=Stage.TRANSFORMATION, executing="c", kept=lambda: kept.append(1))
    assert kept == [], "not before the topic has it"
    assert tolerance.settle(1)
    assert kept == [1]
    tolerance.failed(record, DataError("x"), stage=Stage.KAFKA_PRODUCE, executing="c")
    found = control.vitals.report()["details"]["errors"]
    assert found.pop("last-error-timestamp") > 1_600_000_000_000
    assert found.pop("total-retries") >= 1
    assert found.pop("total-record-failures") >= 3
    assert found == {
        "total-record-errors": 2, "total-records-skipped": 2, "total-errors-logged": 2,
        "deadletterqueue-produce-requests": 2, "deadletterqueue-produce-failures": 0,
    }  # fmt: skip


class Refusing(StringConverter):
    def from_connect_data(self, *_):
        raise DataError("no")


def test_a_sources_record_is_kept_whatever_is_wrong_with_it(control):
    converters = string_converters()
    record = SourceRecord(
        {"file": "a"}, {"position": 7}, "t", None, None, "k", None, {"when": object, "bytes": b"\xff"}, 5,
        Headers.of(("h", "1")),
    )  # fmt: skip
    raw = SourceOrigin(Converters(converters.key, Refusing(), converters.header)).raw(record)
    assert (raw.topic, raw.partition, raw.offset, raw.timestamp) == ("t", -1, -1, 5)
    assert (raw.key, raw.headers) == (b"k", [("h", b"1")])
    assert set(json.loads(raw.value)) == {"when", "bytes"}
    assert raw.source == {
        "source.partition": '{"file": "a"}', "source.offset": '{"position": 7}',
        "key.format": "converter", "value.format": "json",
    }  # fmt: skip


circle = []
circle.append(circle)


@pytest.mark.parametrize("value", [circle, {1: 2}, {(1, 2): 3}, "\ud800", float("nan"), 2**100])
def test_nothing_is_too_odd_to_be_shown(value):
    broken = Converters(Refusing(), Refusing(), SimpleHeaderConverter())
    raw = SourceOrigin(broken).raw(SourceRecord({"p": value}, {}, "t", value=value))
    assert raw.value
    assert raw.source["value.format"] == "json"


# With a broker


@pytest.fixture
def _plugins(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", install_plugins(tmp_path / "site"))


def errors(name, **more):
    return {
        "errors.tolerance": "all", "errors.deadletterqueue.topic.name": f"{name}-dlq",
        "errors.deadletterqueue.topic.replication.factor": "1",
        "errors.deadletterqueue.context.headers.enable": "true", "value.converter": MOODY,
        "transforms": "m", "transforms.m.type": "support.runtime_plugins.MoodyTransform",
        **{k.replace("__", "."): v for k, v in more.items()},
    }  # fmt: skip


def dead_of(broker, name):  # noqa: F811
    return [
        (m.value(), {n.removeprefix(E): v.decode() for n, v in m.headers()})
        for m in read_all(broker.bootstrap, f"{name}-dlq")
    ]


@pytest.mark.usefixtures("_plugins")
async def test_a_sink_tries_again_transforms_and_keeps_what_is_bad(broker, tmp_path):  # noqa: F811
    topic, out, name = new_topic(broker), tmp_path / "out", new_name("snk")
    fill(broker.bootstrap, topic, [b"a", b"busy", b"odd", b"drop", b"bad", b"z"])
    more = {
        "topics": topic,
        "file": str(out),
        "value.converter.busy.tries": "2",
        "errors.retry.timeout": "20000",
    }
    spec = task_spec(name, errors(name) | more, kind=Kind.SINK, worker=worker_props(broker.bootstrap))
    task = TaskId(name, 0)
    async with Watched() as w:
        await w.supervisor.start_task(spec)
        await wait_for(
            lambda: (p := w.supervisor.progress(task)) and p.records == 3, lambda: f"{w.events} {w.progress}"
        )
        details = await wait_for(lambda: w.supervisor.progress(task).details, lambda: "")
        await w.supervisor.stop_task(task)
        assert F not in w.states(task)
    assert [(t, v) for t, *_, v in sink_lines(out)] == [("elsewhere", v) for v in ("a!", "busy!", "z!")]
    assert details["errors"]["total-retries"] == 1, "the first try was the whole batch's"
    assert details["skipped"] == 2
    assert details["figures"]["sink-record-read-total"] == 6
    assert details["bytes"] == len("abusyodddropbadz")
    assert details["figures"]["sink-record-send-total"] == 3
    (bad, of_bad), (odd, of_odd) = dead_of(broker, name)
    assert (bad, of_bad["stage"], of_bad["offset"]) == (b"bad", "VALUE_CONVERTER", "4")
    assert (odd, of_odd["stage"], of_odd["topic"], of_odd["offset"]) == (b"odd", "TRANSFORMATION", topic, "2")
    assert of_odd["class.name"] == "support.runtime_plugins.MoodyTransform"


@pytest.mark.usefixtures("_plugins")
async def test_a_source_has_a_dead_letter_topic_and_goes_on(broker):  # noqa: F811
    topic, name = new_topic(broker), new_name("src")
    more = {"topic": topic, "limit": "8", "says": "2=bad,3=odd,5=busy", "value.converter.busy.tries": "1"}
    # The transform adds "!", so that the converter meets "bad!": it likes that. The odd one fails before it.
    config = errors(name, errors__retry__timeout="20000") | more | {"transforms": ""}
    task = TaskId(name, 0)
    async with Watched() as w:
        await w.supervisor.start_task(task_spec(name, config, worker=worker_props(broker.bootstrap)))
        await wait_for(
            lambda: (p := w.supervisor.progress(task)) and p.records == 7, lambda: f"{w.events} {w.progress}"
        )
        await w.supervisor.stop_task(task)
        assert F not in w.states(task)
    found = [m.value() for m in read_all(broker.bootstrap, topic)]
    assert found == [b"0", b"1", b"odd", b"4", b"busy", b"6", b"7"]
    ((value, facts),) = dead_of(broker, name)
    assert (value, facts["value.format"], facts["topic"]) == (b'"bad"', "json", topic)
    assert json.loads(facts["source.offset"]) == {"n": 3}
    assert facts["stage"] == "VALUE_CONVERTER"
    assert {"n": 8} in stored_offsets(broker.bootstrap, "connect-offsets").values()


@pytest.mark.usefixtures("_plugins")
async def test_a_source_without_tolerance_fails_for_good_and_keeps_the_record(broker):  # noqa: F811
    topic, name = new_topic(broker), new_name("src")
    config = errors(name, errors__tolerance="none") | {"topic": topic, "limit": "5", "says": "3=odd"}
    async with Watched() as w:
        await w.supervisor.start_task(task_spec(name, config, worker=worker_props(broker.bootstrap)))
        await w.wait_states(TaskId(name, 0), R, F)
        trace = w.last(TaskId(name, 0)).trace
    assert "Tolerance exceeded in error handler: Error in stage TRANSFORMATION" in trace
    ((value, facts),) = dead_of(broker, name)
    assert (value, facts["value.format"]) == (b"odd", "converter")


def test_tolerance_none_does_not_say_that_a_record_was_kept(control):
    tolerance = Tolerance({}, control=control, origin=SourceOrigin(string_converters()))
    kept = []
    with pytest.raises(ConnectError, match="Tolerance exceeded"):
        tolerance.failed(
            SourceRecord({}, {}, "t"),
            DataError("x"),
            stage="TASK_POLL",
            executing="c",
            kept=lambda: kept.append(1),
        )
    assert kept == []
