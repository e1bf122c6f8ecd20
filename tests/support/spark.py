"""The common part of tests with Spark: whether it can run here, topics with records, jobs, processes."""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from support.broker import wait_until

from klamm_base.extras import how_to_install
from klamm_spark.java import find_java, missing_packages
from klamm_spark.model import Job, Output, Query, Source
from klamm_spark.process import ENDED, DriverProcess

if TYPE_CHECKING:
    from confluent_kafka import Message
    from pyspark.sql import SparkSession

QUICK = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
"""Settings of a Java that starts soon instead of running fast."""


@functools.cache
def _why_not() -> str | None:
    if absent := missing_packages():
        return f"{', '.join(absent)} not installed: {how_to_install('spark')}"
    return None if find_java() else "no Java 17 or later: klamm spark setup"


def require_spark() -> None:
    """Skip the calling test, saying why, where Spark cannot run."""
    if why := _why_not():
        pytest.skip(why)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Yields the one session of a test process: a second one would be the same, and whoever stops one stops both."""
    require_spark()
    from klamm_spark.session import open_session

    session = open_session("tests", "local[2]", QUICK | {"spark.sql.shuffle.partitions": "2"})
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


def to_the_end(start: Callable[[], Any], timeout_s: float = 200) -> Any:
    """Returns what `start` starts (a query, or several), once it has ended. Raises what ended it.

    Started again where Spark found that a Python process took too long to connect back: it has ten seconds, a busy machine or not.
    """
    from pyspark.errors import StreamingQueryException

    until = time.monotonic() + timeout_s
    while True:
        started = start()
        queries = started if isinstance(started, list) else [started]
        try:
            for query in queries:
                left_s = max(0, until - time.monotonic())
                assert query.awaitTermination(left_s), f"not within {timeout_s} s"
        except StreamingQueryException as e:
            for query in queries:
                query.stop()
            if "failed to connect back" in str(e) and time.monotonic() < until:
                continue
            raise
        return started


def produce(bootstrap: str, topic: str, values: Iterable[Any], **more: Any) -> None:
    """Writes JSON values, keyed by their number; returns when all are acknowledged.

    Few of them are there together, in one batch of a partition: none is sent before the last one was given.
    """
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 60_000})
    for i, value in enumerate(values):
        data = value if isinstance(value, bytes) else json.dumps(value).encode()
        producer.produce(topic, data, str(i).encode(), **more)
        if i % 1000 == 0:
            producer.poll(0)
    assert producer.flush(60) == 0


def read_to_end(bootstrap: str, topic: str, **client: str) -> list[Message]:
    """Returns what a plain consumer finds in a topic now, to the end of every partition; by default committed records only."""
    from confluent_kafka import Consumer, KafkaError, TopicPartition

    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": "x",
        "enable.partition.eof": True,
        "fetch.wait.max.ms": 10,
    }
    consumer = Consumer(settings | client)
    try:
        left = set(consumer.list_topics(topic, timeout=60).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, p, 0) for p in left])
        found: list[Message] = []

        def read() -> bool:
            for message in consumer.consume(10_000, 0.2):
                if (error := message.error()) is None:
                    found.append(message)
                else:
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    left.discard(message.partition())
            return not left

        wait_until(read, f"the end of {topic}")
        return found
    finally:
        consumer.close()


def a_job(bootstrap: str, topic: str, directory: Path, **changes: Any) -> Job:
    """Numbers (`n INT`) of a topic to Parquet files below `directory`."""
    source = {
        "bootstrap_servers": bootstrap,
        "topics": (topic,),
        "starting_offsets": "earliest",
        "value_format": "json",
        "schema": "n INT",
    } | changes.pop("source", {})
    files = Output(name="files", format="parquet", options={"path": str(directory / "out")})
    settings = {
        "name": "numbers",
        "checkpoint": str(directory / "checkpoint"),
        "master": "local[2]",
        "outputs": (files,),
        "query": Query(sql="SELECT n, partition, offset FROM input"),
        "spark": QUICK,
    } | changes
    return Job(source=Source(**source), **settings)


def wait_event(driver: DriverProcess, kind: str, timeout_s: float = 150) -> dict[str, Any]:
    """Returns the next event of this kind; an unexpected end fails the test."""
    deadline = time.monotonic() + timeout_s
    seen = []
    while time.monotonic() < deadline:
        event = driver.next_event(0.2)
        if event is None:
            continue
        if event["event"] == kind:
            return event
        seen.append(event)
        if event["event"] in {ENDED, "failed"}:
            break
    pytest.fail(f"no {kind} within {timeout_s} s; there were {seen}")


def until_end(driver: DriverProcess, timeout_s: float = 200) -> list[dict[str, Any]]:
    """Returns all events up to the last one; the time is that of the start or of a batch."""
    deadline = time.monotonic() + timeout_s
    events: list[dict[str, Any]] = []
    while time.monotonic() < deadline:
        event = driver.next_event(0.2)
        if event is not None:
            events.append(event)
            if event["event"] == "progress":
                deadline = time.monotonic() + timeout_s
            if event["event"] == ENDED:
                return events
    pytest.fail(f"the driver did not go on within {timeout_s} s; there were {events}")


def family(pid: int) -> list[psutil.Process]:
    """Returns a process and all below it."""
    parent = psutil.Process(pid)
    return [parent, *parent.children(recursive=True)]


def all_gone(processes: list[psutil.Process], timeout_s: float) -> bool:
    """Returns whether none of them runs after the time, zombies aside."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if not any(map(_there, processes)):
            return True
        time.sleep(0.05)
    return False


def find_process(pid: int, word: str) -> psutil.Process | None:
    """Returns the first process below one whose command has this word; None when there is none. Spark has some that end soon."""
    for process in family(pid)[1:]:
        try:
            if word in " ".join(process.cmdline()):
                return process
        except psutil.Error:
            continue
    return None


def _there(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
