"""Lines are cut from the agent's documents, and Spark's own JSON finds the same in the others and in these."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from hypothesis import example, given
from hypothesis import strategies as st
from support.broker import new_topic

from klamm.testing import EmbeddedBroker
from klamm_agent.stages.envelope import Envelope
from klamm_base.errors import ConfigError
from klamm_spark.datasource.agent_lines import COLUMNS, AgentLines, usable
from klamm_spark.datasource.options import read_options
from klamm_spark.job import input_of
from klamm_spark.model import Job, Output, Query, Source

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ID = r'(?:rid=|"id":")([0-9a-f]{4})'
BASE = {"host": {"name": "web-1"}, "agent": {"type": "klamm"}, "service": {"name": "shop"}}
LINES = [
    b"plain rid=0a1b",
    b'{"id":"00ff","message":"\\"x\\", \\u00e4"}',
    "Straße\t\\".encode(),
    b"",
    b'","log":{"file":{"path":"',
    b"\x1e\xff",
]
WHOLE = json.dumps({"@timestamp": "2026-01-01T00:00:00.000Z", "message": "m", "log": {"file": {"path": "/p"}, "offset": 7}, **BASE}, separators=(",", ":")).encode()  # fmt: skip
FOREIGN = [
    None, b"", b"a line", WHOLE[:-1], WHOLE + b" ", WHOLE.replace(b":7}", b":07}"), WHOLE.replace(b":7}", b':7,"x":1}'),
    WHOLE.replace(b":7}", b":-7}"), WHOLE.replace(b":7}", b":7e1}"), WHOLE.replace(b":7}", b":99999999999999999999}"),
    WHOLE.replace(b'"m"', b'"m","message":"n"'), WHOLE.replace(b'"m"', b'"m\n"'), WHOLE.replace(b'"m"', b'"m\\"'),
    WHOLE.replace(b'"m"', b'"\\ud800"'), WHOLE.replace(b'"m"', b'"\xff"'), WHOLE.replace(b'"m"', b'"\\x"'), WHOLE.replace(b'"m"', b"5"),
    WHOLE.replace(b'{"name":"web-1"}', b'"web-1"'), WHOLE.replace(b'"web-1"', b"5"), WHOLE.replace(b'"agent"', b'"host"'),
    WHOLE.replace(b'"agent"', b'"message"'), WHOLE.replace(b'"/p"', b"5"),
    WHOLE.replace(b"2026", b'20"6'), WHOLE.replace(b"2026-01-01", b"2026"), json.dumps(json.loads(WHOLE)).encode(),
]  # fmt: skip
"""Records that Spark's JSON must look at itself."""


def rows(values: list[bytes | None], pattern: str | None = ID) -> list[dict[str, Any] | None]:
    """Returns the columns of each record by name; None for one that is left to Spark."""
    cutter = AgentLines(pattern)
    left, columns = cutter.columns(values)
    found = []
    for n, value in enumerate(values):
        row = {name: column[n].as_py() for name, column in zip(COLUMNS, columns, strict=True)}
        if row["_line"] is None:
            assert left[n] == value
            assert set(row.values()) == {None}
        else:
            assert left[n] is None
        found.append(None if row["_line"] is None else row)
    return found


def read(value: bytes) -> dict[str, Any]:
    """Returns what the columns must be, by a plain reading of the document."""
    document = json.loads(value)
    return {
        "_line": document["message"],
        "_path": document["log"]["file"]["path"],
        "_position": document["log"]["offset"],
        "_host": document.get("host", {}).get("name"),
        "_service": document.get("service", {}).get("name"),
    }


@given(
    st.lists(st.tuples(st.binary(max_size=30), st.sampled_from(["/a", '/ä "b', "/c\\"]), st.integers(0, 2**53)), max_size=8),
    st.sampled_from([BASE, {"host": {"name": "ü"}}, {"agent": {"id": "x"}}, {"host": {"ip": ["::1"]}, "service": {"name": ""}}]),
)  # fmt: skip
@example([(line, "/a", n) for n, line in enumerate(LINES)], BASE)
def test_every_document_of_the_agent_is_cut(
    lines: list[tuple[bytes, str, int]], base: dict[str, Any]
) -> None:
    envelope = Envelope(base)
    values = [envelope.wrap([line], [offset], path, 1.5)[0] for line, path, offset in lines]
    found = rows(list(values))
    assert [row and {k: v for k, v in row.items() if k != "_id"} for row in found] == [
        read(v) for v in values
    ]


@given(st.lists(st.sampled_from([WHOLE, *FOREIGN]), max_size=6))
@example(list(FOREIGN))
def test_other_records_are_left_as_they_are(values: list[bytes | None]) -> None:
    found = rows(values)
    assert [row is not None for row in found] == [value == WHOLE for value in values]


