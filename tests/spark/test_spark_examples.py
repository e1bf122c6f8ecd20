"""Every file of examples/spark does what it says, on a real broker."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from support.broker import new_topic, wait_decided
from support.spark import read_to_end, to_the_end

from klamm.testing import EmbeddedBroker
from klamm_spark.model import Job
from klamm_spark.pipeline import check, job_from_json, load

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXAMPLES = Path(__file__).parents[2] / "examples" / "spark"
running = [pytest.mark.usefixtures("apache_spark"), pytest.mark.timeout(900)]


def test_every_example_is_a_job_that_the_driver_takes() -> None:
    found = sorted(EXAMPLES.glob("*.toml"))
    assert len(found) >= 7
    for path in found:
        job = load(path)
        check(job)
        assert job_from_json(json.loads(json.dumps(job.to_json()))) == job
        assert "127.0.0.1:9092" in path.read_text(), "an example runs against klamm up"


class Example:
    """One example with topics of its own; `run` processes what is there."""

    def __init__(
        self, name: str, topics: dict[str, str], broker: EmbeddedBroker, spark: SparkSession, place: Path
    ) -> None:
        text = (EXAMPLES / f"{name}.toml").read_text().replace("127.0.0.1:9092", broker.bootstrap)
        for old, new in topics.items():
            text = text.replace(f'"{old}"', f'"{new}"')
        place.mkdir()
        (place / f"{name}.toml").write_text(text)
        self._topics, self._broker, self._spark, self._place = topics, broker, spark, place
        self.job: Job = dataclasses.replace(
            load(place / f"{name}.toml"), checkpoint=str(place / "checkpoint"), available_now=True
        )

    def send(self, topic: str, *rows: tuple[str | None, Any]) -> None:
        producer = Producer({"bootstrap.servers": self._broker.bootstrap})
        for key, value in rows:
            data = (
                value.encode()
                if isinstance(value, str)
                else None
                if value is None
                else json.dumps(value).encode()
            )
            producer.produce(self._topics[topic], data, key)
        assert producer.flush(60) == 0

    def run(self) -> None:
        from klamm_spark import job as jobs

        to_the_end(lambda: jobs.start(self.job, jobs.frames(self.job, self._spark)))

    def records(self, topic: str, **client: str) -> list[tuple[str | None, Any]]:
        """Keys and values that are in a topic now; JSON values as what they are."""
        name = self._topics[topic]
        wait_decided(self._broker.bootstrap, name)
        found = []
        for message in read_to_end(self._broker.bootstrap, name, **client):
            key, value = message.key(), message.value() or b""
            found.append(
                (
                    key.decode() if key else None,
                    json.loads(value) if value[:1] in b"{0123456789" else value.decode(),
                )
            )
        return found

    def latest(self, topic: str) -> dict[str | None, Any]:
        return dict(self.records(topic))


Make = Callable[..., Example]


@pytest.fixture
def example(
    broker: EmbeddedBroker, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Make]:
    monkeypatch.syspath_prepend(str(EXAMPLES))

    def make(name: str, *topics: str) -> Example:
        return Example(name, {t: new_topic(broker) for t in topics}, broker, spark, tmp_path / name)

    yield make
    sys.modules.pop("joins", None)


class TestExamples:
    pytestmark = running

    def test_word_count_goes_on_where_it_was(self, example: Make) -> None:
        words = example("wordcount", "sentences", "words")
        words.send("sentences", (None, "All streams lead to topics"), (None, "all the streams"))
        words.run()
        assert words.latest("words") == {"all": 2, "streams": 2, "lead": 1, "to": 1, "topics": 1, "the": 1}
        words.send("sentences", (None, "Topics, topics!"))
        words.run()
        assert words.records("words")[-1] == ("topics", 3)

    def test_windows_tumble_hop_and_follow_sessions(self, example: Make) -> None:
        clicks = example("windows", "clicks", "clicks.tumbling", "clicks.hopping", "clicks.sessions")

        def click(user: str, time: str) -> tuple[None, dict[str, str]]:
            return None, {"user": user, "at": f"2026-11-21T{time}Z"}

        clicks.send(
            "clicks",
            click("ada", "10:00:10"),
            click("ada", "10:04:00"),
            click("bob", "10:04:59"),
            click("ada", "10:12:00"),
        )
        clicks.run()
        counted = {(v["user"], v["start"][11:16]): v["clicks"] for _, v in clicks.records("clicks.tumbling")}
        assert counted == {("ada", "10:00"): 2, ("bob", "10:00"): 1, ("ada", "10:10"): 1}
        hops = {(v["user"], v["start"][11:16]): v["clicks"] for _, v in clicks.records("clicks.hopping")}
        assert {start: n for (user, start), n in hops.items() if user == "bob"} == dict.fromkeys(
            ["10:00", "10:01", "10:02", "10:03", "10:04"], 1
        )
        assert hops["ada", "10:00"] == 2
        assert clicks.records("clicks.sessions") == [], "no session is over before the watermark is behind it"
        clicks.send("clicks", click("eve", "12:00:00"))
        clicks.run()
        clicks.send("clicks", click("ada", "10:01:00"))  # too late
        clicks.run()
        ended = {
            (v["user"], v["start"][11:19], v["end"][11:19]): v["clicks"]
            for _, v in clicks.records("clicks.sessions")
        }
        assert ended == {
            ("ada", "10:00:10", "10:09:00"): 2, ("bob", "10:04:59", "10:09:59"): 1, ("ada", "10:12:00", "10:17:00"): 1,
        }  # fmt: skip
        assert {(v["user"], v["start"][11:16]): v["clicks"] for _, v in clicks.records("clicks.tumbling")}[
            "ada", "10:00"
        ] == 2

    def test_a_stream_is_joined_with_a_table_as_it_is_at_the_time(self, example: Make) -> None:
        orders = example("stream_table_join", "orders", "customers", "orders.enriched")
        orders.send(
            "customers", ("c1", {"name": "Ada", "country": "GB"}), ("c2", {"name": "Bob"}), ("c2", None)
        )
        orders.send(
            "orders",
            (None, {"id": 1, "customer": "c1", "amount": 5.0}),
            (None, {"id": 2, "customer": "c2", "amount": 1.0}),
        )
        orders.run()
        orders.send("customers", ("c1", {"name": "Ada L.", "country": "GB"}))
        orders.send("orders", (None, {"id": 3, "customer": "c1", "amount": 7.0}))
        orders.run()
        assert orders.latest("orders.enriched") == {
            "1": {"id": 1, "customer": "c1", "amount": 5.0, "name": "Ada", "country": "GB"},
            "2": {"id": 2, "customer": "c2", "amount": 1.0},
            "3": {"id": 3, "customer": "c1", "amount": 7.0, "name": "Ada L.", "country": "GB"},
        }

    def test_two_streams_are_joined_within_an_hour(self, example: Make) -> None:
        orders = example("stream_stream_join", "orders", "payments", "orders.paid")

        def at(time: str) -> str:
            return f"2026-11-21T{time}Z"

        orders.send(
            "orders",
            (None, {"id": 1, "at": at("10:00:00"), "amount": 5.0}),
            (None, {"id": 2, "at": at("10:01:00"), "amount": 6.0}),
        )
        orders.run()
        orders.send("payments", (None, {"order_id": 1, "paid_at": at("10:30:00"), "method": "card"}))
        orders.run()
        assert {k: v["method"] for k, v in orders.records("orders.paid")} == {"1": "card"}
        orders.send("orders", (None, {"id": 9, "at": at("15:00:00"), "amount": 1.0}))
        orders.send("payments", (None, {"order_id": 8, "paid_at": at("15:00:00"), "method": "card"}))
        orders.run()
        orders.send("payments", (None, {"order_id": 2, "paid_at": at("15:00:01"), "method": "late"}))
        orders.run()
        found = orders.latest("orders.paid")
        assert (found.keys(), found["2"].get("method")) == ({"1", "2"}, None), "not paid within the hour"

    def test_a_batch_that_runs_again_is_in_the_topic_once(self, example: Make) -> None:
        orders = example("exactly_once", "orders", "orders.gross")
        orders.send("orders", *((None, {"id": i, "amount": 100.0 * i}) for i in range(10)))
        orders.run()
        commits = Path(orders.job.checkpoint, "gross", "commits")
        for path in list(commits.glob("*")):
            path.unlink()  # as after a crash between the batch and its commit
        orders.run()
        found = orders.records("orders.gross", **{"isolation.level": "read_committed"})
        assert sorted((int(k or ""), v["gross"]) for k, v in found) == [(i, 119.0 * i) for i in range(1, 10)]
