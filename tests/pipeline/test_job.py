"""The Spark job: what it makes of lines, against the generator's own knowledge of them."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from klamm.demo.logs import rates
from klamm.demo.logs.job import connectors, spark_job
from klamm.demo.logs.lines import SERVICES, Lines, Plan
from klamm.demo.logs.target import NAMES, ElasticsearchTarget, SqliteTarget
from klamm_base.errors import ConfigError
from klamm_spark.java import find_java, missing_packages
from klamm_spark.pipeline import check, job_from_json

PLAN = Plan(seed=3, start_ms=1_700_000_003_210, rate=400, total=6000)
SCHEMA = "value binary, topic string, partition int, offset long, timestamp timestamp"

spark_here = pytest.mark.skipif(
    find_java() is None or bool(missing_packages()), reason="no Java for Spark (klamm spark setup)"
)


@pytest.fixture(scope="module")
def spark():
    from klamm_spark.session import open_session

    session = open_session("job-test", "local[2]", {"spark.sql.shuffle.partitions": "2"})
    yield session
    session.stop()


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


@pytest.mark.spark
@pytest.mark.slow
@spark_here
def test_frames_hold_every_line_once_and_the_rates_of_the_lines(spark):
    from klamm_spark.jobs import logs

    lines = [line.data[:-1] for line in Lines(PLAN)]
    wanted = rates.expected(lines, 10_000)
    services = {s.name: {"owner": s.owner, "tier": s.tier} for s in SERVICES[:-1]}
    # A line that the agent sent twice is one document and counts once
    values = [envelope(line, n) for n, line in enumerate(lines)] + [envelope(lines[0], 0)]
    frames = logs.frames(records(spark, values), logs.Options(services=services))
    found = {name: [row.asDict() for row in frame.collect()] for name, frame in frames.items()}

    assert rates.compare(wanted.rates, rates.found(found["rates"])).differences == []
    assert len(found["unparsed"]) == wanted.unparsable > 0
    events = {row["event_id"]: row for row in found["events"]}
    assert len(events) == len(found["events"]) - 1 == len(lines) - wanted.unparsable
    assert {row["doc_id"] for row in found["events"]} == events.keys()
    for row in events.values():
        document = rates.parse(lines[row["file_offset"]])
        assert document is not None
        assert (row["service"], row["is_error"]) == (document.service, document.error)
        assert row["@timestamp"] == datetime.fromtimestamp(document.time_ms / 1000, UTC).isoformat(
            timespec="milliseconds"
        ).replace("+00:00", "Z")
        service = next(s for s in SERVICES if s.name == document.service)
        known = service is not SERVICES[-1]
        assert (row["owner"], row["tier"]) == (
            (service.owner, service.tier) if known else ("unknown", "unknown")
        )
        if service.kind == "access":
            assert row["status_class"] == f"{row['status'] // 100}xx"
            assert row["user_agent_family"] in {
                "Chrome",
                "Edge",
                "Firefox",
                "Safari",
                "Bot",
                "curl",
                "Python",
            }
        else:
            assert (row["status"], row["user_agent_family"]) == (None, None)
            assert row["message"] == json.loads(lines[row["file_offset"]])["message"]


HOSTILE = [
    b"", b"{", b"{}", b"[]", b"null", b"\xff\xfe\x00", b"\x01" * 12, b'"', "ß".encode() * 5000,
    b'{"@timestamp":"not a time","level":"INFO","service":"a","id":"1","message":"m"}',
    b'{"@timestamp":"2026-01-01T00:00:00Z","level":"INFO","service":7,"message":{"deep":[1]}}',
    b'10.0.0.1 - - [99/Foo/2026:99:00:00 +0000] "GET / HTTP/1.1" 200 1 "-" "x" 0.1 shop rid=' + b"0" * 32,
    b'10.0.0.1 - - [21/Nov/2026:10:00:00 +0000] "GET / HTTP/1.1" 200 1 "-" "x" 0.1 shop rid=' + b"0" * 31,
    b'{"message": null}', b'{"message": "inner", "log": 5}',
]  # fmt: skip


@pytest.mark.spark
@pytest.mark.slow
@spark_here
@pytest.mark.parametrize("in_envelope", [True, False])
def test_whatever_comes_is_an_event_or_unparsed_and_fails_nothing(spark, in_envelope):
    from klamm_spark.jobs import logs

    options = logs.Options(envelope=in_envelope, identity="record")
    frames = logs.frames(records(spark, HOSTILE), options)
    events, unparsed = frames["events"].collect(), frames["unparsed"].collect()
    ids = sorted(row["doc_id"] for row in [*events, *unparsed])
    assert ids == sorted(f"logs-0-{n}" for n in range(len(HOSTILE)))
    assert all(row["@timestamp"] and row["service"] for row in events)
    assert len(events) <= 1
    documents = frames["documents"].collect()
    kinds = {row["doc_id"]: row["kind"] for row in documents}
    assert kinds == {row["doc_id"]: "events" for row in events} | {
        row["doc_id"]: "unparsed" for row in unparsed
    }
    whole = {row["doc_id"]: json.loads(row["document"]) for row in documents}
    for row in [*events, *unparsed]:
        assert whole[row["doc_id"]] == {k: v for k, v in row.asDict().items() if v is not None}
    # nothing is null that a reader needs
    assert all(row["message"] is not None and row["reason"] for row in unparsed)


@pytest.mark.spark
@pytest.mark.slow
@spark_here
def test_records_for_connect_are_read_by_its_converter(spark):
    from klamm_plugins.converters.json import JsonConverter
    from klamm_spark.jobs import logs

    converter = JsonConverter()
    converter.configure({"schemas.enable": "true"}, is_key=False)
    lines = records(spark, [line.data[:-1] for line in Lines(PLAN)][:800])
    spark.conf.set("spark.klamm.logs.envelope", "false")
    plain = logs.logs(lines, spark)
    sent = {name: frame.collect() for name, frame in logs.logs_for_connect(lines, spark).items()}
    by_kind = {kind: [r for r in sent["documents"] if r["kind"] == kind] for kind in ("events", "unparsed")}
    for name, rows in {**by_kind, "rates": sent["rates"]}.items():
        wanted = {row["doc_id"]: row.asDict() for row in plain[name].collect()}
        assert len(rows) == len(wanted) > 0, name
        for row in rows:
            _schema, struct = converter.to_connect_data("t", row["value"].encode())
            assert {f: struct[f] for f in plain[name].columns} == wanted[row["key"]], name


@pytest.mark.spark
@spark_here
def test_settings_that_cannot_be_used_are_named():
    from klamm_spark.jobs.logs import options_from

    assert options_from({"envelope": "false", "services": '{"a": {"owner": "b"}}'}).services == {
        "a": {"owner": "b"}
    }
    for settings, said in (
        ({"envelope": "maybe"}, "spark.klamm.logs.envelope = 'maybe': use true or false"),
        ({"identity": "x"}, "spark.klamm.logs.identity"),
        ({"services": "[1]"}, "spark.klamm.logs.services"),
        ({"services": "{"}, "spark.klamm.logs.services is no JSON"),
    ):
        with pytest.raises(ConfigError, match=said):
            options_from(settings)
