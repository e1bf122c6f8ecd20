"""Metrics pages and the lag server's course, as the console shows them: pure."""

from __future__ import annotations

from klamm.console.jobs import agent, read, spark
from klamm.console.judged import with_course
from klamm_agent.figures import families as agent_families
from klamm_base.metrics_text import lines
from klamm_spark.status import JobStatus
from klamm_spark.status import families as spark_families

STATUS = {
    "inputs": [{"input": 'a "b"', "lines": 10, "bytes": 1000, "parse_failures": 2, "dead_letters": 0, "dropped": {}}],
    "acked": 8, "lag_bytes": 500, "files": 3, "open_files": 1, "queued_bytes": 7, "waiting_for": "broker", "gaps": 0,
}  # fmt: skip


def _text(families):
    return "\n".join(lines(families))


def test_an_agent_in_an_operators_words():
    before = read(_text(agent_families(STATUS)), 100.0)
    later = STATUS | {"inputs": [{**STATUS["inputs"][0], "lines": 30, "bytes": 3000}], "waiting_for": ""}
    now = read(_text(agent_families(later)), 110.0)
    first, second = agent(before, None), agent(now, before)
    assert (first["waits"], second["waits"]) == (["broker"], [])
    assert (first["files"], first["open_files"], first["lag_bytes"], first["lag_lines"]) == (3, 1, 500, 5)
    assert (first["lines_rate"], second["lines_rate"], second["bytes_rate"]) == (None, 2.0, 200.0)
    assert first["errors"] == {"not parsed": 2}
    assert [(r["input"], r["lines"], r["rate"]) for r in second["inputs"]] == [('a "b"', 30, 2.0)]
    assert agent(before, now)["lines_rate"] is None  # it was started again meanwhile
    assert spark(now) == []


def test_a_spark_job_in_an_operators_words():
    status = JobStatus("orders")
    status.take({"event": "started", "spark": "4.0", "queries": ["q"]}, 1.0)
    status.take(
        {
            "event": "progress", "query": "q", "batch": 0, "rows": 5, "rows_per_s": 2.5, "input_rows_per_s": 3.0, "duration_ms": 1500,
            "lag": {"a": 4, "b": 6}, "at": "2026-01-01T00:00:00+00:00",
        },
        2.0,
    )  # fmt: skip
    page = read(_text(spark_families(status)), 1.0)
    ((job),) = spark(page)
    (query,) = job["queries"]
    assert (job["name"], job["up"], job["error"]) == ("orders", True, None)
    assert (query["rate"], query["in_rate"], query["batch_s"], query["lag"]) == (2.5, 3.0, 1.5, 10)
    assert (query["topics"], query["at_ms"]) == ([("a", 4), ("b", 6)], 1767225600000)
    status.take({"event": "failed", "error": "KafkaException", "message": "geheim", "retriable": True}, 3.0)
    text = _text(spark_families(status))
    ((job),) = spark(read(text, 2.0))
    assert (job["up"], job["error"], "geheim" in text) == (False, "KafkaException", False)
    assert agent(read(text, 2.0), None) is None


def test_a_broken_page_has_no_figures():
    assert read("<html>\nklamm_x{ nan\nklamm_y abc\n", 0).shown() == []


def test_a_course_comes_before_the_samples_and_brings_ages():
    chart = {
        "times": [100.0, 105.0],
        "lines": [{"name": "t", "values": [3, 4]}, {"name": "u", "values": [None, 1]}],
    }
    rows = [
        {"at": 90_000, "totallag": 9, "time_lag_ms": 2000},
        {"at": 103_000, "totallag": 5, "time_lag_ms": None},
    ]
    found = with_course(chart, rows)
    assert found["times"] == [90.0, 100.0, 105.0]
    assert [(x["name"], x["values"]) for x in found["lines"]] == [
        ("all topics", [9, 3, 5]), ("t", [None, 3, 4]), ("u", [None, None, 1]),
    ]  # fmt: skip
    assert found["ages"] == [2.0, 2.0, None]
    assert with_course(chart, []) == {**chart, "ages": None}
    rows[1]["time_lag_ms"] = 28_000
    assert with_course(chart, rows)["ages"] == [2.0, 22.0, 28.0]
