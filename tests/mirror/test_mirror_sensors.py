"""The mirror's measurements: Kafka's windows, batches for records, and the tables that tell them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.broker import new_topic
from support.mirroring import Running, produce, props, rows

from klamm.connect.model import TaskId
from klamm.connect.rest.task_tables import table_families
from klamm_base.metrics_text import lines
from klamm_kafka.wire.batch import DELETE_HORIZON_FLAG, Record, encode_batch
from klamm_mirror.metrics.sensors import (
    CHECKPOINT_ABOUT,
    SAMPLE_MS,
    SOURCE_ABOUT,
    SOURCE_PREFIX,
    CheckpointSensors,
    PartitionSensors,
    Sensor,
)
from klamm_mirror.metrics.tables import EVERY_S, ROWS_MAX, Pace, tables
from klamm_mirror.raw import Batch, Counts, convert
from klamm_plugins.errors import ConnectError
from klamm_plugins.metrics import TABLE_BYTES_MAX, MetricTable, check_tables, tables_of

T0 = 1_700_000_000_000


def batch(first_ms: int, last_ms: int, count: int = 10, size: int = 100) -> Batch:
    return Batch(bytearray(size), 0, count - 1, count, count, last_ms, first_timestamp=first_ms)


def of(sensors: PartitionSensors, now_ms: int) -> dict[str, float | None]:
    return dict(zip(SOURCE_ABOUT, sensors.row(now_ms), strict=True))


def test_a_batch_stands_for_its_records():
    sensors = PartitionSensors()
    sensors.fetched([batch(T0 - 300, T0 - 100)], T0)
    sensors.acked(batch(T0 - 300, T0 - 100), T0 + 50)
    row = of(sensors, T0 + 100)
    assert (row["record_count"], row["byte_count"]) == (10, 100)
    ages = [row[f"record_age_ms{end}"] for end in ("", "_min", "_max", "_avg")]
    assert ages == [100, 100, 300, 200]
    assert [row[f"replication_latency_ms{end}"] for end in ("", "_min", "_max", "_avg")] == [
        150,
        150,
        350,
        250,
    ]
    # As Kafka's Rate: one sample alone counts as if an empty one went before it
    assert row["record_rate"] == pytest.approx(10 * 1000 / (100 + 50 - 100 + SAMPLE_MS), abs=0.001)


def test_the_mean_is_of_records_not_of_batches():
    sensors = PartitionSensors()
    sensors.fetched([batch(T0 - 10, T0 - 10, count=99), batch(T0 - 1010, T0 - 1010, count=1)], T0)
    assert of(sensors, T0)["record_age_ms_avg"] == 20


def test_what_is_silent_keeps_its_counts_and_last_values_only():
    sensors = PartitionSensors()
    sensors.fetched([batch(T0 - 5, T0)], T0)
    sensors.acked(batch(T0 - 5, T0), T0)
    row = of(sensors, T0 + 2 * SAMPLE_MS)
    assert (row["record_count"], row["record_rate"], row["byte_rate"]) == (10, 0.0, 0.0)
    assert (row["record_age_ms"], row["record_age_ms_max"], row["record_age_ms_avg"]) == (0, None, None)


@pytest.mark.parametrize(("first", "latest"), [(-1, -1), (T0 - 50, -1)])
def test_records_without_timestamps_have_no_age_and_are_counted(first, latest):
    sensors = PartitionSensors()
    sensors.fetched([batch(first, latest)], T0)
    sensors.acked(batch(first, latest), T0)
    row = of(sensors, T0)
    assert row["record_count"] == 10
    assert row["record_age_ms"] is None
    assert row["replication_latency_ms_max"] is None


def test_clocks_that_differ_make_no_record_younger_than_now():
    sensors = PartitionSensors()
    sensors.fetched([batch(T0 + 500, T0 + 900), batch(-1, T0 - 7)], T0)
    row = of(sensors, T0)
    assert (row["record_age_ms_min"], row["record_age_ms_max"]) == (0, 7)


@given(st.lists(st.tuples(st.integers(-5_000, 40_000), st.integers(0, 10_000)), min_size=1, max_size=40))
def test_a_window_has_what_came_in_it_and_nothing_older(steps):
    """Against a model: everything younger than a sample is there, nothing older than two is."""
    sensor, now, came = Sensor(), T0, []
    for pause, value in steps:
        now += pause
        sensor.record(now, value)
        if pause < 0:  # the clock was set back: what came before it may go or stay
            came = []
        came.append((now, value))
    last, least, largest, mean = sensor.figures(now)
    assert last == came[-1][1]
    must = [v for at, v in came if now - at < SAMPLE_MS]
    may = [v for at, v in came if now - at < 2 * SAMPLE_MS]
    assert sensor.rate(now) >= 0
    if all(pause >= 0 for pause, _ in steps):
        assert min(may) <= least <= min(must)
        assert max(must) <= largest <= max(may)
        assert least <= mean <= largest
        assert sum(must) / 60.001 <= sensor.rate(now) <= sum(may) / 30


@pytest.mark.parametrize("flag", [0, DELETE_HORIZON_FLAG])
def test_the_time_of_a_batchs_first_record_is_read_from_its_header(flag):
    data = bytearray(encode_batch([Record(timestamp=T0 + i, value=b"v") for i in (0, 9)]))
    data[22] |= flag  # attributes, not covered by what follows without a new checksum
    from google_crc32c import value as crc32c

    data[17:21] = crc32c(bytes(data[21:])).to_bytes(4, "big")
    (found,), _ = convert(data, 0, Counts())
    assert (found.first_timestamp, found.max_timestamp) == (-1 if flag else T0, T0 + 9)


def test_a_batch_that_is_cut_has_the_time_of_what_is_left():
    data = encode_batch([Record(timestamp=T0 + i, offset=i, value=b"v") for i in range(10)])
    (found,), _ = convert(data, 4, Counts())
    assert found.first_timestamp == T0 + 4


def test_groups_beyond_the_limit_are_counted_and_groups_that_are_gone_make_room():
    sensors = CheckpointSensors(2)
    sensors.written([("g", "t", 0), ("h", "t", 0), ("i", "t", 0)], 40, T0)
    sensors.written([("g", "t", 0)], 60, T0)
    assert sensors.rows(T0) == [("g", "t", 0, 60, 40, 60, 50), ("h", "t", 0, 40, 40, 40, 40)]
    assert len(CHECKPOINT_ABOUT) == 4
    assert sensors.left_out == 1
    sensors.keep(["g", "i"])
    sensors.written([("i", "t", 0)], 1, T0)
    assert [row[0] for row in sensors.rows(T0)] == ["g", "i"]
    sensors.keep(["g"])
    assert sensors.left_out == 0


def test_telling_takes_its_share_of_the_time_at_most():
    pace = Pace()
    assert pace.due(0)
    pace.took(10, 10.001)
    assert not pace.due(10 + EVERY_S)
    assert pace.due(10.001 + EVERY_S)
    pace.took(10, 11)
    assert not pace.due(60)
    assert pace.due(61)
    often = Pace(0.5, 0.1)
    often.took(10, 10.04)
    assert (often.due(10.5), often.due(10.54)) == (False, True)
    often.took(10, 10.1)
    assert (often.due(11), often.due(11.1)) == (False, True)


def test_tables_become_families_that_prometheus_reads():
    from prometheus_client.parser import text_string_to_metric_families as parse

    row = ('A.or"ders', 3, *PartitionSensors(records=7).row(T0))
    told = tables(
        SOURCE_PREFIX, SOURCE_ABOUT, flow=("A", "B"), by=("topic", "partition"), rows=[row], left_out=2
    )
    (there, count) = tables_of([table.as_json() for table in told])
    found = table_families([(TaskId("m", 0), there), (TaskId("m", 0), count), (TaskId("n", 1), there)])
    samples = [s for f in parse("".join(lines(found))) for s in f.samples]
    labels = {"source": "A", "target": "B", "topic": 'A.or"ders', "partition": "3"}
    counts = [s for s in samples if s.name == SOURCE_PREFIX + "record_count"]
    assert [(s.labels, s.value) for s in counts] == [
        ({"connector": "m", "task": "0", **labels}, 7), ({"connector": "n", "task": "1", **labels}, 7),
    ]  # fmt: skip
    assert {s.name for s in samples} == {
        *(SOURCE_PREFIX + name for name in ("record_count", "record_rate", "byte_count", "byte_rate")),
        "klamm_mirror_metrics_left_out",
    }
    assert [s.value for s in samples if s.name == "klamm_mirror_metrics_left_out"] == [2]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"prefix": "kafka_connect_worker_"}, "prefix 'kafka_connect_worker_'"),
        ({"columns": ["a-b"]}, "column 'a-b'"),
        ({"by": ["task"]}, "label 'task'"),
        ({"labels": {"connector": "x"}}, "label 'connector'"),
        ({"rows": [["t", 1, 2]]}, "has 3 cells; 2 are right"),
    ],
)
def test_a_table_that_cannot_be_shown_is_refused(change, said):
    good = {"prefix": "klamm_acme_", "by": ["topic"], "columns": ["rows_total"], "rows": [["t", 1]]}
    check_tables([MetricTable(**good)])
    with pytest.raises(ConnectError, match="metric table") as error:
        check_tables([MetricTable(**good | change)])
    assert said in str(error.value)


def test_as_many_rows_as_a_task_tells_fit():
    import orjson

    name = "A." + "t" * 200
    row = (name, 12345, *(1234567.891 for _ in SOURCE_ABOUT))
    told = tables(
        SOURCE_PREFIX,
        SOURCE_ABOUT,
        flow=("A", "B"),
        by=("topic", "partition"),
        rows=[row] * ROWS_MAX,
        left_out=0,
    )
    assert len(orjson.dumps([t.as_json() for t in told])) < TABLE_BYTES_MAX


@pytest.mark.usefixtures("processes")
def test_a_running_task_tells_what_it_copies_and_is_silent_while_it_is_paused(source, target):
    topic = new_topic(source, partitions=2)
    produce(source.bootstrap, topic, rows(500))
    with Running(props(source.bootstrap, target.bootstrap, topics=topic)) as mirror:
        (context,) = mirror.contexts

        def told() -> dict[int, dict[str, float | None]]:
            table = context.tables[0] if context.tables else None
            # heartbeats may be mirrored, too
            cells = [row for row in table.rows if row[0] == f"A.{topic}"] if table else []
            return {row[1]: dict(zip(SOURCE_ABOUT, row[2:], strict=True)) for row in cells}

        mirror.until(lambda: told().get(0, {}).get("record_count") == 500, "the figures")
        busy, idle = told()[0], told()[1]
        mirror.until(lambda: 0 < busy["byte_count"] <= mirror.details()["bytes"], "the bytes in the status")
        assert busy["record_rate"] > 0
        assert busy["replication_latency_ms_max"] >= busy["record_age_ms_min"] > 0
        assert (idle["record_count"], idle["record_age_ms"]) == (0, None)
        context.pause()
        assert context.is_paused.wait(60)
        assert (told()[0]["record_count"], told()[0]["record_rate"]) == (500, 0.0)
        assert told()[0]["record_age_ms_max"] is None
        context.resume()
        produce(source.bootstrap, topic, rows(100))
        mirror.until(lambda: told()[0]["record_count"] == 600, "it goes on counting")
