"""A schema registry of ours in a process, for tests."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from support.server_process import ServerProcess


class RegistryProcess(ServerProcess):
    """`klamm registry start`."""

    command = "registry"
    ready = "registry"

    def __init__(self, bootstrap: str, directory: Path, *, scheme: str = "http", **more: str) -> None:
        super().__init__(directory, {"bootstrap.servers": bootstrap, **more}, scheme=scheme)

    def ask(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, Any]:
        """Returns status and answer of a request."""
        data = None if body is None else json.dumps(body).encode()
        kind = {"Content-Type": "application/vnd.schemaregistry.v1+json", **(headers or {})}
        request = urllib.request.Request(self.url + path, data, kind, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as e:
            with e:
                return e.code, json.loads(e.read())
