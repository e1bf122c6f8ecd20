"""The log job with a table that is a topic: the latest value of a key, as it is when a batch runs."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer
from support.broker import new_topic

from klamm.testing import EmbeddedBroker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.usefixtures("apache_spark"), pytest.mark.timeout(900)]


@pytest.mark.parametrize("key", [None, "service"], ids=["by the record's key", "by a column"])
def test_events_are_joined_with_the_latest_rows_of_a_topic(
    broker: EmbeddedBroker, spark: SparkSession, key: str | None
) -> None:
    from klamm_spark.jobs import logs

    table = new_topic(broker)

    def row(service: str, owner: str | None, **more: int) -> None:
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        value = None if owner is None else json.dumps({"service": service, "owner": owner})
        producer.produce(table, value, service, timestamp=more.get("at_ms", 0))
        assert producer.flush(60) == 0

    row("pay", "first")
    row("pay", "orders")
    row("gone", "nobody")
    row("gone", None)
    lookup = {
        "topic": table, "on": "service.name", "fields": {"owner": "service.owner"}, "default": "unknown",
        "options": {"kafka.bootstrap.servers": broker.bootstrap},
    } | ({} if key is None else {"key": key})  # fmt: skip
    lines = [
        json.dumps({"ts": "2026-01-01T00:00:00Z", "service": s}).encode() for s in ("pay", "gone", "new")
    ]
    now = datetime(2026, 1, 1, tzinfo=UTC)
    schema = "value binary, topic string, partition int, offset long, timestamp timestamp"
    records = spark.createDataFrame([(v, "logs", 0, n, now) for n, v in enumerate(lines)], schema)
    options = {"envelope": False, "formats": [{"name": "app", "type": "json"}], "lookups": [lookup]}
    documents = logs.logs(records, spark, options)["documents"]

    def owners() -> list[str]:
        found = [json.loads(r.document) for r in documents.orderBy("doc_id").collect()]
        return [d["service.owner"] for d in found]

    assert owners() == ["orders", "unknown", "unknown"]
    row("new", "late")
    row("pay", "moved", at_ms=1)
    assert owners() == ["moved", "unknown", "late"], "the last record counts, whatever its time is"


def test_rows_of_a_table_are_part_of_the_plan(spark: SparkSession) -> None:
    from klamm_spark.jobs.log_enrich import looked_up
    from klamm_spark.jobs.log_options import Lookup

    events = spark.createDataFrame([("a", 1), ("b", 2), (None, 3)], "service string, n int")
    given: list[tuple[dict[str, str | None], ...]] = [
        ({"s": "a", "o": "me", "t": None}, {"s": "a", "o": "you", "t": "2"}),
        (),
    ]
    for rows, owners in zip(given, (["me", None, None], [None, None, None]), strict=True):
        lookup = Lookup("service", {"o": "owner", "t": "tier"}, "s", rows=rows)
        joined = looked_up(events, lookup, spark)
        assert [(r.owner, r.tier) for r in joined.orderBy("n").collect()] == [(o, None) for o in owners]
        plan = looked_up(spark.range(1).selectExpr("'a' AS service"), lookup, spark)._jdf.queryExecution()
        assert "ExistingRDD" not in str(plan.executedPlan().toString()), (
            "a Python process would read it in every batch"
        )
