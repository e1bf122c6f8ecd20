"""Forwards requests that another worker must carry out: the leader, or the worker that runs a connector or
task.

As with Kafka a request travels two hops at most: the query parameter `forward` counts them (none: the
client's own; `true`: once forwarded; `false`: twice). The client gets the other worker's answer unchanged.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Final

import aiohttp
from aiohttp import hdrs, web
from yarl import URL

from klamm.connect.errors import Conflict, RequestError, RequestTarget
from klamm.connect.herding.session_keys import ALGORITHM_HEADER, SIGNATURE_HEADER
from klamm.connect.rest.keys import SERVICE
from klamm.connect.topics.kafka_log import LogError
from klamm.web.endpoint import Handler
from klamm.web.http import shown_path

if TYPE_CHECKING:
    from klamm.connect.config import WorkerConfig

log = logging.getLogger(__name__)

TIMEOUT_S: Final = 90.0
INSTALL_S: Final = 960.0  # a large plugin package over a slow line
CONNECT_S: Final = 3.0
READ_S: Final = 10.0
BUSY_S: Final = 10.0
"""The extra time that a group may take to meet without its leader, on busy machines."""
UPLOAD_BYTES_MAX: Final = 48 << 20
"""The largest request with a plugin package: a wheel of 32 MiB in base64, and the JSON around it."""
FORWARDED: Final = "X-Klamm-Forwarded"
"""A header of requests that a worker of ours forwards: it passes on fields of answers that Kafka does not have."""
_SENT: Final = (
    hdrs.AUTHORIZATION, hdrs.CONTENT_TYPE, hdrs.ACCEPT, hdrs.IF_MATCH, SIGNATURE_HEADER, ALGORITHM_HEADER
)  # fmt: skip
# This worker adds the other headers itself (CORS, response.http.headers.config).
_RETURNED: Final = frozenset({"content-type", "location", "allow", "www-authenticate"})


@web.middleware
async def forwarding(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Forwards a request if need be. If the leader has died, waits for the next leader and sends it the request."""
    runtime = request.app[SERVICE].runtime
    deadline = time.monotonic() + _patience_s(runtime.config)
    while True:
        try:
            return await handler(request)
        except RequestTarget as target:
            url = _next_hop(request, target)
        try:
            return await _send(request, url)
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as e:
            # Nothing was sent, so another worker may get the request.
            left_s = deadline - time.monotonic()
            if left_s <= 0 or not await runtime.cluster.leader_changed(url, left_s):
                raise RequestError(f"IO Error trying to forward REST request: {e}") from None
        except (aiohttp.ClientError, TimeoutError) as e:
            raise RequestError(
                f"IO Error trying to forward REST request: {e or type(e).__name__}; it may have been carried out"
            ) from None


def _patience_s(config: WorkerConfig) -> float:
    """Returns the longest time until another worker has replaced one that is gone."""
    return float((config["session.timeout.ms"] + config["heartbeat.interval.ms"]) / 1000 + BUSY_S)


def _next_hop(request: web.Request, target: RequestTarget) -> str:
    if request.query.get("forward", "true").lower() != "true":
        log.error("%s %s did not find its worker within two hops", request.method, shown_path(request))
        raise Conflict(
            "Cannot complete request because of a conflicting operation (e.g. worker rebalance)"
        ) from None
    if not target.url:
        raise Conflict(
            "Cannot complete request momentarily due to no known leader URL, likely because a rebalance was underway."
        ) from None
    return target.url


async def _send(request: web.Request, url: str) -> web.Response:
    runtime = request.app[SERVICE].runtime
    query = [(k, v) for k, v in request.query.items() if k != "forward"]
    query.append(("forward", "false" if "forward" in request.query else "true"))
    # Not raw_path: proxies send requests in absolute form, where it is a whole address.
    address = URL(url.rstrip("/") + request.rel_url.raw_path, encoded=True).with_query(query)
    headers = {name: request.headers[name] for name in _SENT if name in request.headers}
    headers[FORWARDED] = "true"
    async with runtime.cluster.http().request(
        request.method,
        address,
        data=await _body(request) or None,
        headers=headers,
        # A request without a body must have no content type either: Kafka's workers refuse aiohttp's default
        # (415). And an encoded answer would be passed on without the header that says so.
        skip_auto_headers=(hdrs.CONTENT_TYPE, hdrs.ACCEPT_ENCODING),
        allow_redirects=False,
        timeout=aiohttp.ClientTimeout(
            total=INSTALL_S if _installs(request) else TIMEOUT_S,
            # A dead machine does not even refuse connections; the group knows its successor a little later.
            sock_connect=min(CONNECT_S, _patience_s(runtime.config) / 2),
        ),
    ) as answer:
        body = await answer.read()
    if request.method not in {"GET", "HEAD"} and answer.status < 400:
        # Makes the change visible to the next request to this worker.
        try:
            await runtime.config_log.read_to_end(READ_S)
        except LogError as e:
            log.warning("the change made by the forwarded request could not be read back: %s", e)
    kept = {k: v for k, v in answer.headers.items() if k.lower() in _RETURNED}
    return web.Response(status=answer.status, body=body, headers=kept)


def sent_by_kafkas_worker(request: web.Request) -> bool:
    """Returns True for a request that one of Kafka's workers forwarded: it cannot read fields that Kafka does not have."""
    return "forward" in request.query and FORWARDED not in request.headers


def _installs(request: web.Request) -> bool:
    return request.method == "POST" and request.path.rstrip("/") == "/connector-plugins"


async def _body(request: web.Request) -> bytes:
    """Returns the request's body; a wheel may be larger than other bodies."""
    if _installs(request) and request.can_read_body:
        request = request.clone(client_max_size=UPLOAD_BYTES_MAX)
    return await request.read()
