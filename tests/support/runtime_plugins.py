"""Connectors that misbehave on demand: what a plugin may do to its process, for tests of the runtime.

`behaviour` names what happens, `where` in which method. Not a test; children load it by an entry point that
`support.runtime` makes.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition

from klamm_base.clientconfig import translate
from klamm_base.configdef import ConfigDef, Type
from klamm_plugins.connector import DriverTask, SinkConnector, SinkTask, SourceConnector, SourceTask
from klamm_plugins.converters.string import StringConverter
from klamm_plugins.errors import ConfigError, ConnectError, DataError, RetriableError
from klamm_plugins.hookspecs import hookimpl
from klamm_plugins.records import SourceRecord
from klamm_plugins.schema import STRING
from klamm_plugins.transform import Transformation


def misbehave(props, where):
    """Do what `behaviour` says, if `where` is the place; `once` names a file that remembers that it is done."""
    if props.get("where") != where:
        return
    once = props.get("once")
    if once:
        if Path(once).exists():
            return
        Path(once).touch()
    match props["behaviour"]:
        case "data":
            raise DataError("line 7 is no number")
        case "config":
            raise ConfigError("Invalid value x for configuration y: no")
        case "connect":
            raise ConnectError(f"cannot log in with {props.get('db.password')}")
        case "retriable":
            raise RetriableError("busy")
        case "away":
            raise RetriableError(f"nobody answers {props['db.password']}")
        case "unknown":
            raise ZeroDivisionError("division by zero")
        case "sysexit":
            sys.exit(3)
        case "crash":
            signal.raise_signal(signal.SIGSEGV)
        case "exit":
            os._exit(9)
        case "sleep":
            time.sleep(3600)
        case "grow":
            held = bytearray(os.urandom(1 << 20)) * int(props["grow.mb"])
            time.sleep(3600)
            del held
        case "spin":
            # In C with the interpreter's lock held and every signal blocked: nothing of Python runs any more.
            signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
            ctypes.PyDLL(None).sleep(3600)
        case "close":
            os.closerange(3, 1000)
            time.sleep(3600)
        case "print":
            print("hello from the plugin")
        case "say":
            print("the password is", props["db.password"])
        case "grandchild":
            group = 0 if props.get("own.group") else None
            process = subprocess.Popen(
                [sys.executable, "-c", "import time; time.sleep(3600)"], process_group=group
            )
            Path(props["pid.file"]).write_text(str(process.pid))


class _Base:
    @classmethod
    def version(cls):
        return "7.8"

    @classmethod
    def config(cls):
        return (
            ConfigDef()
            .define("topic", Type.STRING, documentation="Where to.")
            .define("db.password", Type.PASSWORD, None)
            .define("limit", Type.INT, 0)
        )

    @classmethod
    def validate(cls, props):
        misbehave(props, "validate")
        return cls.config().validate(props)

    def start(self, props):
        misbehave(props, "connector.start")
        self.props = dict(props)
        if props.get("reconfigure"):
            self.context.request_task_reconfiguration()

    def task_configs(self, max_tasks):
        misbehave(self.props, "task_configs")
        return [self.props | {"task": str(i)} for i in range(max_tasks)]

    def stop(self):
        if path := self.props.get("stopped.file"):
            Path(path).write_text("stopped")


class CountingSourceConnector(_Base, SourceConnector):
    @classmethod
    def task_class(cls):
        return CountingTask

    @classmethod
    def alter_offsets(cls, props, offsets):
        for _, offset in offsets:
            if offset is not None and not isinstance(offset.get("n"), int):
                raise ConnectError(f"n must be a number: {offset}")
        return True


class CountingTask(SourceTask):
    """Numbers from the committed offset on, as strings, up to `limit` (0: for ever), `batch` at a time; `large` is too large."""

    def start(self, props):
        misbehave(props, "start")
        self.props = props
        self.partition = {"task": props.get("task", "0")}
        self.n = (self.context.offset(self.partition) or {"n": 0})["n"]
        self.limit, self.batch = int(props.get("limit", 0)), int(props.get("batch", 100))

    def poll(self):
        misbehave(self.props, "poll")
        count = min(self.batch, self.limit - self.n) if self.limit else self.batch
        if count <= 0 or self.props.get("idle"):
            self.context.stopping.wait(0.2)
            return None
        start, self.n = self.n, self.n + count
        if pace := self.props.get("pace.s"):
            self.context.stopping.wait(float(pace))
        large = int(self.props.get("large", -1))
        # `says`: numbers that are other values, such as "3=bad,5=odd".
        pairs = (pair.split("=") for pair in self.props.get("says", "").split(",") if pair)
        says = {int(n): text for n, text in pairs}
        return [
            SourceRecord(
                self.partition,
                {"n": i + 1},
                self.props["topic"],
                value_schema=STRING,
                value="x" * 2_000_000 if i == large else says.get(i, str(i)),
            )
            for i in range(start, self.n)
        ]

    def stop(self):
        misbehave(self.props, "stop")


class CollectingSinkConnector(_Base, SinkConnector):
    @classmethod
    def task_class(cls):
        return CollectingTask


class CollectingTask(SinkTask):
    """Appends `topic partition offset value` as JSON lines to `file`; reports values that are `report`."""

    def start(self, props):
        misbehave(props, "start")
        self.props = props
        self.file = Path(props["file"]).open("a")  # noqa: SIM115

    def open(self, partitions):
        """Keeps offsets of its own: begins at `begin`; leaves `pause`, a partition's number, for later."""
        if "begin" in self.props:
            self.context.offset({p: int(self.props["begin"]) for p in partitions})
        self.context.pause(*(p for p in partitions if str(p.partition) == self.props.get("pause")))

    def put(self, records):
        misbehave(self.props, "put")
        for r in records:
            if r.value is not None and r.value == self.props.get("report"):
                self.context.errant_record_reporter.report(r, DataError(f"{r.value} cannot be written"))
                continue
            self.file.write(json.dumps([r.topic, r.partition, r.offset, r.value]) + "\n")

    def flush(self, offsets):
        misbehave(self.props, "flush")
        self.file.flush()


