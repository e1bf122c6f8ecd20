"""Connectors that leave traces: which process runs which task when, whatever the broker gets to see of it.

Each task has a run (a name of its own for each of its lives) and appends `task run ms n` to a file at every round of its
loop. `ms` is CLOCK_MONOTONIC, which all processes of a machine share. Children load this by an entry point that the cluster makes.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from pathlib import Path

from klamm_base.configdef import ConfigDef, Type
from klamm_plugins.connector import SinkConnector, SinkTask, SourceConnector, SourceTask
from klamm_plugins.hookspecs import hookimpl
from klamm_plugins.records import SourceRecord
from klamm_plugins.schema import STRING

SOURCE = "support.workers.plugins.TenureSource"
SINK = "support.workers.plugins.TenureSink"
BATCH = 3


class Trace:
    """The file of one kind of connector. One write a line: lines of several processes do not mix."""

    def __init__(self, props: dict[str, str], task: str) -> None:
        self.run = uuid.uuid4().hex[:12]
        self._task = task
        self._fd = os.open(props["trace.file"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def note(self, n: int) -> int:
        now = time.monotonic_ns() // 1_000_000
        os.write(self._fd, f"{self._task} {self.run} {now} {n}\n".encode())
        return now

    def close(self) -> None:
        os.close(self._fd)


def _config() -> ConfigDef:
    keys = ConfigDef()
    for name in ("trace.file", "topic", "out.file"):
        keys.define(name, Type.STRING, default="", documentation="see support.workers.plugins")
    return keys.define("tasks", Type.INT, default=1, documentation="how many tasks")


class TenureSource(SourceConnector):
    """Each task counts from 0 into partition 0 of `topic`-TASK, for ever."""

    @classmethod
    def version(cls):
        return "1.0"

    @classmethod
    def config(cls):
        return _config()

    @classmethod
    def task_class(cls):
        return TenureTask

    @classmethod
    def exactly_once_support(cls, props):
        return True

    def start(self, props):
        self._props = dict(props)

    def task_configs(self, max_tasks):
        count = min(max_tasks, int(self._props.get("tasks", "1")))
        return [self._props | {"task": str(i)} for i in range(count)]


class TenureTask(SourceTask):
    def start(self, props):
        self._task = int(props["task"])
        self._topic = f"{props['topic']}-{self._task}"
        self._trace = Trace(props, str(self._task))
        offset = self.context.offset({"task": self._task})
        self._n = offset["n"] + 1 if offset else 0

    def poll(self):
        self.context.stopping.wait(0.03)
        now = self._trace.note(self._n)
        out = []
        for _ in range(BATCH):
            value = json.dumps({"task": self._task, "run": self._trace.run, "ms": now, "n": self._n})
            out.append(
                SourceRecord(
                    {"task": self._task}, {"n": self._n}, self._topic, 0, value_schema=STRING, value=value
                )
            )
            self._n += 1
        return out

    def stop(self):
        if hasattr(self, "_trace"):
            self._trace.close()


class TenureSink(SinkConnector):
    """Appends what it gets to `out.file`, and traces the partitions that its tasks have."""

    @classmethod
    def version(cls):
        return "1.0"

    @classmethod
    def config(cls):
        return _config()

    @classmethod
    def task_class(cls):
        return TenureSinkTask

    def start(self, props):
        self._props = dict(props)

    def task_configs(self, max_tasks):
        return [self._props | {"task": str(i)} for i in range(max_tasks)]


class TenureSinkTask(SinkTask):
    def start(self, props):
        self._trace = Trace(props, props["task"])
        self._out = Path(props["out.file"]).open("ab", buffering=0)  # noqa: SIM115 - closed in stop

    def put(self, records):
        self._trace.note(len(records))
        text = "".join(f"{r.topic} {r.partition} {r.offset} {r.value}\n" for r in records)
        if text:
            os.write(self._out.fileno(), text.encode())

    def stop(self):
        if hasattr(self, "_trace"):
            self._trace.close()
            self._out.close()


@hookimpl
def register_connectors():
    return [TenureSource, TenureSink]
