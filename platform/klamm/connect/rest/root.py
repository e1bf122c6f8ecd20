"""/ , /health and /connector-plugins."""

from __future__ import annotations

from aiohttp import web

from klamm.connect.errors import RequestError, Starting
from klamm.connect.rest.http import as_config, json_response, read_json
from klamm.connect.rest.keys import SERVICE
from klamm_base.version import __version__


async def get_root(request: web.Request) -> web.Response:
    """Show the worker's version and the id of its Kafka cluster.

    The version is Klamm's, and there is no build's commit.
    """
    cluster_id = request.app[SERVICE].cluster_id
    return json_response({"version": __version__, "commit": "unknown", "kafka_cluster_id": cluster_id})


async def get_health(request: web.Request) -> web.Response:
    """Say whether the worker works: 200 healthy, 503 starting, 500 unhealthy."""
    try:
        status = await request.app[SERVICE].health()
    except Starting as e:
        return json_response({"status": "starting", "message": str(e)}, 503)
    except RequestError as e:
        return json_response({"status": "unhealthy", "message": str(e)}, 500)
    message = "Worker has completed startup and is ready to handle requests."
    return json_response({"status": status, "message": message})


async def list_plugins(request: web.Request) -> web.Response:
    """List the installed plugins: connectors, or with connectorsOnly=false all kinds."""
    connectors_only = request.query.get("connectorsOnly", "true").lower() == "true"
    return json_response(await request.app[SERVICE].plugins(connectors_only=connectors_only))


async def plugin_config(request: web.Request) -> web.Response:
    """List the settings that a plugin takes."""
    return json_response(await request.app[SERVICE].plugin_config(request.match_info["plugin"]))


async def validate(request: web.Request) -> web.Response:
    """Check a connector's configuration without making it."""
    config = as_config(await read_json(request, exact_numbers=True), "The body")
    plugin = request.match_info["plugin"]
    return json_response(await request.app[SERVICE].validate(config, plugin=plugin))
