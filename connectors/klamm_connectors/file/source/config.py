"""FileStreamSource's configuration."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from klamm_base.configdef import ConfigDef, Importance, Type, between, invalid
from klamm_plugins.errors import ConfigError

_TOPIC: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """A task's settings."""

    path: str
    topic: str
    batch_size: int


def _legal_topic(name: str, value: Any) -> None:
    if value is None or not _TOPIC.fullmatch(value) or value in {".", ".."}:
        raise invalid(
            name,
            value,
            "The name of one topic: up to 249 letters, digits, '.', '_' and '-', but not '.' or '..'",
        )


def config_def() -> ConfigDef:
    """Returns the configuration keys."""
    return (
        ConfigDef()
        .define(
            "file",
            Type.STRING,
            None,
            importance=Importance.HIGH,
            documentation=(
                "Path of the file to read. It need not exist yet. Required in fact: a task has no standard input "
                "to read instead."
            ),
        )
        .define(
            "topic",
            Type.STRING,
            validator=_legal_topic,
            importance=Importance.HIGH,
            documentation="The topic that takes the lines.",
        )
        .define(
            "batch.size",
            Type.INT,
            2000,
            validator=between(1),
            importance=Importance.LOW,
            documentation="The most lines that the task hands over at once.",
        )
    )


def parse(props: Mapping[str, str]) -> Settings:
    """Returns typed settings. Raises ConfigError."""
    values = config_def().parse(props)
    if not values["file"]:
        raise ConfigError(file_missing(values["file"]), key="file")
    return Settings(path=values["file"], topic=values["topic"], batch_size=values["batch.size"])


def file_missing(value: str | None) -> str:
    """Returns the error for a configuration that names no file."""
    why = "Name a file: a task runs in a process of its own, which has no standard input to read"
    return str(invalid("file", value, why))
