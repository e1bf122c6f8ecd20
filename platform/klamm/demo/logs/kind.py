"""The kinds of target of the log demonstration, by name. They are in a module of their own because the command line needs their names and nothing else."""

from __future__ import annotations

from enum import StrEnum


class Kind(StrEnum):
    AUTO = "auto"
    ELASTICSEARCH = "elasticsearch"
    SQLITE = "sqlite"
