"""Options and job files: what is wrong is one sentence that says where."""

from __future__ import annotations

import dataclasses
import json
import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import needs

from klamm_base.errors import ConfigError
from klamm_spark.datasource.options import read_options, write_options
from klamm_spark.model import Job, Output, Poll, Source
from klamm_spark.pipeline import job_from_json, job_from_toml

GOOD = """
[job]
name = "orders"
checkpoint = "cp"

[spark]
spark.sql.shuffle.partitions = 2

[source]
topics = ["orders"]
bootstrap_servers = "127.0.0.1:9092"
value_format = "json"
schema = "id BIGINT, amount DOUBLE"
watermark = { column = "timestamp", delay = "10 minutes" }

[query]
sql = "SELECT id FROM input"
views = { large = "SELECT * FROM input WHERE amount > 100" }

[[outputs]]
format = "parquet"
partition_by = ["id"]
options = { path = "out", compression = "zstd" }

[[outputs]]
name = "alarms"
format = "klamm"
query = "large"
trigger = "5 seconds"
options.topic = "alarms"
"""


def parse(text: str) -> Any:
    return job_from_toml(tomllib.loads(text))


def test_a_job_survives_its_way_to_the_driver() -> None:
    job = parse(GOOD)
    assert job.spark == {"spark.sql.shuffle.partitions": "2"}
    assert [o.name for o in job.outputs] == ["parquet", "alarms"]
    assert job_from_json(json.loads(json.dumps(job.to_json()))) == job


def test_options_do_not_show_in_a_job_s_text() -> None:
    job = parse(GOOD.replace('topic = "alarms"', '"kafka.sasl.jaas.config" = "hunter2"'))
    assert "hunter2" not in repr(job)
    job = parse(GOOD.replace("[source]", 'spark.hadoop.fs.s3a.secret.key = "hunter2"\n[source]'))
    assert job.spark["spark.hadoop.fs.s3a.secret.key"] == "hunter2"
    assert "hunter2" not in repr(job)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("[job]", "[jobs]"), r"section \[job\] is missing"),
        (('name = "orders"', 'nam = "orders"'), r"\[job\] name is missing"),
        (('checkpoint = "cp"', 'checkpoint = "cp"\nx = 1'), r"\[job\] has an unknown key x; known are accept_changes, checkpoint, master, name"),
        (('checkpoint = "cp"', 'checkpoint = "cp"\nmaster = "local[x]"'), r"\[job\] master = 'local\[x\]' is no master of Spark's: use local\[\*\]"),
        (("spark.sql.shuffle.partitions", "sql.shuffle.partitions"), r"\[spark\] sql.shuffle.partitions: names begin with spark\."),
        (('topics = ["orders"]', 'topics = "orders"'), r"\[source\] topics must be a list of texts"),
        (('topics = ["orders"]', 'topics = ["a"]\ntopics_regex = "b"'), "set topics or topics_regex"),
        (('topics = ["orders"]', 'topics_regex = "("'), "is no regular expression"),
        (('"json"', '"xml"'), r"\[source\] value_format = 'xml': use bytes or string or json"),
        (('schema = "id BIGINT, amount DOUBLE"', ""), "needs a schema"),
        (('"10 minutes"', '"soon"'), r"\[source.watermark\] delay = 'soon': write a time"),
        (('sql = "SELECT id FROM input"', 'sql = "x"\nfunction = "a:b"'), "set sql or function, not both"),
        (('sql = "SELECT id FROM input"', 'function = "a.b"'), "write module:function"),
        (('name = "alarms"', 'name = "parquet"'), "the name parquet is given twice"),
        (('"5 seconds"', '"often"'), r"\[outputs\[1\]\] trigger = 'often'"),
        (('query = "large"', 'query = "large"\nmode = "upsert"'), "use append or update or complete"),
    ],
)  # fmt: skip
def test_what_is_wrong_in_a_job_is_said(change: tuple[str, str], said: str) -> None:
    text = GOOD.replace(*change)
    assert text != GOOD
    with pytest.raises(ConfigError, match=said):
        parse(text)


def test_a_job_needs_an_output() -> None:
    with pytest.raises(ConfigError, match=r"no \[\[outputs\]\]"):
        parse(GOOD.partition("[[outputs]]")[0])


