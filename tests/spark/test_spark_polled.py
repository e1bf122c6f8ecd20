"""Batch reads by a column: which rows a read takes, and where the next one goes on."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from klamm_base.errors import ConfigError
from klamm_spark.beside import POSITION
from klamm_spark.model import Job, Output, Poll, Query, Source

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.usefixtures("apache_spark"), pytest.mark.timeout(900)]


class Reports(list[dict[str, Any]]):
    send = list.append


@pytest.fixture(params=["UTC", "America/New_York"])
def zone(request: pytest.FixtureRequest, spark: SparkSession) -> Iterator[str]:
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", request.param)
    yield request.param
    spark.conf.set("spark.sql.session.timeZone", before)


class Table:
    """Rows in files, and a job that reads them and writes them to files."""

    def __init__(self, spark: SparkSession, directory: Path, poll: Poll, sql: str | None = None) -> None:
        self._spark, self._directory = spark, directory
        (directory / "in").mkdir()
        source = Source(
            format="json", read="batch", poll=poll, schema="id INT, ts TIMESTAMP, d DATE", options={"path": str(directory / "in")}
        )  # fmt: skip
        output = Output("files", "json", options={"path": str(directory / "out")})
        self.job = Job("x", str(directory / "cp"), source, (output,), Query(sql))
        self._files = 0

    def insert(self, *rows: dict[str, Any]) -> None:
        self._files += 1
        (self._directory / "in" / f"{self._files}.json").write_text("\n".join(map(json.dumps, rows)))

    def read(self) -> list[dict[str, Any]]:
        """Returns one read by a process that was just started; its events."""
        from klamm_spark.polled import Polled

        reports = Reports()
        polled = Polled(self.job, self._spark, reports)
        polled.check()
        stop: Any = threading.Event()
        stop.batch_s = 0.0
        polled.run(stop)
        return reports

    def written(self) -> list[int]:
        out = self._directory / "out"
        return sorted(json.loads(line)["id"] for f in out.glob("part-*") for line in f.read_text().splitlines())  # fmt: skip


def at(text: str, number: int) -> dict[str, Any]:
    return {"id": number, "ts": text}


def test_an_hour_that_comes_twice_is_read_once(spark: SparkSession, tmp_path: Path, zone: str) -> None:
    table = Table(spark, tmp_path, Poll(column="ts"))
    table.insert(at("2026-11-01T05:30:00Z", 1), at("2026-11-01T06:30:00.000001Z", 2))
    table.read()
    assert table.written() == [1, 2], zone
    table.insert(at("2026-11-01T06:30:00.000002Z", 3))
    table.read()
    table.read()
    assert table.written() == [1, 2, 3]


def test_a_delay_means_the_same_in_every_zone(spark: SparkSession, tmp_path: Path, zone: str) -> None:
    table = Table(spark, tmp_path, Poll(column="ts", delay="1 hours"))
    now = datetime.now(UTC)
    table.insert(
        at((now - timedelta(minutes=1)).isoformat(), 1), at((now - timedelta(hours=2)).isoformat(), 2)
    )
    table.read()
    assert table.written() == [2], zone


def test_a_day_is_read_when_it_is_over(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is a date: later rows of a day"):
        Table(spark, tmp_path, Poll(column="d")).read()
    (tmp_path / "in").rmdir()
    table = Table(spark, tmp_path, Poll(column="d", delay="1 s"))
    today = time.strftime("%Y-%m-%d", time.gmtime())
    table.insert({"id": 1, "d": today}, {"id": 2, "d": "2026-01-01"})
    events = table.read()
    if time.strftime("%Y-%m-%d", time.gmtime()) == today:
        assert table.written() == [2]
        assert events[0]["position"]["value"] == "2026-01-01"


def test_a_query_that_takes_nothing_goes_on_nevertheless(spark: SparkSession, tmp_path: Path) -> None:
    table = Table(spark, tmp_path, Poll(column="id"), "SELECT * FROM input WHERE 1 = 0")
    table.insert({"id": 7})
    (event,) = table.read()
    assert event["position"]["value"] == "7"
    assert json.loads((tmp_path / "cp" / POSITION).read_text())["value"] == "7"
