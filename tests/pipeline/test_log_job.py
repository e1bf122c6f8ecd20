"""The log job for any format: what becomes of lines, and settings that cannot be used."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from fixtures.log_job import cases

from klamm_base.errors import ConfigError
from klamm_spark.jobs.log_options import read_options

RECORD = "value binary, topic string, partition int, offset long, timestamp timestamp"
NOW = datetime(2026, 1, 1, 10, 0, 5, tzinfo=UTC)

spark_tests = [pytest.mark.usefixtures("apache_spark"), pytest.mark.timeout(400)]
JSON = {"name": "app", "type": "json"}


def options(**more: Any) -> dict[str, Any]:
    return {"envelope": False, "formats": [JSON]} | more


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "name at least one"),
        (options(window="ten"), r"\[query.options\] window = 'ten': write a time"),
        (options(identity="x"), "identity = 'x': use line or record"),
        (options(id_pattern="(a)(b)"), "into one group"),
        (options(id_pattern="("), "is no regular expression"),
        (options(percentiles=[50, 100]), r"percentiles = \[50, 100\]: use numbers between"),
        (options(percentiles="x"), "use numbers between"),
        (options(namespace="A-b"), "namespace = 'A-b': use small letters"),
        (options(colour=1), "unknown key colour"),
        (options(formats=[JSON, JSON]), "the name app is given twice"),
        (options(formats=[{"name": "a", "type": "xml"}]), "type = 'xml': use grok or regex"),
        (options(formats=[{"name": "a", "type": "grok"}]), "pattern is missing"),
        (options(formats=[{"name": "a", "type": "grok", "pattern": "%{NOPE:x}"}]), "no pattern 'NOPE' is known"),
        (options(formats=[{"name": "a", "type": "grok", "pattern": "abc"}]), "captures nothing"),
        (options(formats=[{"name": "a", "type": "regex", "pattern": "(a)"}]), r"captures nothing: name what is to be kept, such as \(\?<status>"),
        (options(formats=[{"name": "a", "type": "regex", "pattern": "(?P<a>.)(?P=a)"}]), r"\(\?P=name\) is Python's"),
        (options(formats=[{"name": "a", "type": "regex", "pattern": "(?P<a>.)", "types": {"a": "date"}}]), "a = 'date': use string"),
        (options(formats=[{"name": "a", "type": "python", "function": "x"}]), "write module:function"),
        (options(formats=[JSON | {"rename": {"a": "b c"}}]), "'b c' is not a field"),
        (options(formats=[JSON | {"duration": {"unit": "h"}}]), "unit = 'h': use ns"),
        (options(formats=[JSON | {"time": {"zone": "Mars/Base"}}]), "zone = 'Mars/Base': use a time zone such as"),
        (options(formats=[JSON | {"pattern": "x"}]), "unknown key pattern"),
        (options(formats=[JSON | {"target": 'a"b'}]), "target = 'a\"b': use the name of a field"),
        (
            options(formats=[{"name": n, "type": "grok", "pattern": p} for n, p in (("a", "%{INT:x:int}"), ("b", "%{INT:x}"))]),
            "x is int in a and string in b",
        ),
        (options(lookups=[{"on": "a"}]), "set file, topic or rows"),
        (options(lookups=[{"on": "a", "file": "t.csv", "rows": [{"k": 1}]}]), "set file, topic or rows"),
        (options(lookups=[{"on": "a", "rows": [{"k": 1}], "fields": {"x": "y"}}]), "key is missing"),
        (options(lookups=[{"on": "a", "file": "t.xls"}]), "use .csv, .json"),
        (options(lookups=[{"on": "a", "file": "t.csv", "fields": {"x": "y"}}]), "key is missing"),
        (options(lookups=[{"on": "a", "file": "t.csv", "key": "k"}]), "fields is missing"),
        (options(lookups=[{"on": "a", "topic": "t", "fields": {"x": "y"}}]), "topic needs options"),
    ],
)  # fmt: skip
def test_settings_that_cannot_be_used_are_named(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        read_options(given)


def test_defaults_and_patterns_of_python_are_taken() -> None:
    found = read_options(
        {
            "formats": [
                {"name": "a", "type": "regex", "pattern": r"(?P<user>\w+) (?<n>\d+)", "types": {"n": "int"}}
            ]
        }
    )
    assert (found.identity, found.window, found.late_after, found.percentiles) == (
        "line",
        "10 seconds",
        None,
        (50.0, 95.0, 99.0),
    )
    assert found.formats[0].expanded is not None
    assert [(f.name, f.type) for f in found.formats[0].expanded.fields] == [("user", "string"), ("n", "int")]


def records(spark: Any, values: list[bytes | str], at: datetime = NOW) -> Any:
    rows = [(v.encode() if isinstance(v, str) else v, "logs", 0, n, at) for n, v in enumerate(values)]
    return spark.createDataFrame(rows, RECORD)


def once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Elasticsearch refuses a document in which a name is there twice; one that a line had twice is left to it."""
    names = [name for name, _ in pairs if name != "a"]
    assert len(set(names)) == len(names), names
    return dict(pairs)


