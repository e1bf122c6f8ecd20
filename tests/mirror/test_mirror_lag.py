"""The age of what the target may lack, the movement of a partition, and the tables that tell of both."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from klamm_kafka.wire.batch import Record, encode_batch
from klamm_mirror.copy.lag_tables import STATUS_COLUMNS, STATUS_PREFIX, lag_rows, lag_tables, rows_that_fit
from klamm_mirror.copy.partition import SILENT_MS, MirrorPartition
from klamm_mirror.metrics.trend import Trend
from klamm_mirror.raw import Counts, convert
from klamm_mirror.source.reporting import SLICE, Reported, slices
from klamm_mirror.stops import Kind, Stop
from klamm_plugins.metrics import TABLE_BYTES_MAX, MetricTable, check_tables


def partition(topic: str = "orders", number: int = 0) -> MirrorPartition:
    found = MirrorPartition(topic=topic, partition=number, remote=f"A.{topic}", producer=(1, 0))
    found.begin(0)
    return found


def fetch(each: MirrorPartition, timestamp: int, *, high_watermark: int, now_ms: int) -> None:
    """An answer of the source with one record."""
    data = encode_batch([Record(value=b"v", timestamp=timestamp)], base_offset=each.position)
    each.high_watermark = high_watermark
    each.heard(now_ms)
    each.add(*convert(bytes(data), each.position, Counts()))


def acknowledge(each: MirrorPartition, now_ms: int) -> None:
    batch = each.take(now_ms)
    assert batch is not None
    each.acked(batch, batch.first, now_ms)


def test_nothing_is_known_before_the_source_answered():
    each = partition()
    assert each.lag is None
    assert each.missing_since(1_000) is None


def test_a_record_on_its_way_is_as_old_as_its_timestamp():
    each = partition()
    fetch(each, 500, high_watermark=1, now_ms=1_000)
    assert each.missing_since(1_100) == 500
    acknowledge(each, 1_200)
    assert each.lag == 0
    assert each.missing_since(1_200) is None


def test_what_came_after_the_target_had_everything_is_no_older_than_that():
    each = partition()
    fetch(each, 500, high_watermark=1, now_ms=1_000)
    acknowledge(each, 1_100)
    fetch(each, 3, high_watermark=2, now_ms=9_000)  # an old record, written now
    assert each.missing_since(9_100) == 1_000


def test_what_was_not_read_yet_is_no_older_than_the_record_before():
    each = partition()
    fetch(each, 500, high_watermark=100, now_ms=1_000)
    acknowledge(each, 1_100)
    assert each.lag == 99
    assert each.missing_since(2_000) == 500


def test_records_behind_an_open_transaction_count_and_the_transaction_is_told():
    each = partition()
    fetch(each, 500, high_watermark=100, now_ms=1_000)
    acknowledge(each, 1_100)
    each.stable(1, 1_000)
    assert each.lag == 99
    assert each.missing_since(2_000) == 500
    assert each.why_waiting(1_000 + SILENT_MS - 1) is None  # most end soon
    each.stable(1, 3_000)
    assert "open at offset 1 for 8 s" in (each.why_waiting(9_000) or "")
    each.stable(100, 9_500)
    assert each.why_waiting(30_000) is None


def test_while_the_source_is_silent_everything_since_its_answer_may_be_missing():
    each = partition()
    fetch(each, 500, high_watermark=1, now_ms=1_000)
    acknowledge(each, 1_100)
    assert each.missing_since(1_000 + SILENT_MS) is None
    assert each.missing_since(1_001 + SILENT_MS) == 1_000
    each.heard(30_000)
    assert each.missing_since(30_001) is None
    each.stopped = Stop(kind=Kind.RECREATED, start=1, end=None, why="made anew", since_ms=30_002)
    assert each.missing_since(30_002) == 30_000


@given(
    st.lists(st.tuples(st.integers(1, 60_000), st.integers(0, 10_000), st.integers(0, 10_000)), max_size=20)
)
def test_a_trend_lies_between_the_rates_that_it_saw(looks):
    trend, now_ms, records, rates = Trend(), 0, 0, []
    trend.observe(now_ms, 0, 0, 0)
    for passed_ms, more, lag in looks:
        now_ms, records = now_ms + passed_ms, records + more
        trend.observe(now_ms, records, records * 10, lag)
        rates.append(more * 1000 / passed_ms)
        assert min(rates) * 0.999 - 1e-6 <= trend.record_rate <= max(rates) * 1.001 + 1e-6
        assert abs(trend.byte_rate - 10 * trend.record_rate) <= 1e-6 * max(rates) * 10 + 1e-6
        assert trend.peak >= lag
        assert lag or not trend.peak


def test_a_trend_says_how_fast_the_lag_shrinks():
    trend = Trend()
    for second in range(11):
        trend.observe(second * 1000, second * 100, 0, 1000 - second * 50)
    assert round(trend.closing_rate) == 50
    assert trend.peak == 1000
    trend.observe(5_000, 0, 0, 900)  # the clock was set back
    assert round(trend.closing_rate) == 50


def test_rows_say_why_a_partition_stopped_and_fit_the_limit():
    long = "t" * 249
    many = [partition(long, i) for i in range(20_000)]
    for each in many:
        each.stopped = Stop(kind=Kind.DELETED, start=0, end=None, why="x" * 1000, since_ms=1)
    shown = many[: rows_that_fit(many)]
    assert 1000 < len(shown) < 5000
    tables = lag_tables(many, lag_rows(shown, {(long, 0): 7}, 10), flow=("A", "B"), now_ms=10)
    check_tables(tables)
    import orjson

    assert len(orjson.dumps([t.as_json() for t in tables])) < TABLE_BYTES_MAX * 3 // 4
    (status,) = [t for t in tables if t.prefix == STATUS_PREFIX]
    assert not status.exported
    assert status.labels["partitions"] == "20000"
    row = dict(zip(STATUS_COLUMNS, status.rows[0][2:], strict=True))
    assert row["stop"] == "deleted"
    assert row["gap_records"] == 7
    assert row["why"] == "x" * 300
    (stopped,) = [t for t in tables if t.columns == ["partitions_stopped"]]
    assert stopped.rows == [[20_000]]
    assert rows_that_fit([partition("orders", i) for i in range(6000)]) == 5000


def test_thousands_of_partitions_are_looked_at_in_slices_and_reported_at_once():
    many = [partition("orders", i) for i in range(2 * SLICE + 1)]
    reported: list[list[MetricTable]] = []
    it = Reported(flow=("A", "B"), partitions=many, upkeep=(), missing={}, left_out={})
    steps = slices(it, lambda tables: reported.append(list(tables)), 10)
    for _ in range(3):
        next(steps)
        assert not reported
    assert list(steps) == []
    [tables] = reported
    check_tables(tables)
    long = [[row[1] for row in table.rows] for table in tables if table.by]
    assert long == [list(range(2 * SLICE + 1))] * 3