class CountingDriverSourceConnector(CountingSourceConnector):
    @classmethod
    def task_class(cls):
        return CountingDriver


class CountingDriver(DriverTask):
    """Writes numbers to `topic` with a producer of its own, `batch` at a time; commits after each batch."""

    def start(self, props):
        misbehave(props, "start")
        self.props = props
        self.partition = {"task": props.get("task", "0")}
        self.n = (self.context.offset(self.partition) or {"n": 0})["n"]
        self.limit, self.batch = int(props.get("limit", 0)), int(props.get("batch", 100))
        self.producer = Producer(translate(self.context.client_properties("producer"), "producer").config)
        self.context.use_topics([props["topic"]])

    def run(self):
        began = self.n
        while not self.context.stopping.is_set():
            misbehave(self.props, "run")
            if self.context.paused:
                self.context.stay_paused()
                continue
            if self.limit and self.n >= self.limit:
                self.context.progress(self.n - began, lag=0, waiting_for="input", details={"at": self.n})
                if self.props.get("returns"):
                    return
                self.context.wait(0.2)
                continue
            count = min(self.batch, self.limit - self.n) if self.limit else self.batch
            for i in range(self.n, self.n + count):
                self.producer.produce(self.props["topic"], str(i))
            assert self.producer.flush(60) == 0
            self.n += count
            self.context.commit([(self.partition, {"n": self.n})])
            self.context.progress(self.n - began, details={"at": self.n})
            self.context.wait(float(self.props.get("pace.s", 0)))

    def stop(self):
        misbehave(getattr(self, "props", {}), "stop")
        if path := getattr(self, "props", {}).get("task.stopped.file"):
            Path(path).write_text("stopped")


class CollectingDriverSinkConnector(CollectingSinkConnector):
    @classmethod
    def task_class(cls):
        return CollectingDriver


class CollectingDriver(DriverTask):
    """Appends `[offset, value]` of partition 0 of `topics` to `file` as JSON lines, from the committed offset on."""

    def start(self, props):
        self.props = props
        self.place = {"kafka_topic": props["topics"], "kafka_partition": 0}
        self.n = (self.context.offset(self.place) or {"kafka_offset": 0})["kafka_offset"]
        config = translate(self.context.client_properties("consumer"), "consumer").config
        self.consumer = Consumer(config | {"group.id": "of its own", "enable.auto.commit": False})
        self.consumer.assign([TopicPartition(props["topics"], 0, self.n)])
        self.context.use_topics([props["topics"]])

    def run(self):
        taken = 0
        with Path(self.props["file"]).open("a") as out:
            while not self.context.stopping.is_set():
                if self.context.paused:
                    self.context.stay_paused()
                messages = [m for m in self.consumer.consume(100, 0.1) if m.error() is None]
                out.writelines(json.dumps([m.offset(), m.value().decode()]) + "\n" for m in messages)
                out.flush()
                if messages:
                    self.n = messages[-1].offset() + 1
                    taken += len(messages)
                    self.context.commit([(self.place, {"kafka_offset": self.n})])
                self.context.progress(taken, waiting_for=None if messages else "input")

    def stop(self):
        self.consumer.close()


class MoodyConverter(StringConverter):
    """Strings; of `busy` it says so `busy.tries` times before it takes it, `bad` it never takes."""

    kafka_name = None

    def configure(self, props, *, is_key):
        super().configure({k: v for k, v in props.items() if k != "busy.tries"}, is_key=is_key)
        self.tries = int(props.get("busy.tries", 0))

    def _look(self, text):
        if text == "bad":
            raise DataError("bad is no value")
        if text == "busy" and self.tries:
            self.tries -= 1
            raise RetriableError("the registry is away")

    def to_connect_data(self, topic, value):
        found = super().to_connect_data(topic, value)
        self._look(found[1])
        return found

    def to_connect_data_many(self, topic, values):
        return [self.to_connect_data(topic, v) for v in values]

    def from_connect_data(self, topic, schema, value):
        self._look(value)
        return super().from_connect_data(topic, schema, value)

    def from_connect_data_many(self, topic, schema, values):
        return [self.from_connect_data(topic, schema, v) for v in values]


class MoodyTransform(Transformation):
    """Sends records to `elsewhere` and adds `!`; drops `drop`, does not like `odd`."""

    def apply(self, record):
        if record.value == "odd":
            raise DataError("odd cannot be transformed")
        if record.value == "drop":
            return None
        made = record.copy()
        made.topic, made.value = "elsewhere", f"{record.value}!"
        return made


@hookimpl
def register_converters():
    return [MoodyConverter]


@hookimpl
def register_transforms():
    return [MoodyTransform]


@hookimpl
def register_connectors():
    return [
        CountingSourceConnector,
        CollectingSinkConnector,
        CountingDriverSourceConnector,
        CollectingDriverSinkConnector,
    ]
