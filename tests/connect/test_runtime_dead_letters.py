"""Dead letter topics and tolerance (KIP-298, KIP-610): what is bad is kept as it was, and nothing is lost."""

import collections
import os
import signal
from dataclasses import replace

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from support.broker import broker, new_name, new_topic  # noqa: F401
from support.runtime import Watched, install_plugins, task_spec, wait_for, worker_props
from support.runtime_broker import fill, read_all, sink_lines, whole_lines
from support.runtime_fakes import FakeMessage, FakeProducer, RecordingControl

from klamm.connect.child import failure, sink_records
from klamm.connect.child.dead_letters import DeadLetters, Raw
from klamm.connect.child.origins import SourceOrigin
from klamm.connect.child.plugins import Converters
from klamm.connect.child.retry import Stopped
from klamm.connect.child.tolerance import Bad, Tolerance
from klamm.connect.child.transform_chain import Stage, TransformChain
from klamm.connect.model import Kind, State, TaskId
from klamm_plugins.converters.json import JsonConverter
from klamm_plugins.converters.simple_header import SimpleHeaderConverter
from klamm_plugins.converters.string import StringConverter
from klamm_plugins.errors import ConfigError, ConnectError, DataError, RetriableError
from klamm_plugins.records import SourceRecord
from klamm_plugins.transform import Transformation

R, X, F = State.RUNNING, State.RESTARTING, State.FAILED
JSON = "org.apache.kafka.connect.json.JsonConverter"
RAW = Raw("t", 3, 17, 1234, b"k", b"\xff", [("h", b"1"), ("n", None)])
E = "__connect.errors."


@pytest.fixture
def control():
    made = RecordingControl()
    yield made
    made.close()


def letters(control, producer, **more):
    return DeadLetters(control, producer, "dlq", task=TaskId("snk", 2), with_context=True, **more)


def headers(sent):
    return [(name, value if value is None else value.decode()) for name, value in sent.headers]


def raised(error):
    try:
        raise error
    except Exception as e:
        return e


def test_a_dead_letter_is_the_record_as_it_was_and_says_what_went_wrong(control):
    producer = FakeProducer(auto=True)
    dead = letters(control, producer)
    error = raised(DataError("no number"))
    dead.send(RAW, error, stage="VALUE_CONVERTER", executing="a.Converter")
    assert dead.settle(1)
    (sent,) = producer.to("dlq")
    assert (sent.key, sent.value, sent.timestamp, sent.partition) == (b"k", b"\xff", 1234, -1)
    found = headers(sent)
    assert found[:2] == [("h", "1"), ("n", None)]
    assert [n for n, _ in found[2:]] == [
        E + name for name in (
            "topic", "partition", "offset", "connector.name", "task.id", "stage", "class.name",
            "exception.class.name", "exception.message", "exception.stacktrace",
        )
    ]  # fmt: skip
    values = dict(found)
    assert [values[E + n] for n in ("topic", "partition", "offset")] == ["t", "3", "17"]
    assert [values[E + n] for n in ("connector.name", "task.id")] == ["snk", "2"]
    assert [values[E + n] for n in ("stage", "class.name")] == ["VALUE_CONVERTER", "a.Converter"]
    assert values[E + "exception.class.name"] == "org.apache.kafka.connect.errors.DataException"
    assert values[E + "exception.message"] == "no number"
    assert "at raised (" in values[E + "exception.stacktrace"]


@pytest.mark.parametrize(
    ("error", "name"),
    [
        (RetriableError("x"), "org.apache.kafka.connect.errors.RetriableException"),
        (ConnectError("x"), "org.apache.kafka.connect.errors.ConnectException"),
        (ConfigError("x"), "org.apache.kafka.common.config.ConfigException"),
        (ValueError("x"), "builtins.ValueError"),
    ],
)
def test_errors_have_kafkas_names_where_kafka_has_them(control, error, name):
    producer = FakeProducer(auto=True)
    letters(control, producer).send(RAW, error, stage="TASK_PUT", executing="c")
    assert dict(headers(producer.all[0]))[E + "exception.class.name"] == name


def test_secrets_are_not_in_a_dead_letters_headers(control):
    producer = FakeProducer(auto=True)
    dead = letters(control, producer, secrets=["hunter22"])
    dead.send(RAW, raised(DataError("login with hunter22 failed")), stage="TASK_PUT", executing="c")
    assert b"hunter22" not in b"".join(value or b"" for _, value in producer.all[0].headers)


def test_without_context_there_are_only_the_records_own_headers(control):
    producer = FakeProducer()
    dead = DeadLetters(control, producer, "dlq", task=TaskId("snk", 0), with_context=False)
    dead.send(RAW, DataError("x"), stage="TASK_PUT", executing="c")
    assert headers(producer.all[0]) == [("h", "1"), ("n", None)]


