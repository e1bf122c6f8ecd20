"""Topic to topic in real sessions: a batch that runs again, and processes that are killed in the middle."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from support.broker import new_topic, wait_decided, wait_until
from support.spark import (
    a_job,
    all_gone,
    family,
    produce,
    read_to_end,
    require_spark,
    to_the_end,
    until_end,
    wait_event,
)

from klamm.testing import EmbeddedBroker
from klamm_spark.model import Output, Query
from klamm_spark.process import ENDED, DriverProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.usefixtures("apache_spark"), pytest.mark.timeout(900)]
EXACTLY = {"deliveryGuarantee": "exactly-once"}


def committed(broker: EmbeddedBroker, topic: str) -> list[bytes]:
    """Returns what a reader of committed records sees."""
    wait_decided(broker.bootstrap, topic)
    return sorted(m.value() or b"" for m in read_to_end(broker.bootstrap, topic))


def copy(
    spark: SparkSession, broker: EmbeddedBroker, topics: tuple[str, str], checkpoint: Path, **more: str
) -> Any:
    source = {
        "kafka.bootstrap.servers": broker.bootstrap,
        "subscribe": topics[0],
        "startingOffsets": "earliest",
    }
    frame = spark.readStream.format("klamm").options(**source, maxOffsetsPerTrigger="200", **more).load()
    target = {"kafka.bootstrap.servers": broker.bootstrap, "topic": topics[1]} | EXACTLY
    writer = frame.select("key", "value").writeStream.format("klamm").options(**target)
    writer = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    return to_the_end(writer.start)


def forget_last_batch(checkpoint: Path) -> None:
    """Leaves files as if the driver had been killed after the tasks of the last batch, before it noted that they were done."""
    commits = sorted(
        (p for p in (checkpoint / "commits").iterdir() if p.name.isdigit()), key=lambda p: int(p.name)
    )
    for path in (checkpoint / "commits").glob(f"*{commits[-1].name}*"):
        path.unlink()


def test_a_batch_that_runs_again_is_there_once(
    broker: EmbeddedBroker, spark: SparkSession, tmp_path: Path
) -> None:
    """This holds with another minPartitions, too: the batch is cut into the same tasks as before."""
    topics = new_topic(broker, 2), new_topic(broker, 2)
    produce(broker.bootstrap, topics[0], ({"n": i} for i in range(500)))
    copy(spark, broker, topics, tmp_path, minPartitions="3")
    expected = sorted(json.dumps({"n": i}).encode() for i in range(500))
    assert committed(broker, topics[1]) == expected
    for parts in ("3", "5", "1"):
        forget_last_batch(tmp_path)
        query = copy(spark, broker, topics, tmp_path, minPartitions=parts)
        assert query.exception() is None
        assert query.recentProgress[0].numInputRows, "the batch did run"
        assert committed(broker, topics[1]) == expected
    produce(broker.bootstrap, topics[0], [{"n": 500}])
    copy(spark, broker, topics, tmp_path, minPartitions="5")
    assert len(committed(broker, topics[1])) == 501


def test_a_batch_that_gives_something_else_is_refused(
    broker: EmbeddedBroker, spark: SparkSession, tmp_path: Path
) -> None:
    topics = new_topic(broker, 1), new_topic(broker, 1)
    produce(broker.bootstrap, topics[0], ({"n": i} for i in range(50)))
    source = {
        "kafka.bootstrap.servers": broker.bootstrap,
        "subscribe": topics[0],
        "startingOffsets": "earliest",
    }
    target = {"kafka.bootstrap.servers": broker.bootstrap, "topic": topics[1]} | EXACTLY

    def run(where: str) -> None:
        frame = spark.readStream.format("klamm").options(**source).load().select("value").where(where)
        writer = (
            frame.writeStream.format("klamm").options(**target).option("checkpointLocation", str(tmp_path))
        )
        to_the_end(writer.trigger(availableNow=True).start)

    run("true")
    forget_last_batch(tmp_path)
    with pytest.raises(Exception, match=r"task 0 of batch 0 of .* wrote 50 records .* now it gives 49"):
        run("value <> cast('{\"n\": 7}' AS BINARY)")
    assert len(committed(broker, topics[1])) == 50


def test_batches_of_foreach_batch_by_their_numbers(broker: EmbeddedBroker, spark: SparkSession) -> None:
    topic = new_topic(broker, 1)
    target = {"kafka.bootstrap.servers": broker.bootstrap, "topic": topic} | EXACTLY
    frame = spark.range(20).selectExpr("cast(id AS STRING) AS value")
    with pytest.raises(Exception, match="needs txnAppId and txnVersion"):
        frame.write.format("klamm").mode("append").options(**target).save()
    for version in ("0", "0", "1"):
        options = target | {"txnAppId": "totals", "txnVersion": version}
        frame.write.format("klamm").mode("append").options(**options).save()
    assert Counter(Counter(committed(broker, topic)).values()) == {2: 20}


@pytest.fixture
def launch() -> Iterator[Callable[[Any], DriverProcess]]:
    launched: list[DriverProcess] = []

    def start(job: Any) -> DriverProcess:
        launched.append(DriverProcess(job))
        return launched[-1]

    yield start
    for driver in launched:
        driver.kill()


def some_process(driver: DriverProcess, kind: str) -> psutil.Process | None:
    for process in family(driver.pid):
        try:
            command = " ".join(process.cmdline())
            forked = "-m pyspark.daemon pyspark.worker" in command and "launch.py" not in command
            if kind == "worker" and forked and not process.children():
                return process  # those with children are the ones that workers are forked from
            if kind == "java" and "java" in process.name():
                return process
        except psutil.Error:
            continue
    return None


def test_killed_drivers_workers_and_java_leave_every_record_once(
    broker: EmbeddedBroker, tmp_path: Path, launch: Callable[[Any], DriverProcess]
) -> None:
    require_spark()
    chance = random.Random(7)
    topics = new_topic(broker, 2), new_topic(broker, 2)
    (tmp_path / "slow_job.py").write_text(
        "from pyspark.sql import functions as F\n"
        "def slowly(df, spark):\n"
        "    slow = F.udf(lambda v: __import__('time').sleep(0.001) or v, 'binary')\n"
        "    return df.select('key', slow('value').alias('value'))\n"
    )
    job = a_job(
        broker.bootstrap, topics[0], tmp_path,
        source={"value_format": "bytes", "schema": None, "max_offsets_per_trigger": 400},
        query=Query(function="slow_job:slowly"), python_path=(str(tmp_path),),
        outputs=(Output(name="copy", format="klamm", options={"topic": topics[1]} | EXACTLY),),
    )  # fmt: skip
    rounds = ("driver", "worker", "java", "driver")
    for number, kind in enumerate(rounds):
        produce(broker.bootstrap, topics[0], ({"n": number * 2000 + i} for i in range(2000)))
        driver = launch(job)
        wait_event(driver, "started")
        wait_event(driver, "progress")
        time.sleep(chance.random())  # anywhere in a batch
        processes = family(driver.pid)
        victim = None if kind == "driver" else some_process(driver, kind)
        os.kill(driver.pid if victim is None else victim.pid, signal.SIGKILL)
        if (
            kind == "worker"
        ):  # a local master has no second attempt: the query fails, unless the worker had nothing to do
            said = {"failed", ENDED, "progress"}
            wait_until(lambda: (driver.next_event(0.2) or {}).get("event") in said, "the end of the query")
            driver.kill()
        assert all_gone(processes, 60)
    import dataclasses

    events = until_end(launch(dataclasses.replace(job, available_now=True)))
    assert events[-1] == {"event": "ended", "code": 0}, events
    assert committed(broker, topics[1]) == sorted(
        json.dumps({"n": i}).encode() for i in range(2000 * len(rounds))
    )