def run(spark: Any, values: list[bytes | str], at: datetime = NOW, **more: Any) -> dict[str, dict[str, Any]]:
    """Documents by id, with their kind and data stream."""
    from klamm_spark.jobs import logs

    frames = logs.logs(records(spark, values, at), spark, options(**more))
    return {
        row.doc_id: {
            "kind": row.kind,
            "stream": row.data_stream,
            **json.loads(row.document, object_pairs_hook=once_each),
        }
        for row in frames["documents"].collect()
    }


FORMATS = [
    {"name": "access", "type": "grok", "pattern": "^%{COMBINEDAPACHELOG}", "set": {"service.name": "web"}},
    {"name": "app", "type": "json", "duration": {"field": "ms"}, "rename": {"sev": "log.level"}},
    {"name": "kv", "type": "logfmt", "when": r"^\w+=", "target": "labels", "duration": {"field": "took", "unit": "s"}},
    {"name": "old", "type": "regex", "pattern": r"^(?P<timestamp>[\d.]+) \[(?P<level>\w+)\] (?P<message>.*)$",
     "rename": {"level": "log.level"}, "time": {"format": "UNIX"}},
    {"name": "sys", "type": "grok", "pattern": "^%{SYSLOGLINE}", "time": {"format": "SYSLOG", "zone": "Europe/Berlin"}},
]  # fmt: skip
LINES: list[bytes | str] = [
    (
        '10.0.0.1 - bob [01/Jan/2026:10:00:00 +0000] "GET /a?b=c HTTP/1.1" 502 12 "-" "Mozilla/5.0 (iPhone; CPU iPhone OS 18_0 like Mac OS X) '
        'AppleWebKit/605.1.15 (KHTML, like Gecko) Version/18.0 Mobile/15E148 Safari/604.1"'
    ),
    '{"ts":"2026-01-01T10:00:01Z","sev":"error","service":"pay","msg":"x\\"y","order":{"id":7},"ms":12.5,"ok":true}',
    'ts=2026-01-01T11:00:02+01:00 level=warn service=edge msg="a \\"b\\" c" k=1 k=2 took=0.5',
    "1767261603.5 [info] Grüße",
    "Dec 31 23:59:58 web1 sshd[77]: Failed password",
    b"\x01\x02 garbage",
    '{"a":',
    '{"ts":"yesterday","msg":"m"}',
]


@pytest.mark.usefixtures("apache_spark")
@pytest.mark.timeout(900)
@pytest.mark.parametrize("case", cases.CASES)
def test_every_line_becomes_what_it_became_before(spark: Any, case: str) -> None:
    expected = json.loads(cases.EXPECTED.read_text())[case]
    found = cases.answers(spark, cases.CASES[case])
    assert len(found["documents"]) > 100
    for frame, rows in expected.items():
        other = {i for i in rows.keys() | found[frame].keys() if rows.get(i) != found[frame].get(i)}
        assert not other, (frame, sorted(other))