def test_what_is_not_acknowledged_is_not_settled_and_what_is_refused_fails(control):
    producer = FakeProducer()
    dead = letters(control, producer)
    dead.send(RAW, DataError("x"), stage="TASK_PUT", executing="c")
    assert not dead.settle(0.01)
    producer.ack(producer.held[0])
    assert dead.settle(0.01)
    dead.send(RAW, DataError("x"), stage="TASK_PUT", executing="c")
    producer.fail(producer.held[0], KafkaError.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(ConnectError, match="could not be written to the dead letter topic dlq"):
        dead.settle(1)
    with pytest.raises(ConnectError):
        dead.serve()


def test_one_that_the_client_refuses_fails_at_once_and_for_good(control):
    class Refusing(FakeProducer):
        def produce(self, *_):
            raise KafkaException(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE))

    dead = letters(control, Refusing())
    with pytest.raises(DataError, match=r"max\.message\.bytes"):
        dead.send(RAW, DataError("x"), stage="TASK_PUT", executing="c")
    assert dead.settle(0)


def test_a_full_queue_is_waited_for(control):
    class Full(FakeProducer):
        full = 2

        def produce(self, *args):
            if self.full:
                self.full -= 1
                raise BufferError("full")
            super().produce(*args)

    producer = Full(auto=True)
    dead = letters(control, producer)
    dead.send(RAW, DataError("x"), stage="TASK_PUT", executing="c")
    assert dead.settle(1)
    assert len(producer.to("dlq")) == 1


def test_a_full_queue_ends_with_the_time_for_a_stop(control):
    class Full(FakeProducer):
        def produce(self, *args):
            raise BufferError("full")

    dead = letters(control, Full())
    control.ask_to_stop(0)
    with pytest.raises(Stopped):
        dead.send(RAW, DataError("x"), stage="TASK_PUT", executing="c")
    assert dead.settle(0)


def bad(error=None, raw=RAW):
    return Bad(
        error=error or DataError("no"), stage="VALUE_CONVERTER", executing="c", where="here",
        record="the record", raw=raw,
    )  # fmt: skip


def test_tolerance_none_reports_and_fails(control):
    producer = FakeProducer(auto=True)
    tolerance = Tolerance({}, control=control, dead_letters=letters(control, producer))
    with pytest.raises(ConnectError, match=r"^Tolerance exceeded in error handler") as e:
        tolerance.judge(bad())
    assert isinstance(e.value.__cause__, DataError)
    assert len(producer.to("dlq")) == 1
    assert tolerance.skipped == 0


def test_the_trace_of_a_bad_record_shows_its_bytes_once(control):
    tolerance = Tolerance({}, control=control)
    error = DataError("Failed to deserialize boolean: b'\\xff' is neither 00 nor 01")
    error.__cause__ = ValueError("b'\\xff' is neither 00 nor 01")
    with pytest.raises(ConnectError) as e:
        tolerance.judge(replace(bad(), error=error))
    first, *rest = failure.trace(e.value).splitlines()
    assert str(error) in first
    assert not [line for line in rest if "xff" in line]
    causes = [line for line in rest if line.startswith("Caused by: ")]
    assert "DataError: Error in stage" in causes[0]
    assert causes[1:] == ["Caused by: klamm_plugins.errors.DataError", "Caused by: ValueError"]


class Consumed(FakeMessage):
    """A message that a sink has consumed; its value is set by the test."""

    read: bytes

    def key(self):
        return b"k"

    def value(self):
        return self.read

    def headers(self):
        return None


@pytest.mark.parametrize(
    ("value", "why", "bytes_"),
    [
        (b"this is no {json", "invalid literal, expected 'true'", "b'this is no {json'"),
        (b"\xff\xfe{bad \x00", "byte 0xff at 0 is not UTF-8", r"b'\xff\xfe{bad \x00'"),
        (b'"\xe2\x82"', "byte 0xe2 at 1 is not UTF-8", "b'\"\\xe2\\x82\"'"),
        (b"x" * 1_000, "unexpected character", f"b'{'x' * 100}'… (1000 bytes)"),
    ],
)
def test_the_trace_of_bytes_that_are_no_json_shows_them_and_each_cause_once(
    control, monkeypatch, value, why, bytes_
):
    monkeypatch.setattr(sink_records, "Message", Consumed)
    string, json = StringConverter(), JsonConverter()
    json.configure({"schemas.enable": "false"}, is_key=False)
    converter = sink_records.RecordConverter(
        Converters(string, json, SimpleHeaderConverter()), Tolerance({}, control=control)
    )
    message = Consumed("t")
    message.read = value
    with pytest.raises(ConnectError) as e:
        converter.convert(sink_records.Consumed.of([message]))
    trace = failure.trace(e.value)
    first = trace.splitlines()[0]
    assert (
        f"VALUE_CONVERTER for topic t, partition 3, offset 17: the bytes {bytes_}: Converting byte[] to"
        in first
    )
    assert f"failed due to serialization error: {why}" in first
    assert trace.count(bytes_) == trace.count(why) == 1
    causes = [line.partition(":")[2].strip() for line in trace.splitlines() if line.startswith("Caused by: ")]
    assert [cause.partition(":")[0].rpartition(".")[2] for cause in causes] == [
        "DataError", "DataError", *(["JSONDecodeError"] if "UTF-8" not in why else []),
    ]  # fmt: skip


