"""A schema registry for tests: Confluent's REST contract (subjects, versions, ids, lookups) in memory, on a free port.

Schemas are compared as their registry does after parsing: as JSON. What it does not have: compatibility checks beyond
`refuse`, which tests set.
"""

from __future__ import annotations

import base64
import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

Schema = tuple[str, str, str]  # kind, canonical text, references


class SchemaRegistry:
    """See the module. `requests` are the lines that came; `failures` answers so many requests with 503 first."""

    def __init__(self, *, user: str | None = None) -> None:
        self.ids: dict[Schema, int] = {}
        self.schemas: dict[int, dict[str, Any]] = {}
        self.subjects: dict[str, list[int]] = {}
        self.requests: list[str] = []
        self.failures = 0
        self.refuse: str | None = None
        self._user = user
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
        )
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(60)
        assert not self._thread.is_alive()

    def __enter__(self) -> SchemaRegistry:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer("GET", None)

            def do_POST(self) -> None:
                size = int(self.headers["Content-Length"])
                self._answer("POST", json.loads(self.rfile.read(size)))

            def _answer(self, method: str, body: Any) -> None:
                registry.requests.append(f"{method} {self.path}")
                status, answer = registry.answer(method, self.path, body, self.headers.get("Authorization"))
                data = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, format: str, *args: Any) -> None:
                """Says nothing."""

        return Handler

    def answer(self, method: str, path: str, body: Any, authorization: str | None) -> tuple[int, Any]:
        if self.failures:
            self.failures -= 1
            return 503, {"error_code": 50301, "message": "busy"}
        if self._user is not None:
            expected = "Basic " + base64.b64encode(self._user.encode()).decode()
            if authorization != expected:
                return 401, {"error_code": 401, "message": "Unauthorized"}
        route = urlsplit(path).path
        if found := re.fullmatch(r"/schemas/ids/(\d+)", route):
            return self._by_id(int(found[1]))
        if found := re.fullmatch(r"/subjects/([^/]+)/versions/(latest|\d+)", route):
            return self._version(unquote(found[1]), found[2])
        if found := re.fullmatch(r"/subjects/([^/]+)(/versions)?", route):
            subject = unquote(found[1])
            return self._register(subject, body) if found[2] else self._lookup(subject, body)
        return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}

    def _by_id(self, id_: int) -> tuple[int, Any]:
        if id_ not in self.schemas:
            return 404, {"error_code": 40403, "message": f"Schema {id_} not found"}
        return 200, self.schemas[id_]

    def _version(self, subject: str, version: str) -> tuple[int, Any]:
        versions = self.subjects.get(subject)
        if versions is None:
            return 404, {"error_code": 40401, "message": f"Subject '{subject}' not found."}
        number = len(versions) if version == "latest" else int(version)
        if not 0 < number <= len(versions):
            return 404, {"error_code": 40402, "message": f"Version {version} not found."}
        id_ = versions[number - 1]
        return 200, {"subject": subject, "version": number, "id": id_, **self.schemas[id_]}

    def _register(self, subject: str, body: Any) -> tuple[int, Any]:
        if self.refuse is not None:
            return 409, {"error_code": 409, "message": self.refuse}
        try:
            key = _key(body)
        except ValueError as e:
            return 422, {"error_code": 42201, "message": f"Invalid schema: {e}"}
        id_ = self.ids.setdefault(key, len(self.ids) + 1)
        kept = {"schema": body["schema"], "references": body.get("references", [])}
        if body.get("schemaType", "AVRO") != "AVRO":
            kept["schemaType"] = body["schemaType"]
        self.schemas.setdefault(id_, kept)
        versions = self.subjects.setdefault(subject, [])
        if id_ not in versions:
            versions.append(id_)
        return 200, {"id": id_}

    def _lookup(self, subject: str, body: Any) -> tuple[int, Any]:
        if subject not in self.subjects:
            return 404, {"error_code": 40401, "message": f"Subject '{subject}' not found."}
        id_ = self.ids.get(_key(body))
        if id_ not in self.subjects[subject]:
            return 404, {"error_code": 40403, "message": "Schema not found"}
        version = self.subjects[subject].index(id_) + 1
        return 200, {"subject": subject, "version": version, "id": id_, **self.schemas[id_]}


def _key(body: Any) -> Schema:
    kind = body.get("schemaType", "AVRO")
    text = body["schema"]
    canonical = text if kind == "PROTOBUF" else json.dumps(json.loads(text), sort_keys=True)
    return kind, canonical, json.dumps(body.get("references", []), sort_keys=True)
