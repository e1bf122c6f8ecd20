"""v3: several records, or several ACLs, in one request. The first line of each docstring is its summary in OpenAPI."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from aiohttp import web

from klamm.admin.acls import create_acls
from klamm.restproxy import requests, v3_acls
from klamm.restproxy.config import BATCH_MAX
from klamm.restproxy.context import PROXY
from klamm.restproxy.errors import ProxyError
from klamm.restproxy.v3 import JSON, asking, links_of
from klamm.restproxy.v3_records import Sent, answered, sent
from klamm.web.http import empty, json_response

MULTI_STATUS: Final = 207
ID_LENGTH_MAX: Final = 80
_INVALID_BATCH: Final = 42208


async def produce_batch(request: web.Request) -> web.Response:
    """Send several records, each answered by its id under successes or failures."""
    links_of(request)
    body = requests.known(await requests.read_object(request, JSON), ("entries",))
    proxy, topic = request.app[PROXY], request.match_info["topic"]
    entries = requests.listed(body, "entries")
    ids = _ids(entries, proxy.config.values[BATCH_MAX])
    count = await proxy.producing.partitions(topic)
    under_way: list[Sent | ProxyError] = []
    for each in entries:
        try:
            under_way.append(await sent(proxy, topic, count, {k: v for k, v in each.items() if k != "id"}))
        except ProxyError as e:
            under_way.append(e)
    successes, failures = [], []
    for name, handed in zip(ids, under_way, strict=True):
        told = await answered(proxy, topic, handed)
        if told["error_code"] == web.HTTPOk.status_code:
            del told["error_code"]
            successes.append({"id": name, **told})
        else:
            failures.append({"id": name, **told})
    return json_response({"successes": successes, "failures": failures}, status=MULTI_STATUS)


def _ids(entries: Any, most: int) -> list[str]:
    """Returns the ids, which must differ. Raises ProxyError."""
    if not entries:
        raise ProxyError(_INVALID_BATCH, "Empty batch.")
    if len(entries) > most:
        raise ProxyError(
            _INVALID_BATCH, f"Too many entries in batch: {len(entries)}, of {most} ({BATCH_MAX})."
        )
    ids = [_id(each) for each in entries]
    if len(set(ids)) < len(ids):
        raise ProxyError(_INVALID_BATCH, "Batch entry IDs are not distinct.")
    return ids


def _id(entry: Mapping[str, Any]) -> str:
    found = entry.get("id")
    if not isinstance(found, str) or not 0 < len(found) <= ID_LENGTH_MAX:
        raise ProxyError(
            _INVALID_BATCH,
            f"Batch entry identifier is not a valid string: 1 to {ID_LENGTH_MAX} characters, not {found!r:.40}",
        )
    return found


async def create_acl_batch(request: web.Request) -> web.Response:
    """Create several ACLs, all or none of which the cluster is asked for."""
    links_of(request)
    body = requests.known(await requests.read_object(request, JSON), ("data",))
    made = [v3_acls.acl_of(each) for each in requests.listed(body, "data")]
    async with asking(request) as (admin, _):
        await create_acls(admin, made)
    return empty(201)
