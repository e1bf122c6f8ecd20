"""GET / and GET /health: the worker's version, the id of its Kafka cluster, and its health."""

from __future__ import annotations

from aiohttp import web

from klamm.connect.errors import RequestError, Starting
from klamm.connect.rest.keys import SERVICE
from klamm.web.http import json_response
from klamm_base.version import __version__


async def get_root(request: web.Request) -> web.Response:
    """Show the worker's version and the id of its Kafka cluster.

    The version is Klamm's; the commit is always "unknown", since Klamm records none.
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
