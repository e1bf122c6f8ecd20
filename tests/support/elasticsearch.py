"""A genuine Elasticsearch for tests: `klamm.testing.elasticsearch` on what `tests/peers/fetch_elasticsearch.sh` fetched.

Most tests take the fixture `elasticsearch_server` (one node for the whole run, see `support.shared`) and index names of
their own (`unique_index`). A test that stops or kills its node starts its own:
`with ElasticsearchServer(require()) as server`. The directory of a node is a temporary one of its own: for root, pytest's
`tmp_path` is not reachable by the user that the server runs as.

The distribution has no GET /, scripts, reindex, ingest processors and data stream endpoints; a data stream is made by
`create` into a matching template.
"""

from __future__ import annotations

import base64
import functools
import itertools
import json
import os
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support import shared

from klamm.testing.elasticsearch import ElasticsearchServer, Installation, find

_numbers = itertools.count(1)


@functools.cache
def installed() -> Installation | str:
    """Returns the installation for tests, or the reason why there is none."""
    if configured := os.environ.get("ELASTICSEARCH_HOME"):
        return find(Path(configured))
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    found = find(cache / "klamm-elasticsearch")
    return f"{found}; tests/peers/fetch_elasticsearch.sh fetches it" if isinstance(found, str) else found


def require() -> Installation:
    """Returns the installation; skips the calling test, saying why, where there is none."""
    found = installed()
    if isinstance(found, str):
        pytest.skip(found)
    return found


@pytest.fixture(scope="session")
def elasticsearch_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ElasticsearchServer]:
    """Yields one Elasticsearch for all processes of the run; not to be stopped, and every test has index names of its own."""
    installation = require()
    with shared.use(shared.folder(tmp_path_factory), "support.elasticsearch_host") as said:
        server = ElasticsearchServer(installation, port=said["port"])
        yield server
        server.remove()


def unique_index(name: str) -> str:
    """Returns an index name that no other test of this run uses."""
    return f"{name}-{os.getpid()}-{next(_numbers)}"


def call(server: ElasticsearchServer, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    """Sends one request with a JSON body to the node; returns status and JSON answer, whatever the status is."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{server.url}/{path.lstrip('/')}", data=data, method=method)
    request.add_header("Content-Type", "application/json")
    if c := server.credentials:
        pair = base64.b64encode(f"{c.username}:{c.password}".encode()).decode()
        request.add_header("Authorization", f"Basic {pair}")
    trust = ssl.create_default_context(cafile=str(server.tls.certificate)) if server.tls else None
    try:
        with urllib.request.urlopen(request, timeout=90, context=trust) as response:
            return response.status, json.loads(response.read() or b"null")
    except urllib.error.HTTPError as e:
        with e:
            return e.code, json.loads(e.read() or b"null")


def documents(server: ElasticsearchServer, index: str) -> dict[str, Any]:
    """Returns all documents of an index by id, after a refresh; empty when there is no such index."""
    status, answer = call(server, "POST", f"{index}/_refresh")
    if status == 404:
        return {}
    assert status == 200, answer
    found: dict[str, Any] = {}
    after: list[Any] = []
    status, pit = call(server, "POST", f"{index}/_pit?keep_alive=1m")
    assert status == 200, pit
    while True:
        query = {"size": 5000, "pit": {"id": pit["id"]}, "sort": ["_shard_doc"], "track_total_hits": False}
        status, page = call(
            server, "POST", "_search", {**query, **({"search_after": after} if after else {})}
        )
        assert status == 200, page
        hits = page["hits"]["hits"]
        if not hits:
            break
        found.update((hit["_id"], hit["_source"]) for hit in hits)
        after = hits[-1]["sort"]
    call(server, "DELETE", "_pit", {"id": pit["id"]})
    return found
