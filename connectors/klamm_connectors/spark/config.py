"""SparkSink's configuration keys, and the `Job` that a configuration describes. Pure."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from klamm_base.configdef import ConfigDef, Importance, Type, between, non_empty, one_of
from klamm_base.errors import ConfigError
from klamm_spark.pipeline import MODES, VALUE_FORMATS, Job, Output, Query, Source, check

OUTPUT: Final = "output"
_OWN_PREFIXES: Final = (
    "query.",
    "value.",
    "watermark.",
    "output.",
    "checkpoint.",
    "trigger.",
    "max.offsets.",
)
_FREE_PREFIXES: Final = ("query.view.", "output.options.")
_CONVERTERS: Final = ("value.converter", "value.converter.")
_SPARKS_NOT: Final = ("spark.master", "spark.python.path")
_KAFKA_NOT: Final = frozenset(
    {
        "group.id",
        "auto.offset.reset",
        "enable.auto.commit",
        "key.deserializer",
        "value.deserializer",
        "client.id",
    }
)


def definition() -> ConfigDef:
    """Beside these keys any `spark.*`, `query.view.NAME` and `output.options.*` is taken."""
    high, low = Importance.HIGH, Importance.LOW
    return (
        ConfigDef()
        .define(
            "output.format", Type.STRING, importance=high, validator=non_empty,
            documentation="Where results go: `parquet` or any other format of Spark's, or `klamm` (topics), `elasticsearch`, "
            "`sql`, which are ours.",
        )
        .define(
            "output.mode", Type.STRING, "append", validator=one_of(*MODES),
            documentation="Spark's output mode: `append`, `update` or `complete`.",
        )
        .define("output.partition.by", Type.LIST, [], importance=low, documentation="Columns that make directories (file formats).")
        .define("query.sql", Type.STRING, None, importance=high, documentation="SQL over the view `input`. Without it and `query.function` the input is written as it is.")
        .define("query.function", Type.STRING, None, documentation="A Python function `module:function(df, spark)` that returns the DataFrame to write.")
        .define("value.format", Type.STRING, "bytes", validator=one_of(*VALUE_FORMATS), importance=high, documentation="What values are: `bytes` (columns key, value as they are), `string`, or `json` (the fields of `value.schema` are columns).")
        .define("value.schema", Type.STRING, None, documentation="Fields of JSON values as SQL's DDL: `id BIGINT, name STRING`.")
        .define("watermark.column", Type.STRING, None, importance=low, documentation="The column with the time of an event, for windows.")
        .define("watermark.delay", Type.STRING, None, importance=low, documentation="How late an event may come: `10 minutes`.")
        .define("trigger.interval.ms", Type.LONG, 1000, validator=between(0), documentation="Time between the starts of two batches.")
        .define("max.offsets.per.trigger", Type.LONG, None, documentation="About how many records a batch takes at most. Unset: all there are.")
        .define("fail.on.data.loss", Type.BOOLEAN, True, documentation="Whether the task fails when records are gone before it read them; otherwise they are counted.")
        .define("checkpoint.location", Type.STRING, None, importance=high, documentation="Directory (or s3a://... and the like) where the job keeps its place and state. Default: below "
            "`~/.local/share/klamm/spark` (or KLAMM_SPARK_DIR), by connector and cluster. Workers on several machines need one that all of them reach.")
        .define("spark.master", Type.STRING, "local[*]", importance=high, documentation="Spark's master: local[*], spark://..., yarn, k8s://...")
        .define("spark.python.path", Type.LIST, [], importance=low, documentation="Directories in which `query.function` is looked for, beside the installed packages.")
    )  # fmt: skip


def unknown_keys(props: Mapping[str, str]) -> list[str]:
    """Keys that look like ours and are not: a misspelt one must not be without effect."""
    known = definition()
    return [
        name
        for name in props
        if name.startswith(_OWN_PREFIXES)
        and name not in known
        and not name.startswith(_FREE_PREFIXES)
        and not name.startswith(_CONVERTERS)
    ]


def job(props: Mapping[str, str], client: Mapping[str, str], checkpoint: str, starting: str) -> Job:
    """The job that a configuration describes; `client` are the worker's consumer properties. Raises ConfigError."""
    if unknown := unknown_keys(props):
        raise ConfigError(f"SparkSink has no configuration {unknown[0]}", key=unknown[0])
    found = definition().parse(props)
    bootstrap = client.get("bootstrap.servers", "")
    result = Job(
        name=props.get("name", "spark-sink"),
        checkpoint=found["checkpoint.location"] or checkpoint,
        master=found["spark.master"],
        spark={k: v for k, v in props.items() if k.startswith("spark.") and k not in _SPARKS_NOT},
        source=_source(props, found, client, bootstrap, starting),
        query=Query(found["query.sql"], found["query.function"], _below(props, "query.view.")),
        outputs=(
            Output(
                name=OUTPUT,
                format=found["output.format"],
                mode=found["output.mode"],
                trigger=f"{found['trigger.interval.ms']} milliseconds",
                partition_by=tuple(found["output.partition.by"]),
                options=_below(props, "output.options."),
            ),
        ),
        python_path=tuple(found["spark.python.path"]),
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
    topics = tuple(t.strip() for t in props.get("topics", "").split(",") if t.strip())
    kafka = {f"kafka.{k}": v for k, v in client.items() if k not in _KAFKA_NOT and k != "bootstrap.servers"}
    if (found["watermark.column"] is None) != (found["watermark.delay"] is None):
        raise ConfigError("watermark.column and watermark.delay belong together", key="watermark.column")
    return Source(
        bootstrap_servers=bootstrap,
        topics=topics,
        topics_regex=props.get("topics.regex") or None,
        starting_offsets=starting,
        max_offsets_per_trigger=found["max.offsets.per.trigger"],
        fail_on_data_loss=found["fail.on.data.loss"],
        value_format=found["value.format"],
        schema=found["value.schema"],
        watermark_column=found["watermark.column"],
        watermark_delay=found["watermark.delay"],
        options=kafka,
    )


def _below(props: Mapping[str, str], prefix: str) -> dict[str, str]:
    return {k.removeprefix(prefix): v for k, v in props.items() if k.startswith(prefix) and v is not None}


def default_checkpoint(name: str, cluster_id: str, env: Mapping[str, str] = os.environ) -> str:
    """One directory per connector and cluster: another cluster's offsets would be wrong here."""
    data = env.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
    base = Path(env.get("KLAMM_SPARK_DIR") or Path(data) / "klamm" / "spark")
    plain = "".join(c if c.isalnum() or c in "-_." else f"%{ord(c):02x}" for c in name)
    return str(base / f"{plain}-{cluster_id}")
