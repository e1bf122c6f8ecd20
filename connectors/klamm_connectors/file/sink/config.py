"""FileStreamSink's configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from klamm_base.configdef import ConfigDef, Importance, Type


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """A task's settings. Without a path, lines go to the log."""

    path: str | None


def config_def() -> ConfigDef:
    """Returns the configuration keys."""
    return ConfigDef().define(
        "file",
        Type.STRING,
        None,
        importance=Importance.HIGH,
        documentation="Path of the file to append to; it is made when it is missing. Without it, lines go to the log.",
    )


def parse(props: Mapping[str, str]) -> Settings:
    """Returns typed settings. Raises ConfigError."""
    return Settings(path=config_def().parse(props)["file"] or None)
