"""A small client for Elasticsearch's bulk API: one kept connection, retries with back-off, refused documents apart.

Elasticsearch answers per document. 429 and 5xx (of the request, or of a document) pass: these are sent again, twice as
long a pause each time, until `retry_s` is over. Other errors are the document's own fault and are handed back.
"""

from __future__ import annotations

import base64
import http.client
import random
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import unquote, urlsplit

import orjson

from klamm_base.errors import ConfigError, KlammError

FIRST_PAUSE_S: Final = 0.1
LONGEST_PAUSE_S: Final = 10.0
_PASSING: Final = frozenset({429, 502, 503, 504})
_CONFLICT: Final = 409  # `create` of a document that is there: written by the run before

Pair = tuple[bytes, bytes]


class TargetError(KlammError):
    """Elasticsearch cannot be reached, or refuses whole requests. The job may try again."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where and as whom."""

    hosts: tuple[str, ...]
    authorization: str | None = field(default=None, repr=False)
    ca_file: str | None = None
    verify: bool = True
    timeout_s: float = 60.0
    retry_s: float = 300.0


@dataclass(frozen=True, slots=True)
class Refused:
    """A document that Elasticsearch will never take."""

    id: str
    index: str
    reason: str
    document: bytes


def endpoint(options: Mapping[str, str]) -> Endpoint:
    """The connection's settings among a writer's options (`hosts`, `user`, `password`, `api_key`, ...)."""
    hosts, credentials = [], None
    for text in options.get("hosts", "").split(","):
        if not text.strip():
            continue
        url = urlsplit(text.strip())
        if url.scheme not in {"http", "https"} or not url.hostname:
            raise ConfigError(
                "hosts: write URLs such as http://127.0.0.1:9200, several by commas", key="hosts"
            )
        hosts.append(f"{url.scheme}://{url.hostname}:{url.port or 9200}{url.path.rstrip('/')}")
        if url.username:
            credentials = (unquote(url.username), unquote(url.password or ""))
    if not hosts:
        raise ConfigError(
            "hosts is missing: URLs of Elasticsearch, such as http://127.0.0.1:9200", key="hosts"
        )
    if user := options.get("user"):
        credentials = (user, options.get("password", ""))
    authorization = None
    if key := options.get("api_key"):
        authorization = f"ApiKey {key}"
    elif credentials is not None:
        authorization = "Basic " + base64.b64encode(":".join(credentials).encode()).decode()
    return Endpoint(
        hosts=tuple(hosts),
        authorization=authorization,
        ca_file=options.get("ca_file") or None,
        verify=options.get("verify", "true").lower() != "false",
        timeout_s=_seconds(options, "timeout.ms", 60_000),
        retry_s=_seconds(options, "retry.timeout.ms", 300_000),
    )


def _seconds(options: Mapping[str, str], name: str, default: int) -> float:
    text = options.get(name, str(default))
    if not text.isdecimal():
        raise ConfigError(f"{name}={text}: use milliseconds", key=name)
    return int(text) / 1000


def sort_out(answer: Mapping[str, Any], sent: list[Pair]) -> tuple[list[Pair], list[Refused]]:
    """From a bulk answer: documents to be sent again, and those that were refused."""
    again: list[Pair] = []
    refused: list[Refused] = []
    if not answer.get("errors"):
        return again, refused
    for item, pair in zip(answer["items"], sent, strict=True):
        operation, result = next(iter(item.items()))
        status = int(result.get("status", 500))
        if status < 300 or (operation == "create" and status == _CONFLICT):
            continue
        if status in _PASSING:
            again.append(pair)
        else:
            reason = _reason(result.get("error"))
            refused.append(Refused(str(result.get("_id")), str(result.get("_index")), reason, pair[1]))
    return again, refused


def _reason(error: Any) -> str:
    if not isinstance(error, Mapping):
        return str(error)
    cause = error.get("caused_by")
    behind = f": {cause.get('reason')}" if isinstance(cause, Mapping) and cause.get("reason") else ""
    return f"{error.get('type')}: {error.get('reason')}{behind}"


class BulkClient:
    """One connection; the next host is tried when one does not answer. Use as a context."""

    def __init__(self, where: Endpoint) -> None:
        self._where = where
        self._host = 0
        self._connection: http.client.HTTPConnection | None = None

    def send(self, pairs: list[Pair]) -> list[Refused]:
        """Write documents; returns when each is written or refused. Raises TargetError."""
        refused: list[Refused] = []
        pause, deadline = FIRST_PAUSE_S, time.monotonic() + self._where.retry_s
        while pairs:
            why = ""
            try:
                status, body = self._post(b"\n".join(line for pair in pairs for line in pair) + b"\n")
            except (OSError, http.client.HTTPException) as e:
                self._next_host()
                status, why = 503, str(e) or type(e).__name__
            if status in _PASSING:
                why = why or f"it answers {status}"
            elif status != 200:
                raise TargetError(f"{self._name()} refuses the bulk request with {status}: {_short(body)}")
            else:
                pairs, bad = sort_out(orjson.loads(body), pairs)
                refused += bad
                why = "it is overloaded"
            if pairs:
                if time.monotonic() > deadline:
                    raise TargetError(
                        f"{self._name()}: {why} for {self._where.retry_s:.0f} s; {len(pairs)} documents wait"
                    )
                time.sleep(pause * random.uniform(0.5, 1.0))
                pause = min(pause * 2, LONGEST_PAUSE_S)
        return refused

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def _name(self) -> str:
        return self._where.hosts[self._host]

    def _post(self, body: bytes) -> tuple[int, bytes]:
        if self._connection is None:
            self._connection = self._open()
        headers = {"Content-Type": "application/x-ndjson"}
        if self._where.authorization is not None:
            headers["Authorization"] = self._where.authorization
        path = urlsplit(self._name()).path
        self._connection.request("POST", f"{path}/_bulk", body, headers)
        answer = self._connection.getresponse()
        return answer.status, answer.read()

    def _open(self) -> http.client.HTTPConnection:
        url = urlsplit(self._name())
        assert url.hostname is not None
        if url.scheme == "http":
            return http.client.HTTPConnection(url.hostname, url.port, timeout=self._where.timeout_s)
        context = ssl.create_default_context(cafile=self._where.ca_file)
        if not self._where.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return http.client.HTTPSConnection(
            url.hostname, url.port, timeout=self._where.timeout_s, context=context
        )

    def _next_host(self) -> None:
        self._close()
        self._host = (self._host + 1) % len(self._where.hosts)

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _short(body: bytes) -> str:
    try:
        return _reason(orjson.loads(body).get("error"))[:300]
    except (ValueError, AttributeError):
        return body[:200].decode("utf-8", "replace")
