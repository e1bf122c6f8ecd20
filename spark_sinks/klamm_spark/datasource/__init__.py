"""`format("klamm")`: topics in Spark without a jar. `register(spark)` once per session."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> None:
    """Makes the format known to a session."""
    from klamm_spark.datasource.source import KlammDataSource

    spark.dataSource.register(KlammDataSource)
