"""The Spark job: what it makes of lines, against the generator's own knowledge of them."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from klamm.demo.logs import rates
from klamm.demo.logs.job import connectors, log_options, spark_job
from klamm.demo.logs.lines import SERVICES, Lines, Plan
from klamm.demo.logs.target import NAMES, ElasticsearchTarget, SqliteTarget
from klamm_spark.pipeline import check, job_from_json

PLAN = Plan(seed=3, start_ms=1_700_000_003_210, rate=400, total=6000)
SCHEMA = "value binary, topic string, partition int, offset long, timestamp timestamp"


def records(spark, values: list[bytes]):
    now = datetime.now(UTC)
    return spark.createDataFrame([(v, "logs", 0, n, now) for n, v in enumerate(values)], SCHEMA)


def envelope(line: bytes, offset: int) -> bytes:
    document = {
        "@timestamp": "2026-01-01T00:00:00.000Z",
        "message": line.decode(),
        "log": {"file": {"path": "/var/log/x.log"}, "offset": offset},
        "host": {"name": "h"},
    }
    return json.dumps(document).encode()


def test_the_job_is_one_that_the_driver_takes(tmp_path):
    for target in (ElasticsearchTarget("http://127.0.0.1:1", "p"), SqliteTarget(tmp_path / "d.db")):
        job = spark_job("127.0.0.1:9", tmp_path, target)
        check(job)
        assert job_from_json(json.loads(json.dumps(job.to_json()))) == job
        assert [o.name for o in job.outputs] == ["documents", "rates"]


def test_every_topic_has_its_sink_connector(tmp_path):
    made = connectors(SqliteTarget(tmp_path / "d.db"))
    assert [c["config"]["topics"] for c in made] == [f"demo.{n}" for n in NAMES]
    assert all(isinstance(v, str) for c in made for v in c["config"].values())


@pytest.mark.timeout(400)
def test_frames_hold_every_line_once_and_the_rates_of_the_lines(spark):
    from klamm_spark.jobs import logs

    lines = [line.data[:-1] for line in Lines(PLAN)]
    wanted = rates.expected(lines, 10_000)
    # A line that the agent sent twice is one document and counts once
    values = [envelope(line, n) for n, line in enumerate(lines)] + [envelope(lines[0], 0)]
    frames = logs.logs(records(spark, values), spark, log_options())
    found = {n: [row.asDict() for row in frames[n].collect()] for n in ("events", "unparsed", "rates")}

    counted = [row | {"service": row["service.name"]} for row in found["rates"]]
    assert rates.compare(wanted.rates, rates.found(counted)).differences == []
    assert len(found["unparsed"]) == wanted.unparsable > 0
    events = {row["event.id"]: row for row in found["events"]}
    assert len(events) == len(found["events"]) - 1 == len(lines) - wanted.unparsable
    assert {row["doc_id"] for row in found["events"]} == events.keys()
    services = {s.name: s for s in SERVICES}
    for row in events.values():
        line = lines[row["log.offset"]]
        document = rates.parse(line)
        assert document is not None
        assert (row["service.name"], row["is_error"]) == (document.service, document.error)
        assert row["@timestamp"] == datetime.fromtimestamp(document.time_ms / 1000, UTC).isoformat(
            timespec="milliseconds"
        ).replace("+00:00", "Z")
        service = services[document.service]
        assert (row["service.owner"], row["service.tier"]) == (service.owner, service.tier)
        assert (row["event.dataset"], row["event.duration"] >= 0) == (service.kind, True)
        if service.kind == "access":
            assert row["user_agent.name"] in {
                "Chrome",
                "Edge",
                "Firefox",
                "Safari",
                "Bot",
                "curl",
                "python-requests",
            }
        else:
            assert (row["http.response.status_code"], row["user_agent.name"]) == (None, None)
            assert row["message"] == json.loads(line)["message"]


@pytest.mark.timeout(400)
def test_records_for_connect_are_read_by_its_converter(spark):
    from klamm_plugins.converters.json import JsonConverter
    from klamm_spark.jobs import log_connect, logs

    converter = JsonConverter()
    converter.configure({"schemas.enable": "true"}, is_key=False)
    lines = records(spark, [line.data[:-1] for line in Lines(PLAN)][:800])
    options = log_options() | {"envelope": False}
    plain = logs.logs(lines, spark, options)
    sent = {name: frame.collect() for name, frame in log_connect.logs(lines, spark, options).items()}
    by_kind = {kind: [r for r in sent["documents"] if r["kind"] == kind] for kind in ("events", "unparsed")}
    for name, rows in {**by_kind, "rates": sent["rates"]}.items():
        wanted = {row["doc_id"]: row.asDict() for row in plain[name].collect()}
        assert len(rows) == len(wanted) > 0, name
        for row in rows:
            _schema, struct = converter.to_connect_data("t", row["value"].encode())
            known = {k.replace(".", "_"): v for k, v in wanted[row["key"]].items()}
            names = [f.name for f in struct.schema.fields]
            assert {"doc_id", "@timestamp"} <= set(names)
            assert {n: struct[n] for n in names} == {n: known[n] for n in names}, name
