"""Configuration keys that SparkSink and SparkSource share. Pure."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from klamm_base.configdef import ConfigDef, ConfigValue, Importance, Type, between
from klamm_base.errors import ConfigError

OUTPUT: Final = "output"
_CONVERTERS: Final = ("value.converter", "value.converter.", "key.converter", "key.converter.")
_SPARKS_NOT: Final = ("spark.master", "spark.python.path")
_KEYS: Final = {
    "source.schema": "value.schema",
    "source.watermark": "watermark.column",
    "source.poll": "poll.column",
    "source.poll.column": "poll.column",
    "source.poll.delay": "poll.delay.ms",
    "outputs.mode": "output.mode",
    "outputs.format": "output.format",
    "source.value_format": "value.format",
    "source.topics_regex": "topics.regex",
    "source.topics": "topics",
    "source.max_offsets_per_trigger": "max.offsets.per.trigger",
    "outputs.options": "delivery.guarantee",
    "outputs.options.topic": "topic",
    "outputs.key": "key.columns",
}
"""Places in a job that have another name among a connector's keys."""
_FREE: Final = {
    "outputs.options.": "output.options.",
    "source.options.": "source.options.",
    "query.views.": "query.view.",
}
"""Prefixes of places in a job, each with the prefix of a connector's keys that accepts any name."""
_NUMBER: Final = re.compile(r"\[\d+\]")
_PLACE: Final = re.compile(r"^(?:\[\[outputs\]\] output(?: options)?|\[source\] options):? ")
_CLIENT_NOT: Final = frozenset(
    {
        "group.id", "auto.offset.reset", "enable.auto.commit", "client.id", "transactional.id", "key.deserializer",
        "value.deserializer", "key.serializer", "value.serializer",
    }
)  # fmt: skip


def define_common(definition: ConfigDef) -> ConfigDef:
    """Adds the keys of the query, the checkpoint and Spark itself."""
    high, low = Importance.HIGH, Importance.LOW
    return (
        definition
        .define("query.sql", Type.STRING, None, importance=high, documentation="SQL over the view `input`. Without it and `query.function` the input is written as it is.")
        .define("query.function", Type.STRING, None, documentation="A Python function `module:function(df, spark)` that returns the DataFrame to write; with a third parameter it gets `query.options`.")
        .define("query.options", Type.STRING, None, importance=low, documentation="The third argument of the function: a JSON object.")
        .define("trigger.interval.ms", Type.LONG, 1000, validator=between(0), documentation="Time between the starts of two batches.")
        .define("checkpoint.location", Type.STRING, None, importance=high, documentation="Directory (or s3a://... and the like) where the job keeps its place and state. Default: below "
            "`~/.local/share/klamm/spark` (or KLAMM_SPARK_DIR), by connector and cluster. Workers on several machines need one that all of them reach.")
        .define("checkpoint.accept.changes", Type.BOOLEAN, False, importance=low, documentation="Start although the query no longer fits what its checkpoint was written by (docs/spark.md says what fits).")
        .define("spark.master", Type.STRING, "local[*]", importance=high, documentation="Spark's master: local[*], spark://..., yarn, k8s://...")
        .define("spark.python.path", Type.LIST, [], importance=low, documentation="Directories in which `query.function` is looked for, beside the installed packages.")
    )  # fmt: skip


def unknown(
    props: Mapping[str, str], definition: ConfigDef, own: tuple[str, ...], free: tuple[str, ...]
) -> list[str]:
    """Returns keys that look like ours and are not: a misspelt key must not be silently ignored."""
    return [
        name
        for name in props
        if name.startswith(own)
        and name not in definition
        and not name.startswith(free)
        and not name.startswith(_CONVERTERS)
    ]


def validated(
    kind: str,
    props: Mapping[str, str],
    definition: ConfigDef,
    strange: Sequence[str],
    check: Callable[[Mapping[str, str]], None],
) -> list[ConfigValue]:
    """Answers a connector's `validate`: checks each key alone, then unknown keys, then all together by `check`."""
    values = definition.validate(props)
    values += [ConfigValue(name=n, errors=[f"{kind} has no configuration {n}"]) for n in strange]
    if not any(v.errors for v in values):
        try:
            check(props)
        except ConfigError as e:
            _tell(values, props, e)
    return values


def _tell(values: list[ConfigValue], props: Mapping[str, str], error: ConfigError) -> None:
    """Attaches a job's error to the connector key for that place in the job."""
    place = _NUMBER.sub("", error.key or "")
    names = [place, _KEYS.get(place, "")]
    if place.startswith("query.options."):  # one key has the whole JSON document
        names.append("query.options")
    for begins, prefix in _FREE.items():
        if place.startswith(begins):
            names.append(prefix + place.removeprefix(begins))
    known = {v.name: v for v in values}
    name = next((n for n in names if n in known), None) or next((n for n in names if n in props), None)
    if name is None:  # what is not there, such as an option that is needed
        name = names[-1] if len(names) > 2 else values[0].name
    said = _PLACE.sub("", str(error))
    text = said if said.startswith(name) or name == values[0].name else f"{name}: {said}"
    if name in known:
        known[name].errors.append(text)
    else:
        values.append(ConfigValue(name=name, value=_shown(name, props), errors=[text]))


def _shown(name: str, props: Mapping[str, str]) -> str | None:
    """Hides the value, since options may be secrets; only a missing value is shown as missing."""
    return "[hidden]" if name in props else None


def below(props: Mapping[str, str], prefix: str) -> dict[str, str]:
    return {k.removeprefix(prefix): v for k, v in props.items() if k.startswith(prefix) and v is not None}


def spark_settings(props: Mapping[str, str]) -> dict[str, str]:
    return {k: v for k, v in props.items() if k.startswith("spark.") and k not in _SPARKS_NOT}


def client_options(client: Mapping[str, str]) -> dict[str, str]:
    """Returns Kafka's client properties as options of our format, without those that Spark decides itself."""
    return {f"kafka.{k}": v for k, v in client.items() if k not in _CLIENT_NOT and k != "bootstrap.servers"}


def query_options(text: str | None) -> dict[str, Any]:
    """Parses the JSON object of `query.options`. Raises ConfigError."""
    if text is None:
        return {}
    try:
        found = json.loads(text)
    except ValueError as e:
        raise ConfigError(f"query.options is no JSON: {e}", key="query.options") from None
    if not isinstance(found, dict):
        raise ConfigError("query.options must be a JSON object", key="query.options")
    return found


def default_checkpoint(name: str, cluster_id: str, env: Mapping[str, str] = os.environ) -> str:
    """Returns a directory for this connector and cluster: another cluster's offsets would be wrong here."""
    data = env.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
    base = Path(env.get("KLAMM_SPARK_DIR") or Path(data) / "klamm" / "spark")
    plain = "".join(c if c.isalnum() or c in "-_." else f"%{ord(c):02x}" for c in name)
    return str(base / f"{plain}-{cluster_id}")


def names(props: Mapping[str, str], key: str) -> Sequence[str]:
    return tuple(t.strip() for t in props.get(key, "").split(",") if t.strip())
