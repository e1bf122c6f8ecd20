"""`format("klamm")`: topics in Spark without a jar. `register(spark)` once per session.

| module | what |
|---|---|
| `offsets.py`, `options.py` (pure) | positions, limits, losses, ranges; the options |
| `source.py`, `reader.py`, `cluster.py` | Spark's classes; planning in the driver, with what the brokers say |
| `fetch.py`, `writer.py` | reading and writing in a Python worker |
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> None:
    """Makes the format known to a session."""
    from klamm_spark.datasource.source import KlammDataSource

    spark.dataSource.register(KlammDataSource)
