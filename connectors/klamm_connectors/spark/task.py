"""SparkSink's task: the process of its Spark job, started, followed and stopped.

The job keeps its place in its checkpoint. What it has written is committed to the group `connect-NAME` as well, for
everybody's tools, and for one case of its own: when there is no checkpoint (yet, or no longer: another machine), it begins
at the group's offsets instead of reading everything again.
"""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from klamm_base.clientconfig import translate
from klamm_base.errors import ConfigError
from klamm_connectors.spark import config
from klamm_plugins.connector import DriverTask
from klamm_plugins.errors import ConnectError, DataError, RetriableError
from klamm_spark.java import JavaError, need_java, need_packages
from klamm_spark.pipeline import Job
from klamm_spark.process import ENDED, DriverProcess

log = logging.getLogger(__name__)

START_S: Final = 180.0
STEP_S: Final = 0.5
COMMIT_S: Final = 1.0
BATCH_S: Final = 1.5
STOP_S: Final = 3.5
"""A stop must be over, offsets committed, before the worker kills the task: after task.shutdown.graceful.timeout.ms, 5 s
by default. Whoever takes the task over must find nobody at its checkpoint."""
PAUSE_S: Final = 30.0
_INTERNAL: Final = re.compile(r"__(consumer_offsets|transaction_state)")


class SparkSinkTask(DriverTask):
    """Pause stops the job's process; resume starts it again, from its checkpoint."""

    kafka_name = "klamm.SparkSinkTask"

    def __init__(self) -> None:
        self._driver: DriverProcess | None = None
        self._records = 0
        self._lag: int | None = None
        self._details: dict[str, Any] = {}
        self._offsets: dict[str, dict[str, int]] = {}
        self._committed: dict[str, dict[str, int]] = {}
        self._committed_at = 0.0

    def start(self, props: Mapping[str, str]) -> None:
        try:
            need_packages()
            need_java()
        except JavaError as e:
            raise ConfigError(str(e)) from None
        self._launch()

    def run(self) -> None:
        context = self.context
        while not context.stopping.is_set():
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

    def _describe(self, props: Mapping[str, str]) -> Job:
        client = self.context.client_properties("consumer")
        partitions, cluster_id = self._topics(props, client)
        starting = self._committed_before(partitions)
        if starting is None:
            starting = "latest" if client.get("auto.offset.reset") == "latest" else "earliest"
        checkpoint = config.default_checkpoint(props.get("name", "spark-sink"), cluster_id)
        return config.job(props, client, checkpoint, starting)

    def _topics(
        self, props: Mapping[str, str], client: Mapping[str, str]
    ) -> tuple[dict[str, list[int]], str]:
        """The topics that the configuration names, with their partitions, and the cluster's id."""
        admin = AdminClient({"log_level": 3, **translate(client, "admin", lenient=True).config})
        try:
            found = admin.list_topics(timeout=30)
        except KafkaException as e:
            raise RetriableError(f"the broker does not answer: {e.args[0].str()}") from None
        names = [t.strip() for t in props.get("topics", "").split(",") if t.strip()]
        if regex := props.get("topics.regex"):
            pattern = re.compile(regex)
            names = [t for t in found.topics if pattern.fullmatch(t) and not _INTERNAL.fullmatch(t)]
        if absent := [t for t in names if t not in found.topics]:
            raise ConnectError(f"there is no topic {absent[0]}")
        return {t: sorted(found.topics[t].partitions) for t in names}, found.cluster_id or "cluster"

    def _committed_before(self, partitions: Mapping[str, list[int]]) -> str | None:
        """Offsets of the group as startingOffsets; None when nothing was committed yet."""
        places = [
            {"kafka_topic": t, "kafka_partition": p} for t, numbers in partitions.items() for p in numbers
        ]
        found = self.context.offsets(places)
        if not any(found):
            return None
        answer: dict[str, dict[str, int]] = {}
        for place, offset in zip(places, found, strict=True):
            value = -2 if offset is None else int(offset["kafka_offset"])
            answer.setdefault(str(place["kafka_topic"]), {})[str(place["kafka_partition"])] = value
        return json.dumps(answer)

    def _launch(self) -> None:
        """Start the process and wait until its queries run."""
        self._driver = DriverProcess(self._describe(self.context.configs))
        deadline = time.monotonic() + START_S
        while not self.context.stopping.is_set():
            event = self._driver.next_event(STEP_S)
            self.context.progress(self._records, lag=self._lag, waiting_for="spark", details=self._details)
            if event is not None:
                self._take(event)
                if event["event"] == "started":
                    return
            if time.monotonic() > deadline:
                raise ConnectError(f"Spark did not start within {START_S:.0f} s")

    def _halt(self, batch_s: float | None, within_s: float) -> None:
        """Stop the process, between two batches if one ends in `batch_s`; its last events count."""
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
        match event["event"]:
            case "started":
                self._details |= {"spark": event["spark"], "java": event["java"]}
            case "progress":
                self._progress(event)
            case "failed":
                message = f"{event['error']}: {event['message']}"
                raise ConnectError(message) if event["retriable"] else DataError(message)
            case "ended":
                self._driver = None
                raise ConnectError(f"the process of the Spark job ended (exit code {event['code']})")

    def _progress(self, event: dict[str, Any]) -> None:
        self._records += event["rows"]
        if event["offsets"]:
            self._offsets = event["offsets"]
            self.context.use_topics(event["offsets"])
        if event["lag"]:
            self._lag = sum(event["lag"].values())
        shown = ("batch", "rows_per_s", "duration_ms", "state_rows", "watermark", "lost", "lag")
        self._details |= {name: event[name] for name in shown}

    def _say(self) -> None:
        waiting = "input" if self._lag == 0 else None
        self.context.progress(self._records, lag=self._lag, waiting_for=waiting, details=self._details)

    def _commit(self, *, now: bool) -> None:
        """Progress comes after a batch is written: these offsets are behind it."""
        if self._offsets == self._committed or not (now or time.monotonic() - self._committed_at > COMMIT_S):
            return
        changed = [
            ({"kafka_topic": t, "kafka_partition": int(p)}, {"kafka_offset": o})
            for t, partitions in self._offsets.items()
            for p, o in partitions.items()
            if self._committed.get(t, {}).get(p) != o
        ]
        self.context.commit(changed)
        self._committed, self._committed_at = self._offsets, time.monotonic()
