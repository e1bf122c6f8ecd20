"""Keeps foreign code out of a worker that the network can reach and that asks nobody for credentials.

Such a worker installs and removes no packages, and its connectors name installed plugins only: a Python path would import any
module of the machine. Spark's queries and settings are refused: they name functions, jars, programs and Java classes, and Spark's
SQL calls any static Java method. Internal requests are refused unless workers sign them. Everything else stays open, as with Kafka.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from aiohttp import web

from klamm.connect.errors import Forbidden
from klamm.connect.plugins.requirements import plugin_types
from klamm.connect.rest import spark_code
from klamm.connect.rest.keys import OPEN_ADDRESS, SERVICE
from klamm_base.clientconfig import LOADS_CODE

WHAT_TO_SET: Final = (
    "set rest.auth.file (users and their roles: klamm connect password), or listeners to an address of loopback, and start "
    "the worker again"
)
_LOADS_CODE_BELOW: Final = tuple(f".{name}" for name in sorted(LOADS_CODE))
"""librdkafka's settings that load native code, with any prefix: plugins choose the prefixes of their clients."""


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


async def refuse_path(request: web.Request, plugin: str) -> None:
    """Raises Forbidden where a stranger asks about a plugin that would have to be imported by its Python path."""
    if OPEN_ADDRESS in request.app and not await _listed(request, plugin, ()):
        _refuse(request, f"{plugin} is no plugin that GET /connector-plugins?connectorsOnly=false lists")


async def refuse_foreign_code(request: web.Request, config: Mapping[str, str | None]) -> None:
    """Raises Forbidden where a stranger's configuration, or a part of it, names code that is no installed plugin."""
    if OPEN_ADDRESS not in request.app:
        return
    for key, value in config.items():
        if not value:
            continue
        if f".{key.lower()}".endswith(_LOADS_CODE_BELOW):  # Spark's options come in any case
            _refuse(request, f"{key} may load native code, and is refused")
        if (why := spark_code.danger(key, value)) is not None:
            _refuse(request, f"{why}, and is refused")
        types = plugin_types(key)
        if types and _may_be_path(value) and not await _listed(request, value, types):
            _refuse(
                request, f"{key}={value} is no plugin that GET /connector-plugins?connectorsOnly=false lists"
            )


def refuse_unsigned(request: web.Request) -> None:
    """Raises Forbidden where a stranger could send an internal request, because the group's workers do not sign theirs."""
    if not request.app[SERVICE].runtime.cluster.demands_signatures:
        _refuse(
            request,
            "Internal requests are not answered here, because the workers of this group do not sign them "
            "(connect.protocol=sessioned on all of them makes them sign)",
        )


def _may_be_path(name: str) -> bool:
    """Returns whether the name can be a Python path. The setting `target.type=Timestamp` of a transform is none."""
    return "." in name or ":" in name


async def _listed(request: web.Request, plugin: str, types: tuple[str, ...]) -> bool:
    """Returns whether GET /connector-plugins would list a plugin. Lists again before it says no, because the plugin may be
    newly installed.
    """
    runtime = request.app[SERVICE].runtime
    if not runtime.plugins.versions(plugin.strip(), *types):
        await runtime.plugin_listing.refresh()
    return bool(runtime.plugins.versions(plugin.strip(), *types))


def _refuse(request: web.Request, why: str) -> None:
    if (address := request.app.get(OPEN_ADDRESS)) is not None:
        raise Forbidden(
            f"{why}: the worker listens on {address} and asks nobody for credentials; {WHAT_TO_SET}"
        )
