"""SparkSource's configuration keys, and the `Job` that a configuration describes. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from klamm_base.configdef import ConfigDef, Importance, Type, between, non_empty, one_of
from klamm_base.errors import ConfigError
from klamm_connectors.spark.common_config import (
    OUTPUT,
    below,
    client_options,
    define_common,
    query_options,
    spark_settings,
    unknown,
)
from klamm_spark.model import READS, Job, Output, Poll, Query, Source
from klamm_spark.pipeline import check

DELIVERY: Final = ("at-least-once", "exactly-once")
VALUES: Final = ("json", "columns")
_OWN_PREFIXES: Final = (
    "source.", "poll.", "query.", "value.", "key.", "topic.", "checkpoint.", "trigger", "delivery.", "watermark.",
)  # fmt: skip
FREE_PREFIXES: Final = ("source.options.", "query.view.", "topic.creation.")


def config_def() -> ConfigDef:
    """Returns the configuration keys. Any `spark.*`, `query.view.NAME` and `source.options.*` is accepted as well."""
    high, low = Importance.HIGH, Importance.LOW
    return define_common(
        ConfigDef()
        .define("source.format", Type.STRING, importance=high, validator=non_empty, documentation="The source: `jdbc`, `parquet`, `json`, `csv`, `iceberg`, `rate` or any other source of Spark's; add its jars by `spark.jars` or `spark.jars.packages`.")
        .define("source.schema", Type.STRING, None, documentation="The schema as SQL's DDL, where the source does not know it (streams of JSON or CSV files need one).")
        .define("source.read", Type.STRING, "stream", validator=one_of(*READS), importance=high, documentation="`stream`: Structured Streaming, with its checkpoint; `batch`: read again and again (sources that cannot be streamed, such as `jdbc`).")
        .define("poll.interval.ms", Type.LONG, 10000, validator=between(-1), documentation="With `batch`: time between the beginnings of two reads. -1: read once.")
        .define("poll.column", Type.STRING, None, importance=high, documentation="With `batch`: a column in whose order rows become visible (a number, timestamp, date or text). A read takes rows above the highest value that was read, so a row that comes later with a value that is not above it is never read; without a column every read takes all rows.")
        .define("poll.start", Type.STRING, None, importance=low, documentation="The first read takes rows above this value; unset: all.")
        .define("poll.delay.ms", Type.LONG, 0, validator=between(0), importance=low, documentation="With a timestamp as column: rows younger than this wait, so that transactions that commit late are not passed over; set it longer than any transaction takes. A date needs it: a day is read when it has been over for so long.")
        .define("topic", Type.STRING, importance=high, validator=non_empty, documentation="The topic that is written. It is made with the cluster's defaults where it is absent and the cluster makes topics.")
        .define("value.format", Type.STRING, "json", validator=one_of(*VALUES), importance=high, documentation="`json`: every row is a JSON document; `columns`: the query gives columns `value` and, if wanted, `key`, `partition`, `headers`.")
        .define("key.columns", Type.LIST, [], documentation="With `json`: columns that make the key; one as text, several as a JSON document.")
        .define("delivery.guarantee", Type.STRING, "at-least-once", validator=one_of(*DELIVERY), documentation="`exactly-once`: each task of a stream's batch writes in a transaction, which a batch that runs again does not repeat.")
    )  # fmt: skip


def unknown_keys(props: Mapping[str, str]) -> list[str]:
    return unknown(props, config_def(), _OWN_PREFIXES, FREE_PREFIXES)


def parse(props: Mapping[str, str], client: Mapping[str, str], checkpoint: str, position: str | None) -> Job:
    """Returns the described job. `client` holds the worker's producer properties. Raises ConfigError."""
    if strange := unknown_keys(props):
        raise ConfigError(f"SparkSource has no configuration {strange[0]}", key=strange[0])
    found = config_def().parse(props)
    result = Job(
        name=props.get("name", "spark-source"),
        checkpoint=found["checkpoint.location"] or checkpoint,
        master=found["spark.master"],
        spark=spark_settings(props),
        source=_source(props, found, client.get("bootstrap.servers", "")),
        query=Query(
            found["query.sql"],
            found["query.function"],
            below(props, "query.view."),
            query_options(found["query.options"]),
        ),
        outputs=(_output(found, client),),
        python_path=tuple(found["spark.python.path"]),
        accept_changes=found["checkpoint.accept.changes"],
        position=position,
    )
    check(result)
    return result


def _source(props: Mapping[str, str], found: Mapping[str, Any], bootstrap: str) -> Source:
    batch = found["source.read"] == "batch"
    if not batch and (
        key := next((k for k in ("poll.column", "poll.start", "poll.delay.ms") if found[k]), None)
    ):
        raise ConfigError(f"{key} is for source.read=batch", key=key)
    interval, delay = found["poll.interval.ms"], found["poll.delay.ms"]
    return Source(
        bootstrap_servers=bootstrap,
        format=found["source.format"],
        read=found["source.read"],
        schema=found["source.schema"],
        options=below(props, "source.options."),
        poll=Poll(
            interval=None if interval < 0 else f"{interval} ms",
            column=found["poll.column"],
            start=found["poll.start"],
            delay=None if not delay else f"{delay} ms",
        )
        if batch
        else Poll(),
    )


def _output(found: Mapping[str, Any], client: Mapping[str, str]) -> Output:
    json = found["value.format"] == "json"
    if found["key.columns"] and not json:
        raise ConfigError("key.columns is for value.format=json", key="key.columns")
    exactly = found["delivery.guarantee"] == "exactly-once"
    if exactly and found["source.read"] == "batch":
        raise ConfigError(
            "delivery.guarantee=exactly-once is for source.read=stream; batch reads are at least once",
            key="delivery.guarantee",
        )
    servers = {"kafka.bootstrap.servers": client.get("bootstrap.servers", "")}
    more = {"deliveryGuarantee": "exactly-once"} if exactly else {}
    return Output(
        name=OUTPUT,
        format="klamm",
        trigger=f"{found['trigger.interval.ms']} milliseconds",
        options={"topic": found["topic"], **servers, **client_options(client), **more},
        value="json" if json else None,
        key=tuple(found["key.columns"]),
    )
