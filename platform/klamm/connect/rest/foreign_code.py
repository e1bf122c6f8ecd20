"""Keeps foreign code out of a worker that the network can reach and that asks nobody for credentials.

Such a worker installs and removes no packages, and its connectors name installed plugins only: a Python path would import any
module of the machine, and Spark's settings name functions, jars and programs. Everything else stays open, as with Kafka.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from aiohttp import web

from klamm.connect.errors import Forbidden
from klamm.connect.plugins.catalog import (
    CONNECTOR_TYPES,
    CONVERTER,
    HEADER_CONVERTER,
    PREDICATE,
    TRANSFORMATION,
)
from klamm.connect.rest.keys import OPEN_ADDRESS, SERVICE

WHAT_TO_SET: Final = (
    "set rest.auth.file (users and their roles: klamm connect password), or listeners to an address of loopback, and start "
    "the worker again"
)
_PLUGINS: Final = (
    (re.compile(r"connector\.class"), CONNECTOR_TYPES),
    (re.compile(r"(key|value)\.converter"), (CONVERTER,)),
    (re.compile(r"header\.converter"), (HEADER_CONVERTER,)),
    (re.compile(r"transforms\..+\.type"), (TRANSFORMATION,)),
    (re.compile(r"predicates\..+\.type"), (PREDICATE,)),
)
_NAMES_CODE: Final = re.compile(r"query\.function|spark\..+")
"""Settings of the Spark connectors that name functions, jars, programs or another machine's master."""


def warning(address: str) -> str:
    """Returns the log's warning when the worker starts at such an address."""
    return (
        f"REST listens on {address}, which others on the network may reach, and asks nobody for credentials: whoever reaches it "
        "may create and delete connectors, which read and write with the worker's rights. Plugin packages are neither installed "
        f"nor removed, and Python paths are refused, until you {WHAT_TO_SET}"
    )


def refuse_packages(request: web.Request) -> None:
    """Raises Forbidden where a stranger could install or remove a package."""
    _refuse(request, "Plugin packages are neither installed nor removed here")


def refuse_path(request: web.Request, plugin: str) -> None:
    """Raises Forbidden where a stranger asks about a plugin that would have to be imported by its Python path."""
    if not _listed(request, plugin, ()):
        _refuse(request, f"{plugin} is no plugin that GET /connector-plugins?connectorsOnly=false lists")


def refuse_foreign_code(request: web.Request, config: Mapping[str, str | None]) -> None:
    """Raises Forbidden where a stranger's configuration, or a part of it, names code that is no installed plugin."""
    for key, value in config.items():
        if not value:
            continue
        if _NAMES_CODE.fullmatch(key):
            _refuse(request, f"{key} may name code to run, and is refused")
        kinds = next((kinds for pattern, kinds in _PLUGINS if pattern.fullmatch(key)), None)
        if kinds is not None and not _listed(request, value, kinds):
            _refuse(
                request, f"{key}={value} is no plugin that GET /connector-plugins?connectorsOnly=false lists"
            )


def _listed(request: web.Request, plugin: str, kinds: tuple[str, ...]) -> bool:
    return bool(request.app[SERVICE].runtime.plugins.versions(plugin.strip(), *kinds))


def _refuse(request: web.Request, why: str) -> None:
    if (address := request.app.get(OPEN_ADDRESS)) is not None:
        raise Forbidden(
            f"{why}: the worker listens on {address} and asks nobody for credentials; {WHAT_TO_SET}"
        )
