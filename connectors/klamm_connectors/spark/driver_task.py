"""The base of SparkSink's and SparkSource's tasks: starts, follows and stops the process of a Spark job."""

from __future__ import annotations

import json
import time
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ClusterMetadata

from klamm_base.clientconfig import translate
from klamm_base.errors import ConfigError
from klamm_plugins.connector import DriverTask
from klamm_plugins.errors import ConnectError, DataError, RetriableError
from klamm_spark.java import JavaError, need_java, need_packages
from klamm_spark.model import Job
from klamm_spark.process import ENDED, DriverProcess
from klamm_spark.status import STOPPED, JobStatus, samples

START_S: Final = 180.0
STEP_S: Final = 0.5
COMMIT_S: Final = 1.0
BATCH_S: Final = 1.5
STOP_S: Final = 3.5
"""A stop must end, with offsets committed, before the worker kills the task
(task.shutdown.graceful.timeout.ms, 5 s by default). The task's next owner must find nobody at its
checkpoint.
"""
PAUSE_S: Final = 30.0
DETAILS_MAX: Final = 15_000
"""Bytes of JSON; a status holds 16 KiB."""
_ENTRIES_MAX: Final = 60
_LONG: Final = ("observed", "drift", "position", "phases_ms", "metrics", "lag", "sink")
_SHOWN: Final = (
    "batch", "at", "input_rows_per_s", "rows_per_s", "duration_ms", "phases_ms", "state_rows", "state_bytes", "late", "watermark",
    "lost", "lag", "position", "sink", "observed",
)  # fmt: skip


def bounded(details: dict[str, Any]) -> dict[str, Any]:
    """Shortens long details, then leaves them out, the least needed first, until they fit into a status."""
    if len(json.dumps(details)) <= DETAILS_MAX:
        return details
    shown = dict(details)
    for name in _LONG:
        if isinstance(found := shown.get(name), list):
            shown[name] = found[:_ENTRIES_MAX]
        elif name in shown:
            del shown[name]
        if len(json.dumps(shown)) <= DETAILS_MAX:
            return shown
    return {"left_out": "figures that are too long for a status"}


class SparkTask(DriverTask):
    """A task around a Spark job. Pausing stops the job's process; resuming starts it again from its checkpoint."""

    def __init__(self) -> None:
        self._driver: DriverProcess | None = None
        self._records = 0
        self._lag: int | None = None
        self._details: dict[str, Any] = {}
        self._status = JobStatus("")
        self._done = False
        self._ends = False
        self._output_waits = False
        self._committed_at = 0.0

    @abstractmethod
    def describe(self, props: Mapping[str, str]) -> Job:
        """Returns the job to run, with the place to continue from."""

    @abstractmethod
    def moved(self, event: Mapping[str, Any]) -> None:
        """Remembers the offsets of a finished batch for `commit`."""

    @abstractmethod
    def commit(self) -> None:
        """Commits the offsets that `moved` remembered, if they are new."""

    def start(self, props: Mapping[str, str]) -> None:
        try:
            need_packages()
            need_java()
        except JavaError as e:
            raise ConfigError(str(e)) from None
        self._status = JobStatus(props.get("name", ""))
        self._launch()

    def run(self) -> None:
        context = self.context
        while not context.stopping.is_set() and not self._done:
            if context.paused:
                self._halt(None, PAUSE_S)
                context.stay_paused()
                continue
            if self._driver is None:
                self._launch()
                continue
            event = self._driver.next_event(STEP_S)
            if event is not None:
                self._take(event)
            self._commit(now=False)
            self._say()
        self._halt(BATCH_S, STOP_S)

    def stop(self) -> None:
        driver, self._driver = self._driver, None
        if driver is not None:
            driver.kill()

    def metadata(self, kind: str) -> ClusterMetadata:
        """Returns topics and id of the worker's cluster. Raises RetriableError while it does not answer."""
        client = self.context.client_properties("consumer" if kind == "consumer" else "producer")
        admin = AdminClient({"log_level": 3, **translate(client, "admin", lenient=True).config})
        try:
            return admin.list_topics(timeout=30)
        except KafkaException as e:
            raise RetriableError(f"the broker does not answer: {e.args[0].str()}") from None

    def _launch(self) -> None:
        """Starts the process and waits until its queries run."""
        job = self.describe(self.context.configs)
        self._ends = job.ends
        self._driver = DriverProcess(job)
        deadline = time.monotonic() + START_S
        while not self.context.stopping.is_set() and self._driver is not None:
            event = self._driver.next_event(STEP_S)
            shown = bounded(self._details)
            self.context.progress(self._records, lag=self._lag, waiting_for="spark", details=shown)
            if event is not None:
                self._take(event)
                if event["event"] in {"started", "waiting"}:
                    return
            if time.monotonic() > deadline:
                raise ConnectError(f"Spark did not start within {START_S:.0f} s")

    def _halt(self, batch_s: float | None, within_s: float) -> None:
        """Stops the process, between two batches if one ends within `batch_s`. Its last events count."""
        driver, self._driver = self._driver, None
        if driver is None:
            return
        driver.ask_to_stop(batch_s)
        deadline = time.monotonic() + within_s
        try:
            while time.monotonic() < deadline and (batch_s is not None or not self.context.stopping.is_set()):
                event = driver.next_event(STEP_S)
                if event is not None and event["event"] == ENDED:
                    break
                if event is not None:
                    self._take(event)
                self._say()
        finally:
            driver.kill()
        self._commit(now=True)

    def _take(self, event: dict[str, Any]) -> None:
        self._status.take(event, time.time())
        match event["event"]:
            case "started":
                self._details |= {"spark": event["spark"], "java": event["java"]}
                self._details.pop("waiting", None)
            case "waiting":
                self._details["waiting"] = event["for"]
                self._output_waits = "output" in event
            case "progress":
                self._details.pop("waiting", None)
                self._progress(event)
            case "lag":
                self._lag = sum(event["lag"].values())
                self._details["lag"] = event["lag"]
            case "drift":
                self._details["drift"] = event["topics"]
            case "failed":
                message = f"{event['error']}: {event['message']}"
                raise ConnectError(message) if event["retriable"] else DataError(message)
            case "ended":
                self._driver = None
                if event["code"] or self._status.state != STOPPED:
                    raise ConnectError(f"the process of the Spark job ended (exit code {event['code']})")
                if not self._ends:  # a SIGTERM that was not ours
                    raise ConnectError("the process of the Spark job was told to stop, not by this worker")
                self._done = True

    def _progress(self, event: dict[str, Any]) -> None:
        self._records += event["rows"]
        if event["lag"]:
            self._lag = sum(event["lag"].values())
        self._details |= {name: event[name] for name in _SHOWN if name in event}
        self.moved(event)

    def _say(self) -> None:
        waiting = "input" if self._lag == 0 or "waiting" in self._details else None
        if "waiting" in self._details and self._output_waits:
            waiting = "target"
        metrics = [[name, labels, value] for name, _, labels, value in samples(self._status)]
        shown = bounded(self._details | {"metrics": metrics})
        self.context.progress(self._records, lag=self._lag, waiting_for=waiting, details=shown)

    def _commit(self, *, now: bool) -> None:
        """Commits now or when a commit is due. Progress is reported after a batch is written, so it is safe to commit."""
        if now or time.monotonic() - self._committed_at > COMMIT_S:
            self.commit()
            self._committed_at = time.monotonic()