class TestJob:
    pytestmark = spark_tests

    def test_every_line_is_a_document_of_its_format(self, spark: Any) -> None:
        found = run(spark, LINES, formats=FORMATS)
        assert len(found) == len(LINES)
        access, app, kv, old, sys_, garbage, half, undated = (found[f"logs-0-{n}"] for n in range(len(LINES)))
        assert access["stream"] == "logs-access-default"
        assert access["@timestamp"] == "2026-01-01T10:00:00.000Z"
        assert access["http.response.status_code"] == 502
        assert (access["service.name"], access["log.level"], access["user.name"]) == ("web", "ERROR", "bob")
        assert (access["user_agent.name"], access["user_agent.version"], access["user_agent.os.name"]) == (
            "Safari",
            "18.0",
            "iOS",
        )
        assert app["app"] == {"order": {"id": 7}, "ok": True}
        assert (app["message"], app["event.duration"], app["log.level"]) == ('x"y', 12_500_000, "error")
        assert kv["labels"] == {"k": "2"}
        assert (kv["message"], kv["@timestamp"], kv["event.duration"]) == (
            'a "b" c',
            "2026-01-01T10:00:02.000Z",
            500_000_000,
        )
        assert (old["message"], old["@timestamp"]) == ("Grüße", "2026-01-01T10:00:03.500Z")
        assert (sys_["@timestamp"], sys_["process.pid"]) == ("2025-12-31T22:59:58.000Z", 77), (
            "of the year before, and an hour ahead"
        )
        assert undated["tags"] == ["_dateparsefailure"]
        assert (undated["kind"], undated["@timestamp"]) == ("events", "2026-01-01T10:00:05.000Z")
        for lost, text in ((garbage, "\x01\x02 garbage"), (half, '{"a":')):
            assert (lost["kind"], lost["message"], lost["tags"]) == ("unparsed", text, ["_parsefailure"])
            assert lost["stream"] == "logs-unparsed-default"
        assert all(d["kafka"]["offset"] == n for n, d in ((0, access), (5, garbage)))

    def test_typed_json_and_a_function_of_the_users(
        self, spark: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        (tmp_path / "my_lines.py").write_text(
            "def parse(lines):\n"
            "    return [dict(p.split('=', 1) for p in x[1:].split(';')) if x.startswith('!') else None for x in lines]\n"
        )
        monkeypatch.syspath_prepend(str(tmp_path))
        spark.sparkContext.addPyFile(str(tmp_path / "my_lines.py"))
        schema = "ts string, log struct<level: string>, n int, tags array<string>"
        formats = [
            {"name": "typed", "type": "json", "schema": schema},
            {"name": "mine", "type": "python", "function": "my_lines:parse", "rename": {"what": "message"}},
        ]
        found = run(
            spark,
            ['{"ts":"2026-01-01T09:00:00","log":{"level":"WARN"},"n":3}', '{"n":"x"}', "!what=hi;who=me"],
            formats=formats,
        )
        assert (found["logs-0-0"]["log.level"], found["logs-0-0"]["n"]) == ("WARN", 3)
        assert found["logs-0-1"]["kind"] == "unparsed", "a field of another type than the schema says"
        assert (found["logs-0-2"]["message"], found["logs-0-2"]["mine"]) == ("hi", {"who": "me"})
        with pytest.raises(ConfigError, match="my_lines has no function nope"):
            run(spark, [], formats=[{"name": "mine", "type": "python", "function": "my_lines:nope"}])

    def test_lookups_identities_late_lines_and_repetitions(self, spark: Any, tmp_path: Path) -> None:
        (tmp_path / "services.csv").write_text("service,owner\npay,orders\npay,second\n")
        lookup = {
            "file": str(tmp_path / "services.csv"),
            "on": "service.name",
            "key": "service",
            "fields": {"owner": "service.owner"},
        }
        line = '{"ts":"2026-01-01T09:58:00Z","service":"pay","msg":"id=%s","old":1}'
        found = run(
            spark, [line % "a1", line % "a1", line % "b2", line.replace("09:58", "08:00") % "c3"], id_pattern="id=(\\w+)",
            deduplicate=True, late_after="10 minutes", lookups=[lookup], original=True, namespace="x",
        )  # fmt: skip
        assert {i: d["kind"] for i, d in found.items()} == {"a1": "events", "b2": "events", "c3": "late"}
        assert found["c3"]["stream"] == "logs-late-x"
        assert all(d["service.owner"] == "orders" for d in found.values()), "the first row of a key counts"
        assert found["b2"]["event.original"] == line % "b2"
        for changed, said in (
            ({"on": "nope"}, "on = 'nope': events have"),
            ({"key": "nope"}, "there is no column nope; there are service, owner"),
            ({"file": str(tmp_path / "no.csv")}, "cannot be read: No such file"),
        ):
            with pytest.raises(ConfigError, match=said):
                run(spark, [], lookups=[lookup | changed])

    def test_a_late_line_is_no_repetition(self, spark: Any, tmp_path: Path) -> None:
        """Spark's watermark has passed its time, and it has not come before."""
        from klamm_spark.jobs import logs

        line = '{"ts":"2026-01-01T%s:00Z","msg":"m","id":"%s"}'
        for values in ([line % ("10:00", "a")], [line % ("07:00", "b"), line % ("10:00", "a")]):
            records(spark, values).coalesce(1).write.mode("append").parquet(str(tmp_path / "in"))
        stream = spark.readStream.schema(RECORD).option("maxFilesPerTrigger", 1).parquet(str(tmp_path / "in"))
        frames = logs.logs(stream, spark, options(deduplicate=True, late_after="10 minutes"))
        writer = frames["documents"].writeStream.format("parquet").option("path", str(tmp_path / "out"))
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
        assert writer.start().awaitTermination(200)
        found = [(r.doc_id, r.kind) for r in spark.read.parquet(str(tmp_path / "out")).collect()]
        assert sorted(found) == [("a", "events"), ("b", "late")]

    def test_windows_count_lines_once_and_leave_late_ones_out(self, spark: Any) -> None:
        from klamm_spark.jobs import logs

        def line(second: int, level: str, ms: int, number: int) -> str:
            time = (NOW - timedelta(seconds=60) + timedelta(seconds=second)).isoformat()
            return json.dumps({"ts": time, "level": level, "service": "pay", "ms": ms, "id": f"n{number}"})

        lines: list[bytes | str] = [line(s, "error" if s % 4 == 0 else "info", s, s) for s in range(20)]
        lines += [lines[0], line(-3600, "error", 1, 99)]
        formats = [JSON | {"duration": {"field": "ms"}}]
        frames = logs.logs(
            records(spark, lines),
            spark,
            options(formats=formats, late_after="10 minutes", window="1 minute", percentiles=[50, 99.9]),
        )
        (rate,) = frames["rates"].collect()
        assert (rate.lines, rate.errors, rate["error_rate"], rate["service.name"]) == (20, 5, 0.25, "pay")
        levels = {r["log.level"]: r for r in frames["statistics"].collect()}
        assert {k: r.lines for k, r in levels.items()} == {"ERROR": 5, "INFO": 15}
        assert (levels["INFO"]["p99_9_ms"], levels["INFO"]["p50_ms"]) == (19.0, 10.0)
        assert {r.doc_id for r in frames["late"].select("doc_id").collect()} == {"n99"}

    def test_documents_that_the_agent_has_parsed_stay_what_they_are(self, spark: Any) -> None:
        done = {
            "@timestamp": "2026-01-01T09:59:00.250Z", "message": "GET /a", "log": {"level": "warn", "offset": 7, "file": {"path": "/a.log"}},
            "service.name": "web", "http": {"response": {"status_code": 503}}, "deep": [{"x": None}], "event": {"id": "e-1"},
        }  # fmt: skip
        failed = {
            "@timestamp": "2026-01-01T09:59:00Z",
            "message": "level=info msg=hi",
            "tags": ["_grokparsefailure"],
        }
        formats = [{"name": "edge", "type": "ecs"}, {"name": "kv", "type": "logfmt"}]
        found = run(
            spark, [json.dumps(done) + " ", json.dumps(failed), "a=b"], formats=formats, envelope=True
        )
        edge = found["e-1"]
        assert {k: edge[k] for k in done} == done
        assert (edge["event.dataset"], edge["stream"], edge["kafka"]["offset"]) == (
            "edge",
            "logs-edge-default",
            0,
        )
        assert (found["logs-0-1"]["stream"], found["logs-0-1"]["message"]) == ("logs-kv-default", "hi")
        assert found["logs-0-2"]["kv"] == {"a": "b"}

    def test_a_document_s_own_fields_win_over_what_is_added(self, spark: Any) -> None:
        """Loggers write such fields: they give `event.dataset` a name with a dot."""
        done = {
            "@timestamp": "2026-01-01T09:59:00Z", "message": "m", "event.id": "e-1", "event.dataset": "java", "kafka": "x",
            "service.name": "pay", "service.owner": "me", "user_agent.original": "curl/8", "user_agent.name": "mine",
        }  # fmt: skip
        lookup = {
            "rows": [{"s": "pay", "o": "you", "t": "1"}],
            "on": "service.name",
            "key": "s",
            "fields": {"o": "service.owner", "t": "service.tier"},
        }
        formats = [{"name": "edge", "type": "ecs"}]
        found = run(spark, [json.dumps(done)], formats=formats, lookups=[lookup])["e-1"]
        assert {k: found[k] for k in done} == done
        assert (found["service.tier"], found["user_agent.version"], found["stream"]) == (
            "1",
            "8",
            "logs-edge-default",
        )
        bare = {"@timestamp": "2026-01-01T09:59:00Z", "event.dataset": "java", "kafka": "x"}
        found = run(spark, [json.dumps(bare)], formats=formats, user_agent=False)["logs-0-0"]
        assert {k: v for k, v in found.items() if k not in {"kind", "stream"}} == bare

    def test_at_the_top_no_name_is_there_twice(self, spark: Any) -> None:
        line = {
            "ts": "2026-01-01T10:00:01Z",
            "msg": "m",
            "event.dataset": "java",
            "kafka": {"x": 1},
            "thread": "t-1",
            "team": "a",
        }
        formats = [{"name": "app", "type": "json", "target": "", "set": {"team": "b"}}]
        found = run(
            spark,
            [json.dumps(line), '{"msg":"n","kafka":1}', '{"msg":"o","thread":1}', '{"msg":"p"}'],
            formats=formats,
        )
        first, second, third, last = (found[f"logs-0-{n}"] for n in range(4))
        assert first["app"] == {"event.dataset": "java", "kafka": {"x": 1}, "team": "a"}
        assert (
            first["process.thread.name"],
            first["team"],
            first["event.dataset"],
            first["kafka"]["offset"],
        ) == (
            "t-1",
            "b",
            "app",
            0,
        )
        assert (second["app"], third["thread"]) == ({"kafka": 1}, 1)
        assert not {"app", "thread", "process.thread.name"} & last.keys()

    def test_a_time_s_pattern_is_looked_at_before_the_first_line(self, spark: Any) -> None:
        from klamm_spark.jobs import logs

        good = [
            JSON | {"time": {"format": p}}
            for p in ("yyyy-MM-dd HH:mm:ss,SSS", "UNIX", "SYSLOG", "dd/MMM/yyyy:HH:mm:ss Z")
        ]
        for format_ in good:
            logs.logs(records(spark, []), spark, options(formats=[format_]))
        for pattern in ("yyyy-MM-dd'T", "yyyy-MM-ddTHH:mm:ss", "%Y-%m-%d"):
            with pytest.raises(ConfigError, match=r"app: time.format = .* is no pattern of Java's: \S"):
                logs.logs(records(spark, []), spark, options(formats=[JSON | {"time": {"format": pattern}}]))

    def test_whatever_comes_is_one_document(self, spark: Any) -> None:
        hostile: list[bytes | str] = [
            b"", b"{", b"{}", b"[]", b"null", b"\xff\xfe\x00", b"\x01" * 20, b"\x02" + b"\x01" * 12, b'"', "ß".encode() * 5000,
            b'{"message": null}', b'{"message": "inner", "log": 5}', b'{"msg":{"deep":[1]},"service":7,"status":"many"}',
            b'{"a":1,"a":2,"app":{"a":1},"kafka":"x","@timestamp":17}', b"a=1 b", b'k="unclosed', b"=", b"a=" * 300,
            b'{"ms":1e300}', b'{"ms":"NaN"}', b"9" * 40 + b" [info] x", b'{"ts":"+294247-01-10T04:00:54Z"}',
            b'{"a":' + b"[" * 3000 + b"]" * 3000 + b"}", b'{"a":{"x":1,"x":2}}',
            b'{"x":"\\ud800"}', b'{"n":1e999,"m":12345678901234567890123}', "Jan  1 10:00:00 h p: \n second line",
        ]  # fmt: skip
        for envelope in (False, True):
            found = run(spark, hostile, formats=FORMATS, envelope=envelope, identity="record")
            assert sorted(found) == sorted(f"logs-0-{n}" for n in range(len(hostile)))
            assert all(d["@timestamp"] and d["message"] is not None for d in found.values())
            assert all(d["@timestamp"][:4].isdigit() for d in found.values())

    def test_lines_may_be_long_and_ids_may_not(self, spark: Any) -> None:
        """Java's stack does not end where a line is long; ids that Elasticsearch would not take are not used."""
        many = 100_000
        access = '10.0.0.1 - - [01/Jan/2026:10:00:00 +0000] "GET / HTTP/1.1" 200 1 "-" "%s"'
        lines: list[bytes | str] = [
            access % ("x" * many), access % ('\\"' * many), "a.b" * many, 'a="' + '\\"' * many + '"', "/a" * many,
            "2026-01-01 10:00:00,123 ERROR start" + "\n at line" * many, '{"id":""}', '{"id":"%s"}' % ("ü" * 257), '{"id":"%s"}' % ("ü" * 256),
        ]  # fmt: skip
        patterns = ("PYTHONLOG", "URIPATH:url.path", "HOSTNAME:host.name")
        named = [{"name": f"p{n}", "type": "grok", "pattern": f"^%{{{p}}}$"} for n, p in enumerate(patterns)]
        found = run(spark, lines, formats=[*FORMATS[:3], *named])
        kinds = ["access", "access", "unparsed", "kv", "p1", "p0", "app", "app", "app"]
        ids = [*(f"logs-0-{n}" for n in range(8)), "ü" * 256]
        assert {i: d["stream"].split("-")[1] for i, d in found.items()} == dict(zip(ids, kinds, strict=True))
        assert len(found["logs-0-5"]["message"]) == 5 + 9 * many
