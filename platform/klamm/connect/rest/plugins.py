"""/connector-plugins: lists, describes, installs and removes plugins, and validates configurations."""

from __future__ import annotations

from aiohttp import web

from klamm.connect.errors import BadRequest
from klamm.connect.rest.foreign_code import refuse_foreign_code, refuse_packages, refuse_path
from klamm.connect.rest.forwarding import UPLOAD_BYTES_MAX
from klamm.connect.rest.keys import SERVICE
from klamm.connect.settings.connector_keys import NAME
from klamm.web.callers import demand
from klamm.web.endpoint import Access
from klamm.web.http import as_config, json_kind, json_response, read_json
from klamm_base.redaction import HIDDEN


async def list_plugins(request: web.Request) -> web.Response:
    """List the installed plugins: connectors, or with connectorsOnly=false all kinds."""
    connectors_only = request.query.get("connectorsOnly", "true").lower() == "true"
    return json_response(await request.app[SERVICE].plugins(connectors_only=connectors_only))


async def plugin_config(request: web.Request) -> web.Response:
    """List the settings that a plugin takes; `version` picks one of several (KIP-891)."""
    plugin, version = request.match_info["plugin"], request.query.get("version") or None
    await refuse_path(request, plugin)
    return json_response(await request.app[SERVICE].plugin_config(plugin, version))


async def validate(request: web.Request) -> web.Response:
    """Check a connector's configuration without creating the connector."""
    config = as_config(await read_json(request, exact_numbers=True), "The body")
    name = config.get(NAME) or ""
    demand(request, Access.ADMINISTER, name)
    await refuse_path(request, request.match_info["plugin"])
    await refuse_foreign_code(request, config)
    service = request.app[SERVICE]
    stored = service.runtime.configs.config(name) or {}
    given = {k: stored.get(k, v) if v == HIDDEN else v for k, v in config.items()}
    return json_response(await service.validate(given, plugin=request.match_info["plugin"]))


async def list_packages(request: web.Request) -> web.Response:
    """List the installed plugin packages, and the broken ones with their tracebacks."""
    found = await request.app[SERVICE].runtime.plugin_admin.installed()
    return json_response([package.to_json() for package in found])


async def install_package(request: web.Request) -> web.Response:
    """Install a plugin package on all workers of the group; usable at once, no worker restarts.

    `package` is what pip takes, or `file` and `wheel` upload one. It may take minutes.
    """
    refuse_packages(request)
    service = request.app[SERVICE]
    await service.runtime.cluster.require_leader()  # before the body is read: it is forwarded as it is
    body = await read_json(request.clone(client_max_size=UPLOAD_BYTES_MAX))
    if not isinstance(body, dict):
        raise BadRequest(
            f'The body must be {{"package": "name==1.2"}} or {{"file", "wheel"}}, not {json_kind(body)}'
        )
    return json_response(await service.install_plugin(body), 201)


async def remove_package(request: web.Request) -> web.Response:
    """Remove a plugin package; 409 while a connector uses it, unless `force` says true."""
    refuse_packages(request)
    version = request.query.get("version") or None
    force = request.query.get("force") == "true"
    name = request.match_info["plugin"]
    return json_response(await request.app[SERVICE].remove_plugin(name, version, force=force))