BASE = {"kafka.bootstrap.servers": "h:1", "subscribe": "t"}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"startingOffset": "earliest"}, "unknown option startingOffset"),
        ({"assign": "{}"}, "subscribe, assign are all set"),
        ({"subscribe": ""}, "are missing"),
        ({"subscribe": "", "subscribePattern": "["}, "no regular expression"),
        ({"subscribe": "", "assign": '{"t": ["0"]}'}, "use JSON like"),
        ({"startingOffsets": "first"}, "use earliest, latest or JSON"),
        ({"startingOffsets": '{"t": {"0": -3}}'}, "-3 is no offset"),
        ({"endingOffsets": "earliest"}, "would read nothing"),
        ({"maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger=0: use a number, at least 1"),
        ({"failOnDataLoss": "no"}, "use true or false"),
        ({"kafka.auto.offset.reset": "latest"}, "kafka.auto.offset.reset cannot be set"),
        (
            {"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"},
            "minOffsetsPerTrigger=9 must be less than or equal",
        ),
        ({"maxTriggerDelay": "soon"}, "maxTriggerDelay=soon: use a time such as 15m"),
        ({"maxRecordsPerPartition": "0"}, "maxRecordsPerPartition=0: use a number, at least 1"),
        ({"startingOffsetsByTimestamp": "[]"}, "startingOffsetsByTimestamp=.*: use JSON like"),
        ({"startingOffsetsByTimestamp": '{"t": {"0": -1}}'}, "-1 is no time"),
        ({"startingOffsetsByTimestampStrategy": "earliest"}, "use error or latest"),
        (
            {"endingOffsets": "latest", "endingTimestamp": "5"},
            "endingOffsets and endingTimestamp are both set",
        ),
        ({"kafka.bootstrap.servers": ""}, "kafka.bootstrap.servers is missing"),
        ({"startingOffsets": "latest", "startingTimestamp": "5"}, "use one of them"),
    ],
)
def test_what_is_wrong_in_options_is_said(options: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        read_options(BASE | options)


@given(
    st.dictionaries(st.tuples(st.text("ab-", min_size=1), st.integers(0, 9)), st.integers(-2, 99), min_size=1)
)
def test_starting_offsets_are_what_the_json_says(offsets: dict[tuple[str, int], int]) -> None:
    data: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in offsets.items():
        data.setdefault(topic, {})[str(partition)] = offset
    assert read_options(BASE | {"STARTINGOFFSETS": json.dumps(data)}).starting == offsets


def test_limits_of_a_batch() -> None:
    found = read_options(BASE)
    assert (found.min_records, found.max_delay_s, found.max_per_partition) == (None, 900, None)
    assert found.group == "klamm-spark-source"
    more = {
        "minOffsetsPerTrigger": "10",
        "maxTriggerDelay": "90s",
        "groupIdPrefix": "team",
        "fetchOffset.numRetries": "0",
    }
    found = read_options(BASE | more)
    assert (found.min_records, found.max_delay_s, found.group, found.retries) == (10, 90, "team-source", 0)
    assert read_options(BASE | {"kafka.group.id": "exactly"}).group == "exactly"
    times = read_options(BASE | {"startingOffsetsByTimestamp": '{"t": {"0": 7}}'})
    assert (times.starting_timestamp, times.strict_timestamp) == ({("t", 0): 7}, True)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("15m", 900), ("2min", 120), ("500ms", 0.5), ("250", 0.25), ("1h", 3600), (" 3 s", 3), ("1d", 86400)],
)
def test_durations_are_sparks(text: str, seconds: float) -> None:
    assert read_options(BASE | {"maxTriggerDelay": text}).max_delay_s == seconds


def test_client_settings_keep_their_names_and_passwords_do_not_show() -> None:
    options = read_options(
        BASE | {"kafka.isolation.level": "read_committed", "kafka.sasl.password": "hunter2"}
    )
    assert options.read_committed
    assert options.client["bootstrap.servers"] == "h:1"
    assert "hunter2" not in repr(options)
    assert (
        write_options({"kafka.bootstrap.servers": "h:1", "topic": "o", "checkpointLocation": "x"}).topic
        == "o"
    )


@pytest.mark.parametrize(
    ("master", "there"),
    [("local", 1), ("local[*]", 8), ("local[3]", 3), ("local[ 3, 2]", 3), ("local[*,2]", 8), ("yarn", None)],
)
def test_how_many_tasks_a_master_runs_at_a_time(master: str, there: int | None) -> None:
    from klamm_spark.slots import slots

    assert slots(master, 8) == there


def test_real_time_mode_needs_a_task_for_each_partition() -> None:
    from klamm_spark.slots import check as need

    fast = Output("a", "kafka", "update", trigger="real-time 1 minutes")
    source = Source("h:1", ("t",), connector="spark")
    job = Job("x", "/cp", source, (fast, dataclasses.replace(fast, name="b"), Output("c", "parquet")), master="local[8]")  # fmt: skip
    need(job, 3, 8)
    said = r'4 partitions all the time, for each of 2 outputs, and one .* set \[job\] master = "local\[9\]"'
    with pytest.raises(ConfigError, match=said):
        need(job, 4, 8)


@pytest.mark.parametrize(
    ("trigger", "source", "ends"),
    [
        ("available_now", Source("h:1", ("t",)), True),
        ("5 seconds", Source("h:1", ("t",)), False),
        (None, Source(format="jdbc", read="batch"), True),
        (None, Source(format="jdbc", read="batch", poll=Poll("5 seconds")), False),
    ],
)
def test_jobs_that_end_by_themselves(trigger: str | None, source: Source, ends: bool) -> None:
    job = Job("x", "/cp", source, (Output("a", "parquet", trigger=trigger),))
    assert job.ends is ends
    assert dataclasses.replace(job, available_now=True).ends


def test_exactly_once_is_for_streams_in_any_spelling() -> None:
    from klamm_spark.pipeline import check

    source = Source(format="jdbc", read="batch")
    for option in ({"deliveryGuarantee": "exactly_once"}, {"deliveryguarantee": "Exactly-Once"}):
        output = Output("a", "klamm", options=option | {"topic": "t"})
        with pytest.raises(ConfigError, match="exactly-once is for streams"):
            check(Job("x", "/cp", source, (output,)))


def test_a_checkpoint_has_one_place_however_it_is_written() -> None:
    needs.module("pyspark", extra="spark")
    from klamm_spark.outputs import base_of

    job = Job("x", "/cp", Source(), ())
    for text, place in (
        ("file:/cp/x", "/cp/x"),
        ("file:///cp/x", "/cp/x"),
        ("/cp/x/", "/cp/x"),
        ("s3a://b/x/", "s3a://b/x"),
    ):
        assert base_of(dataclasses.replace(job, checkpoint=text)) == place
