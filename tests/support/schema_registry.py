"""A schema registry for tests: Confluent's REST contract in memory, on a free port.

Subjects, versions, ids, lookups, references, GUIDs, compatibility levels, and modes with imports of ids, as Confluent's
`KafkaSchemaRegistry` (8.x) has them. Schemas are compared as their registry does after parsing: as JSON. What it does not
have: compatibility checks beyond `refuse` and `incompatible`, which tests set; more than one context; permanent deletion.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

Schema = tuple[str, str, str]  # kind, canonical text, references
Answer = tuple[int, Any]


class SchemaRegistry:
    """See the module. `requests` are the lines that came; `failures` answers so many requests with 503 first."""

    def __init__(self, *, user: str | None = None, first_id: int = 1) -> None:
        self.schemas: dict[int, dict[str, Any]] = {}
        self.subjects: dict[str, dict[int, int]] = {}
        self.deleted: set[tuple[str, int]] = set()
        self.levels: dict[str | None, str] = {None: "BACKWARD"}
        self.modes: dict[str | None, str] = {None: "READWRITE"}
        self.requests: list[str] = []
        self.failures = 0
        self.proxy: Answer | None = None
        """What answers all requests instead of the registry."""
        self.refuse: str | None = None
        self.incompatible: set[str] = set()
        """Subjects whose new versions are refused while their level is not NONE."""
        self._first_id = first_id
        self._user = user
        self._lock = threading.Lock()
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

            def do_DELETE(self) -> None:
                self._answer("DELETE", None)

            def do_POST(self) -> None:
                self._answer("POST", self._body())

            def do_PUT(self) -> None:
                self._answer("PUT", self._body())

            def _body(self) -> Any:
                return json.loads(self.rfile.read(int(self.headers["Content-Length"])))

            def _answer(self, method: str, body: Any) -> None:
                registry.requests.append(f"{method} {self.path}")
                with registry._lock:
                    status, answer = registry.answer(
                        method, self.path, body, self.headers.get("Authorization")
                    )
                data = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, format: str, *args: Any) -> None:
                """Says nothing."""

        return Handler

    def answer(self, method: str, path: str, body: Any, authorization: str | None) -> Answer:
        if self.proxy is not None:
            return self.proxy
        if self.failures:
            self.failures -= 1
            return 503, {"error_code": 50301, "message": "busy"}
        if self._user is not None:
            expected = "Basic " + base64.b64encode(self._user.encode()).decode()
            if authorization != expected:
                return 401, {"error_code": 401, "message": "Unauthorized"}
        url = urlsplit(path)
        route, query = url.path, {k: v[-1] for k, v in parse_qs(url.query).items()}
        if route.startswith("/schemas/"):
            return self._schemas(route, query)
        if found := re.fullmatch(r"/(config|mode)(?:/([^/]+))?", route):
            subject = unquote(found[2]) if found[2] else None
            return (self._config if found[1] == "config" else self._mode)(method, subject, body, query)
        if route == "/subjects":
            return 200, [s for s in self.subjects if self._there(s)]
        if found := re.fullmatch(r"/subjects/([^/]+)/versions/(latest|\d+)", route):
            subject = unquote(found[1])
            if method == "DELETE":
                self.deleted.add((subject, int(found[2])))
                return 200, int(found[2])
            return self._version(subject, found[2], query)
        if found := re.fullmatch(r"/subjects/([^/]+)(/versions)?", route):
            subject = unquote(found[1])
            if method == "GET":
                there = self._there(subject)
                return (200, sorted(there)) if there else _no_subject(subject)
            return self._register(subject, body) if found[2] else self._lookup(subject, body, query)
        return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}

    # ---- schemas

    def _schemas(self, route: str, query: dict[str, str]) -> Answer:
        if found := re.fullmatch(r"/schemas/ids/(\d+)", route):
            id_ = int(found[1])
            if id_ not in self.schemas:
                return 404, {"error_code": 40403, "message": f"Schema {id_} not found"}
            return 200, self.schemas[id_]
        if found := re.fullmatch(r"/schemas/ids/(\d+)/versions", route):
            places = [
                {"subject": s, "version": v}
                for s in self.subjects
                for v, i in self._there(s, query).items()
                if i == int(found[1])
            ]
            return (200, places) if places else (404, {"error_code": 40403, "message": "Schema not found"})
        if found := re.fullmatch(r"/schemas/guids/([^/]+)(/ids)?", route):
            ids = [i for i, schema in self.schemas.items() if schema["guid"] == found[1]]
            if not ids:
                return 404, {"error_code": 40403, "message": "Schema not found"}
            return 200, [{"context": ".", "id": i} for i in ids] if found[2] else self.schemas[ids[0]]
        return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}

    def _there(self, subject: str, query: dict[str, str] | None = None) -> dict[int, int]:
        every = (query or {}).get("deleted") == "true"
        versions = self.subjects.get(subject, {}).items()
        return {v: i for v, i in versions if every or (subject, v) not in self.deleted}

    def _version(self, subject: str, version: str, query: dict[str, str]) -> Answer:
        versions = self._there(subject, query)
        if not versions:
            return _no_subject(subject)
        number = max(versions) if version == "latest" else int(version)
        if number not in versions:
            return 404, {"error_code": 40402, "message": f"Version {version} not found."}
        id_ = versions[number]
        return 200, {"subject": subject, "version": number, "id": id_, **self.schemas[id_]}

    def _register(self, subject: str, body: Any) -> Answer:
        if self.refuse is not None:
            return 409, {"error_code": 409, "message": self.refuse}
        mode, imported = self._mode_in_scope(subject), body.get("id", -1) >= 0
        if imported and mode != "IMPORT":
            return _forbidden(f"Subject {subject} in context . is not in import mode")
        if not imported and mode != "READWRITE":
            return _forbidden(f"Subject {subject} in context . is not in read-write mode")
        try:
            key = _key(body)
        except ValueError as e:
            return 422, {"error_code": 42201, "message": f"Invalid schema: {e}"}
        versions = self.subjects.get(subject, {})
        if imported:
            id_ = body["id"]
            if id_ in self.schemas and _key(self.schemas[id_]) != key:
                return _forbidden(f"Overwrite new schema with id {id_} in context . is not permitted.")
        else:
            same = [i for i, schema in self.schemas.items() if _key(schema) == key]
            id_ = same[0] if same else max([*self.schemas, self._first_id - 1]) + 1
            if id_ in self._there(subject).values():
                return 200, {"id": id_, "guid": self.schemas[id_]["guid"]}
            if subject in self.incompatible and self._level_in_scope(subject) != "NONE":
                return 409, {"error_code": 409, "message": "Schema being registered is incompatible"}
        self.schemas.setdefault(id_, _kept(body))
        number = body["version"] if imported and body.get("version") else max([0, *versions]) + 1
        self.subjects.setdefault(subject, {})[number] = id_
        return 200, {"id": id_, "guid": self.schemas[id_]["guid"]}

    def _lookup(self, subject: str, body: Any, query: dict[str, str]) -> Answer:
        there = self._there(subject, query)
        if not there:
            return _no_subject(subject)
        key = _key(body)
        for version, id_ in there.items():
            if _key(self.schemas[id_]) == key:
                return 200, {"subject": subject, "version": version, "id": id_, **self.schemas[id_]}
        return 404, {"error_code": 40403, "message": "Schema not found"}

    # ---- levels and modes

    def _level_in_scope(self, subject: str) -> str:
        return self.levels.get(subject) or self.levels[None]

    def _mode_in_scope(self, subject: str) -> str:
        return self.modes.get(subject) or self.modes[None]

    def _config(self, method: str, subject: str | None, body: Any, query: dict[str, str]) -> Answer:
        if method == "PUT":
            self.levels[subject] = body["compatibility"]
            return 200, body
        if subject not in self.levels and query.get("defaultToGlobal") != "true":
            return 404, {
                "error_code": 40408,
                "message": f"Subject '{subject}' does not have subject-level compatibility",
            }
        level = self.levels.get(subject) or self.levels[None]
        if method == "DELETE":
            del self.levels[subject]
        return 200, {"compatibilityLevel": level}

    def _mode(self, method: str, subject: str | None, body: Any, query: dict[str, str]) -> Answer:
        if method == "PUT":
            if body["mode"] == "IMPORT" and self._there(subject or "") and query.get("force") != "true":
                return _forbidden("Cannot import since found existing subjects")
            self.modes[subject] = body["mode"]
            return 200, body
        if subject not in self.modes and query.get("defaultToGlobal") != "true":
            return 404, {
                "error_code": 40409,
                "message": f"Subject '{subject}' does not have subject-level mode",
            }
        mode = {"mode": self.modes.get(subject) or self.modes[None]}
        if method == "DELETE":
            del self.modes[subject]
        return 200, mode


def _no_subject(subject: str) -> Answer:
    return 404, {"error_code": 40401, "message": f"Subject '{subject}' not found."}


def _forbidden(why: str) -> Answer:
    return 422, {"error_code": 42205, "message": why}


def _kept(body: Any) -> dict[str, Any]:
    kept = {"schema": body["schema"], "references": body.get("references", [])}
    if body.get("schemaType", "AVRO") != "AVRO":
        kept["schemaType"] = body["schemaType"]
    kept |= {name: body[name] for name in ("metadata", "ruleSet") if body.get(name)}
    digest = hashlib.md5("\0".join(_key(body)).encode(), usedforsecurity=False).digest()
    return {**kept, "guid": str(uuid.UUID(bytes=digest))}


def _key(body: Any) -> Schema:
    kind = body.get("schemaType", "AVRO")
    text = body["schema"]
    canonical = text if kind == "PROTOBUF" else json.dumps(json.loads(text), sort_keys=True)
    rest = {name: body[name] for name in ("metadata", "ruleSet") if body.get(name)}
    return kind, canonical, json.dumps([body.get("references", []), rest], sort_keys=True)
