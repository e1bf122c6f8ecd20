"""Functions of the two join examples: `[query] function = "joins:…"`, with `[query.options]` as third argument."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812


def with_customers(orders: DataFrame, spark: SparkSession, options: Mapping[str, Any]) -> DataFrame:
    """Every batch of orders reads the table anew, so a customer who changes is seen by the next batch."""
    records = (
        spark.read.format("klamm")
        .option("kafka.bootstrap.servers", options["bootstrap_servers"])
        .option("subscribe", options["table"])
        .option("startingOffsets", "earliest")
        .option("refreshEachBatch", "true")
        .load()
    )
    latest = records.groupBy("key").agg(
        F.max_by(F.struct("value"), F.struct("partition", "offset")).alias("last")
    )
    row = F.from_json(F.col("last.value").cast("string"), "name STRING, country STRING")
    table = latest.where("last.value IS NOT NULL").select(
        F.col("key").cast("string").alias("customer"), row.alias("row")
    )
    joined = orders.join(F.broadcast(table), "customer", "left")
    return joined.select("id", "customer", "amount", "row.name", "row.country")


def with_payments(orders: DataFrame, spark: SparkSession, options: Mapping[str, Any]) -> DataFrame:
    """Payments are a stream of their own, with a watermark of their own."""
    records = (
        spark.readStream.format("klamm")
        .option("kafka.bootstrap.servers", options["bootstrap_servers"])
        .option("subscribe", options["payments"])
        .option("startingOffsets", "earliest")
        .load()
    )
    row = F.from_json(F.col("value").cast("string"), "order_id BIGINT, paid_at TIMESTAMP, method STRING")
    payments = records.select(row.alias("row")).select("row.*").withWatermark("paid_at", "10 minutes")
    in_time = F.expr("id = order_id AND paid_at BETWEEN at AND at + INTERVAL 1 HOUR")
    return orders.join(payments, in_time, "left_outer").select("id", "at", "amount", "paid_at", "method")
