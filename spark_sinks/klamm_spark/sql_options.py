"""The options of `format("klamm-sql")`, as far as they can be checked without the rows' columns. Pure, without
Spark or SQLAlchemy.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from klamm_base.errors import ConfigError
from klamm_base.toml_lines import meant
from klamm_spark import figures

OPTIONS: Final = ("url", "table", "keys", "create", "batch.size")
DATABASES: Final = ("sqlite", "mysql", "mariadb")
_SPARKS_OWN: Final = frozenset({"path", "checkpointlocation", "queryname", figures.OPTION})
_URL: Final = re.compile(r"(\w+)(?:\+\w+)?://.*", re.DOTALL)


def checked(options: Mapping[str, str]) -> dict[str, str]:
    """Returns the options by their names here, in small letters. Raises ConfigError, whose key is the option.

    Errors do not show a URL, which may hold a password.
    """
    given = {k.lower(): v for k, v in options.items()}
    for name in given:
        if name not in OPTIONS and name not in _SPARKS_OWN:
            raise ConfigError(f"unknown option {name} of format sql: {meant(name, OPTIONS)}", key=name)
    for name in ("url", "table", "keys"):
        if not given.get(name, "").strip():
            raise ConfigError(f"format sql needs the option {name}", key=name)
    url = _URL.fullmatch(given["url"].strip())
    if url is None:
        raise ConfigError("url is no SQLAlchemy URL, such as sqlite:///file.db", key="url")
    if url[1] not in DATABASES:
        raise ConfigError(f"url: format sql writes to sqlite, mysql and mariadb, not to {url[1]}", key="url")
    if not key_columns(given):
        raise ConfigError(f"keys={given['keys']}: name columns by commas", key="keys")
    size = given.get("batch.size", "1000")
    if not size.isdecimal() or int(size) < 1:
        raise ConfigError(f"batch.size={size}: use a number, at least 1", key="batch.size")
    create = given.get("create", "false")
    if create.lower() not in {"true", "false"}:
        raise ConfigError(f"create={create}: use true or false", key="create")
    return given


def key_columns(given: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(k.strip() for k in given["keys"].split(",") if k.strip())