def test_the_trace_of_a_failed_transform_has_its_cause_once(control):
    class Refusing(Transformation):
        def apply(self, record):
            raise DataError("refused")

    stage = Stage(alias="r", transform=Refusing(), predicate_alias="", predicate=None, negate=False)
    converters = Converters(StringConverter(), JsonConverter(), SimpleHeaderConverter())
    tolerance = Tolerance({}, control=control, origin=SourceOrigin(converters))
    with pytest.raises(ConnectError) as e:
        TransformChain([stage]).apply([SourceRecord({}, {}, "t", value="v")], tolerance)
    causes = [x for x in failure.trace(e.value).splitlines() if x.startswith("Caused by: ")]
    assert len(causes) == 2
    assert causes[1] == "Caused by: klamm_plugins.errors.DataError"


def test_tolerance_all_counts_in_the_status_and_sums_up_in_the_log(control, caplog):
    tolerance = Tolerance({"errors.tolerance": "all"}, control=control)
    for _ in range(1_000):
        tolerance.judge(bad())
    assert control.vitals.report()["details"]["skipped"] == 1_000
    assert caplog.text.count("record skipped") == 1
    assert "Error in stage VALUE_CONVERTER for here: no" in caplog.text
    assert "the record" not in caplog.text.replace("for the record", "")


@pytest.mark.parametrize("include", ["true", "false"])
def test_the_log_has_each_error_if_it_is_to_and_the_record_only_if_that_is_said(control, caplog, include):
    config = {
        "errors.tolerance": "all", "errors.log.enable": "true", "errors.log.include.messages": include,
    }  # fmt: skip
    tolerance = Tolerance(config, control=control)
    for _ in range(3):
        tolerance.judge(bad(raised(DataError("no"))))
    assert (
        caplog.text.count("Error encountered in task None. Executing stage 'VALUE_CONVERTER' with class 'c'")
        == 3
    )
    assert caplog.text.count("Traceback") == 3
    assert caplog.text.count("the record: 'the record'") == (3 if include == "true" else 0)


def test_messages_of_a_fake_have_what_a_dead_letter_needs():
    assert FakeMessage("t").timestamp() == (1, 1234)


# With a broker


