"""The options of `format("klamm-elasticsearch")`, as far as they can be checked without the rows' columns.
Pure, without Spark.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from klamm_base.errors import ConfigError
from klamm_base.toml_lines import meant
from klamm_spark import figures
from klamm_spark.datasource.option_values import flag
from klamm_spark.elasticsearch_http import endpoint

OPTIONS: Final = (
    "hosts", "index", "data_stream", "id", "document", "op", "template", "template.patterns", "template.body",
    "user", "password", "api_key", "ca_file", "verify", "batch.size", "batch.bytes", "max.in.flight", "refresh",
    "timeout.ms", "retry.timeout.ms", "dead_letter.topic",
)  # fmt: skip
_CLIENT: Final = "dead_letter.kafka."
_SPARKS_OWN: Final = frozenset({"path", "checkpointlocation", "queryname", figures.OPTION})
_DATA_STREAM: Final = re.compile(r"(?!\.{1,2}$)[^A-Z\\/*?\"<>| ,#:_+\-][^A-Z\\/*?\"<>| ,#:]*")


def checked(options: Mapping[str, str]) -> dict[str, str]:
    """Returns the options by their names here, in small letters. Raises ConfigError, whose key is the option."""
    given = {k.lower(): v for k, v in options.items()}
    for name in given:
        if name not in {*OPTIONS, *_SPARKS_OWN} and not name.startswith(_CLIENT):
            raise ConfigError(
                f"unknown option {name} of format elasticsearch: {meant(name, sorted(OPTIONS))}", key=name
            )
    endpoint(given)
    _check_target(given)
    for name in ("batch.size", "batch.bytes", "max.in.flight"):
        number(given, name, 1)
    flag(given, "refresh", default=False)
    if given.get("dead_letter.topic") and f"{_CLIENT}bootstrap.servers" not in given:
        raise ConfigError(
            "dead_letter.topic needs dead_letter.kafka.bootstrap.servers", key=f"{_CLIENT}bootstrap.servers"
        )
    return given


def dead_letter_client(given: Mapping[str, str]) -> dict[str, str]:
    """Returns the dead letter topic's client properties by Java's names."""
    return {k.removeprefix(_CLIENT): v for k, v in given.items() if k.startswith(_CLIENT)}


def operation(given: Mapping[str, str]) -> str:
    return given.get("op", "create" if given.get("data_stream") else "index")


def number(given: Mapping[str, str], name: str, default: int) -> int:
    text = given.get(name, str(default))
    if not text.isdecimal() or int(text) < 1:
        raise ConfigError(f"{name}={text}: use a number, at least 1", key=name)
    return int(text)


def _check_target(given: Mapping[str, str]) -> None:
    stream = given.get("data_stream") or None
    if stream is not None and given.get("index"):
        raise ConfigError("format elasticsearch: set data_stream or index, not both", key="data_stream")
    how = operation(given)
    if how not in {"index", "create"}:
        raise ConfigError(f"op={how}: use index or create", key="op")
    if not given.get("template") and (
        other := [k for k in ("template.patterns", "template.body") if given.get(k)]
    ):
        raise ConfigError(f"{other[0]} needs the option template, the template's name", key=other[0])
    if stream is None:
        return
    if not _DATA_STREAM.fullmatch(stream) or len(stream.encode()) > 255:
        raise ConfigError(
            f"data_stream={stream}: use small letters, digits, - . and _, such as logs-shop-default",
            key="data_stream",
        )
    if how != "create":
        raise ConfigError("op=index: documents of a data stream are created; leave op out", key="op")
