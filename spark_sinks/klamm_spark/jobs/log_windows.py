"""Lines counted per window of their own time: rates by service, statistics by service and level.

This is for `update` mode: a window's row is written again, under the same `doc_id`, while lines for it
arrive. With `distinct`, repeated lines count once, for eight bytes of state per line of the open windows.
Lines behind Spark's watermark are not counted; the query's progress says how many they are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from klamm_spark.jobs.log_options import LogOptions

_ISO: Final = "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'"
_ACCURACY: Final = 1000
"""The accuracy of percentiles: one in this many ranks."""
SERVICE: Final = "service.name"
LEVEL: Final = "log.level"


def rates(df: DataFrame, options: LogOptions) -> DataFrame:
    return _counted(df, options, (SERVICE,), {})


def statistics(df: DataFrame, options: LogOptions) -> DataFrame:
    """Returns the statistics. `p50_ms` and so on are null where no line of the group has a duration."""
    found = F.percentile_approx("`event.duration`", [p / 100 for p in options.percentiles], _ACCURACY)
    return _counted(df, options, (SERVICE, LEVEL), {"_durations": found} if options.percentiles else {})


def _counted(df: DataFrame, options: LogOptions, by: tuple[str, ...], more: dict[str, Column]) -> DataFrame:
    key = F.xxhash64("line_id") if options.distinct else F.lit(1)
    gather: Callable[[Column], Column] = (lambda c: F.size(F.collect_set(c))) if options.distinct else F.count
    counted = (
        df.where(F.col("kind") == "events")
        .withColumn(LEVEL, F.coalesce(F.upper(f"`{LEVEL}`"), F.lit("NONE")))
        .withWatermark("event_time", options.watermark)
        .groupBy(F.window("event_time", options.window), *(f"`{name}`" for name in by))
        .agg(
            gather(key).alias("lines"),
            gather(F.when(F.col("is_error"), key)).alias("errors"),
            *(value.alias(name) for name, value in more.items()),
        )
    )
    start = F.date_format("window.start", _ISO)
    figures = [
        (F.col("_durations")[n] / 1e6).alias(f"p{_name(p)}_ms")
        for n, p in enumerate(options.percentiles)
        if more
    ]
    return counted.select(
        F.concat_ws("-", *(f"`{name}`" for name in by), start).alias("doc_id"),
        start.alias("@timestamp"),
        *(F.col(f"`{name}`") for name in by),
        start.alias("window_start"),
        F.date_format("window.end", _ISO).alias("window_end"),
        "lines",
        "errors",
        (F.col("errors") / F.col("lines")).alias("error_rate"),
        *figures,
    )


def _name(percentile: float) -> str:
    return f"{percentile:g}".replace(".", "_")