@pytest.fixture
def plugin_path(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", install_plugins(tmp_path / "site"))


def sink(broker, name, topic, out, **config):  # noqa: F811
    given = {key.replace("__", "."): value for key, value in config.items()}
    dead = {
        "errors.tolerance": "all",
        "errors.deadletterqueue.topic.name": f"{name}-dlq",
        "errors.deadletterqueue.topic.replication.factor": "1",
        "errors.deadletterqueue.context.headers.enable": "true",
    }
    worker = worker_props(
        broker.bootstrap, **{"value.converter": JSON, "value.converter.schemas.enable": "false"}
    )
    return task_spec(
        name, {"topics": topic, "file": str(out), **dead, **given}, kind=Kind.SINK, worker=worker
    )


async def taken(w, task, count):
    await wait_for(
        lambda: (p := w.supervisor.progress(task)) and p.records >= count, lambda: f"{w.progress} {w.events}"
    )


@pytest.mark.usefixtures("plugin_path")
async def test_a_sink_leaves_bad_records_in_its_dead_letter_topic_and_goes_on(broker, tmp_path):  # noqa: F811
    topic, out, name = new_topic(broker), tmp_path / "out", new_name("snk")
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce(topic, b'"a"')
    producer.produce(topic, b"{no json", b"key", headers=[("trace", b"1"), ("none", None)], timestamp=1234)
    producer.produce(topic, b'"b"')
    producer.produce(topic, b'"bad"', headers=[("trace", b"2")])
    producer.produce(topic, b'"c"')
    assert producer.flush(60) == 0
    task = TaskId(name, 0)
    async with Watched() as w:
        await w.supervisor.start_task(sink(broker, name, topic, out, report="bad"))
        await taken(w, task, 4)
        await wait_for(
            lambda: w.supervisor.progress(task).details.get("skipped") == 2, lambda: str(w.progress)
        )
        await w.supervisor.stop_task(task)
        assert w.states(task) == [R, State.UNASSIGNED]
    assert [v for *_, v in sink_lines(out)] == ["a", "b", "c"]
    first, second = read_all(broker.bootstrap, f"{name}-dlq")
    assert (first.key(), first.value(), first.timestamp()) == (b"key", b"{no json", (1, 1234))
    assert first.headers()[:2] == [("trace", b"1"), ("none", None)]
    found = dict(first.headers())
    assert found[E + "stage"] == b"VALUE_CONVERTER"
    assert found[E + "class.name"] == JSON.encode()
    assert found[E + "offset"] == b"1"
    assert (second.value(), second.headers()[0]) == (b'"bad"', ("trace", b"2"))
    found = dict(second.headers())
    assert found[E + "stage"] == b"TASK_PUT"
    assert found[E + "class.name"] == b"org.apache.kafka.connect.sink.SinkTask"
    assert found[E + "exception.message"] == b"bad cannot be written"


@pytest.mark.usefixtures("plugin_path")
async def test_without_tolerance_the_task_fails_and_the_record_is_in_the_topic(broker, tmp_path):  # noqa: F811
    topic, name = new_topic(broker), new_name("snk")
    fill(broker.bootstrap, topic, [b'"a"', b"no json"])
    async with Watched() as w:
        spec = sink(broker, name, topic, tmp_path / "out", errors__tolerance="none")
        await w.supervisor.start_task(spec)
        await w.wait_states(TaskId(name, 0), R, F)
    assert [m.value() for m in read_all(broker.bootstrap, f"{name}-dlq")] == [b"no json"]


@pytest.mark.usefixtures("plugin_path")
async def test_a_topic_that_cannot_be_made_fails_the_task_with_the_key_to_change(broker, tmp_path):  # noqa: F811
    topic, name = new_topic(broker), new_name("snk")
    more = {"errors__deadletterqueue__topic__replication__factor": "3"}
    async with Watched() as w:
        await w.supervisor.start_task(sink(broker, name, topic, tmp_path / "out", **more))
        await w.wait_states(TaskId(name, 0), F)
        said = w.last(TaskId(name, 0)).trace
        assert f"The dead letter topic {name}-dlq could not be set up" in said
        assert "errors.deadletterqueue.topic.replication.factor, which is 3" in said


@pytest.mark.usefixtures("plugin_path")
async def test_kill_9_leaves_each_record_in_the_target_or_among_the_dead_letters(broker, tmp_path):  # noqa: F811
    topic, out, name, total = new_topic(broker), tmp_path / "out", new_name("snk"), 6_000
    values = [f'"{n}"' if n % 7 else f"bad {n}" for n in range(total)]
    task = TaskId(name, 0)
    spec = sink(broker, name, topic, out, consumer__override__session__timeout__ms="6000")
    async with Watched() as w:
        await w.supervisor.start_task(spec)
        for part in range(2):
            fill(broker.bootstrap, topic, values[part * 3_000 : (part + 1) * 3_000])
            await wait_for(lambda: (p := w.supervisor.progress(task)) and p.records, lambda: str(w.events))
            os.kill(await wait_for(lambda: w.supervisor.pid(task), lambda: "no pid"), signal.SIGKILL)
            await w.wait_state(task, X)
            await w.wait_state(task, R)
        good = {str(n) for n in range(total) if n % 7}
        await wait_for(lambda: {v for *_, v in whole_lines(out)} >= good, lambda: f"{w.events[-3:]}", 60)
        last = values[-1].encode()  # a bad one: it may come after all that is good
        await wait_for(
            lambda: last in {m.value() for m in read_all(broker.bootstrap, f"{name}-dlq")},
            lambda: f"{w.events[-3:]}",
        )
        await w.supervisor.stop_task(task)
    dead = collections.Counter(m.value().decode() for m in read_all(broker.bootstrap, f"{name}-dlq"))
    assert set(dead) == {v for v in values if v.startswith("bad")}


@pytest.mark.usefixtures("plugin_path")
async def test_a_source_leaves_out_what_no_producer_takes_if_it_may(broker):  # noqa: F811
    topic, name = new_topic(broker), new_name("src")
    config = {"topic": topic, "limit": "10", "large": "4", "errors.tolerance": "all"}
    spec = task_spec(name, config, worker=worker_props(broker.bootstrap))
    task = TaskId(name, 0)
    async with Watched() as w:
        await w.supervisor.start_task(spec)
        await taken(w, task, 9)
        assert w.supervisor.progress(task).details["skipped"] == 1
        await w.supervisor.stop_task(task)
        assert F not in w.states(task)
    assert [m.value() for m in read_all(broker.bootstrap, topic)] == [
        str(n).encode() for n in range(10) if n != 4
    ]
