"""SparkSink's configuration keys, and the `Job` that a configuration describes. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from klamm_base.configdef import ConfigDef, Importance, Type, non_empty, one_of
from klamm_base.errors import ConfigError
from klamm_connectors.spark.common_config import (
    OUTPUT,
    below,
    client_options,
    define_common,
    names,
    query_options,
    spark_settings,
    unknown,
)
from klamm_spark.model import CONNECTORS, MODES, TRIGGER, VALUE_FORMATS, Job, Output, Query, Source
from klamm_spark.pipeline import check

_OWN_PREFIXES: Final = (
    "query.",
    "value.",
    "watermark.",
    "output.",
    "checkpoint.",
    "trigger",
    "source.",
    "max.offsets.",
)
FREE_PREFIXES: Final = ("query.view.", "output.options.")


def config_def() -> ConfigDef:
    """Returns the configuration keys. Any `spark.*`, `query.view.NAME` and `output.options.*` is accepted as well."""
    high, low = Importance.HIGH, Importance.LOW
    return define_common(
        ConfigDef()
        .define(
            "output.format", Type.STRING, importance=high, validator=non_empty,
            documentation="The target: `parquet` or any other format of Spark's, or `klamm` (topics), `elasticsearch`, "
            "`sql`, which are ours.",
        )
        .define(
            "output.mode", Type.STRING, "append", validator=one_of(*MODES),
            documentation="Spark's output mode: `append`, `update` or `complete`.",
        )
        .define("output.partition.by", Type.LIST, [], importance=low, documentation="Columns that make directories (file formats).")
        .define("value.format", Type.STRING, "bytes", validator=one_of(*VALUE_FORMATS), importance=high, documentation="The form of values: `bytes` (columns key, value as they are), `string`, or `json` (the fields of `value.schema` are columns).")
        .define("value.drift", Type.BOOLEAN, True, importance=low, documentation="Whether JSON values are compared with the schema, and what differs is reported.")
        .define("source.connector", Type.STRING, "klamm", validator=one_of(*CONNECTORS), importance=low, documentation="The reader of topics: `klamm`, or `spark` for Spark's own connector (its jars: `klamm spark setup --kafka-connector`), which real-time mode needs.")
        .define("trigger", Type.STRING, None, importance=low, documentation="In place of `trigger.interval.ms`: `available_now` (what is there, then no more), or `real-time 5 minutes` (Spark's real-time mode, with the time between checkpoints).")
        .define("value.schema", Type.STRING, None, documentation="Fields of JSON values as SQL's DDL: `id BIGINT, name STRING`; or `infer`: found from what is in the topics, and kept.")
        .define("watermark.column", Type.STRING, None, importance=low, documentation="The column with the time of an event, for windows.")
        .define("watermark.delay", Type.STRING, None, importance=low, documentation="The delay that an event may have, such as `10 minutes`.")
        .define("max.offsets.per.trigger", Type.LONG, None, documentation="About how many records a batch takes at most. Unset: all there are.")
        .define("fail.on.data.loss", Type.BOOLEAN, True, documentation="Whether the task fails when records are gone before it read them; otherwise they are counted.")
    )  # fmt: skip


def unknown_keys(props: Mapping[str, str]) -> list[str]:
    return unknown(props, config_def(), _OWN_PREFIXES, FREE_PREFIXES)


def parse(props: Mapping[str, str], client: Mapping[str, str], checkpoint: str, starting: str) -> Job:
    """Returns the described job. `client` holds the worker's consumer properties. Raises ConfigError."""
    if strange := unknown_keys(props):
        raise ConfigError(f"SparkSink has no configuration {strange[0]}", key=strange[0])
    found = config_def().parse(props)
    bootstrap = client.get("bootstrap.servers", "")
    result = Job(
        name=props.get("name", "spark-sink"),
        checkpoint=found["checkpoint.location"] or checkpoint,
        master=found["spark.master"],
        spark=spark_settings(props),
        source=_source(props, found, client, bootstrap, starting),
        query=Query(
            found["query.sql"],
            found["query.function"],
            below(props, "query.view."),
            query_options(found["query.options"]),
        ),
        outputs=(
            Output(
                name=OUTPUT,
                format=found["output.format"],
                mode=found["output.mode"],
                trigger=found["trigger"] or f"{found['trigger.interval.ms']} milliseconds",
                partition_by=tuple(found["output.partition.by"]),
                options=below(props, "output.options."),
            ),
        ),
        python_path=tuple(found["spark.python.path"]),
        accept_changes=found["checkpoint.accept.changes"],
    )
    if found["trigger"] is not None and not TRIGGER.fullmatch(found["trigger"].strip()):
        raise ConfigError(
            f"trigger = {found['trigger']!r}: use available_now, a time such as '10 seconds', or real-time with one",
            key="trigger",
        )
    check(result)
    return result


def _source(
    props: Mapping[str, str],
    found: Mapping[str, Any],
    client: Mapping[str, str],
    bootstrap: str,
    starting: str,
) -> Source:
    if (found["watermark.column"] is None) != (found["watermark.delay"] is None):
        raise ConfigError("watermark.column and watermark.delay belong together", key="watermark.column")
    return Source(
        bootstrap_servers=bootstrap,
        topics=tuple(names(props, "topics")),
        topics_regex=props.get("topics.regex") or None,
        starting_offsets=starting,
        max_offsets_per_trigger=found["max.offsets.per.trigger"],
        fail_on_data_loss=found["fail.on.data.loss"],
        value_format=found["value.format"],
        schema=found["value.schema"],
        watermark_column=found["watermark.column"],
        watermark_delay=found["watermark.delay"],
        options=client_options(client),
        connector=found["source.connector"],
        drift=found["value.drift"],
    )