@given(
    st.lists(
        st.lists(st.sampled_from(['"', "\\", ",", "a", "0", "[", "]", ",0,", '","']), max_size=6), max_size=4
    )
)
def test_what_is_cut_is_what_the_document_says(messages: list[list[str]]) -> None:
    values = [WHOLE.replace(b'"m"', b'"' + "".join(parts).encode() + b'"') for parts in messages]
    for value, row in zip(values, rows(list(values)), strict=True):
        try:
            said = read(value)
        except ValueError:
            assert row is None
        else:
            assert row is None or {k: v for k, v in row.items() if k != "_id"} == said


def test_a_line_s_id_is_what_the_pattern_s_group_matched() -> None:
    values: list[bytes | None] = list(Envelope(BASE).wrap(LINES, range(len(LINES)), "/p", 0.0))
    assert [row and row["_id"] for row in rows(values)] == ["0a1b", "00ff", "", "", "", ""]
    assert {row and row["_id"] for row in rows(values, None)} == {None}


@pytest.mark.parametrize(
    ("pattern", "is_usable"),
    [
        (ID, True), ("id=(a|b)c", True), ("id ([0-9a-f-]+)", True), ("(a{2}b?)", True),
        (r"(\d+)", False), ("(.+)x", False), ("(a)$", False), ("^(a)", False), ("(?i)(a)", False), ("(a)++", False),
        ("(a{2}+)", False), ("([a[b]])", False), ("([a-z&&b])", False), ("(?=a)(a)", False), ("(a{999}){999}", False),
    ],
)  # fmt: skip
def test_patterns_that_differ_from_java_s_are_left_to_java(pattern: str, is_usable: bool) -> None:
    assert usable(pattern) == is_usable
    given = {
        "kafka.bootstrap.servers": "x:1",
        "subscribe": "t",
        "agentLines": "true",
        "agentLines.id": pattern,
    }
    if is_usable:
        assert read_options(given).line_id == pattern
    else:
        with pytest.raises(ConfigError, match=r"agentLines\.id="):
            read_options(given)


JSON_FORMAT = {"name": "app", "type": "json"}


@pytest.mark.parametrize(
    ("options", "more", "wanted"),
    [
        ({"id_pattern": ID}, {}, {"agentLines": "true", "agentLines.id": ID}),
        ({"id_pattern": r"(\d)"}, {}, {"agentLines": "true"}),
        ({"envelope": False}, {}, {}),
        ({"formats": [JSON_FORMAT, {"name": "own", "type": "ecs"}]}, {}, {}),
        ({}, {"query": "SELECT value FROM Input"}, {}),
        ({}, {"connector": "spark"}, {}),
        ({}, {"value_format": "string"}, {}),
        ({}, {"options": {"agentLines": "false"}}, {"agentLines": "false"}),
    ],
)  # fmt: skip
def test_a_log_job_asks_for_lines_where_nobody_else_reads_the_input(
    options: dict[str, Any], more: dict[str, Any], wanted: dict[str, str]
) -> None:
    of_source = {k: v for k, v in more.items() if k != "query"}
    job = Job(
        name="logs", checkpoint="x",
        source=Source(bootstrap_servers="x:1", topics=("t",), **of_source),
        query=Query(function="klamm_spark.jobs.logs:logs", options={"formats": [JSON_FORMAT]} | options),
        outputs=(Output("documents", "noop", query=more.get("query")),),
    )  # fmt: skip
    assert input_of(job).options == wanted


@pytest.mark.usefixtures("apache_spark")
@pytest.mark.timeout(400)
def test_documents_are_the_same_with_and_without_cutting(broker: EmbeddedBroker, spark: SparkSession) -> None:
    from klamm_spark.jobs import log_connect, logs

    topic = new_topic(broker)
    made = Envelope(BASE).wrap(LINES, range(len(LINES)), "/var/log/ä", 1.0)
    app = [
        b'{"level":"info","id":"00fe","n":1,"@timestamp":"2026-01-01T00:00:00Z"}',
        b'5.5 rid=0a1f {"id":"0a1e',
    ]
    made += Envelope({"host": {"name": "other"}}).wrap(app, [5, 80], "/var/log/app", 1.0)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for value in [*made, *FOREIGN, *made]:
        producer.produce(topic, value)
    assert producer.flush(60) == 0
    options = {
        "id_pattern": ID,
        "formats": [JSON_FORMAT, {"name": "n", "type": "grok", "pattern": "^%{NUMBER:n:double}"}],
    }
    found = []
    for more in ({}, logs.reader_options(options)):
        given = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic} | more
        frame = spark.read.format("klamm").options(**given).load()
        assert set(COLUMNS).issubset(frame.columns) == bool(more)
        documents = logs.logs(frame, spark, options)["documents"].collect()
        connect = log_connect.logs(frame, spark, options)["documents"].collect()
        rates = logs.logs(frame, spark, options)["rates"].collect()
        found.append([sorted(map(str, rows)) for rows in (documents, connect, rates)])
    assert found[0] == found[1]
    assert len(found[0][0]) == len(made) * 2 + len(FOREIGN)
