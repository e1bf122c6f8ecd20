"""The address and login of Elasticsearch, and one kept connection to it."""

from __future__ import annotations

import base64
import http.client
import logging
import ssl
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote, unquote, urlsplit

import orjson

from klamm_base.errors import ConfigError

log = logging.getLogger(__name__)

_CAUSES: Final = 4
"""A message names up to this many causes of an error."""
_NAMES: Final = 5
"""Indices in one refresh: a name has up to 255 bytes, three times as many when quoted, and Elasticsearch takes 4,096 bytes of a request's first line."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Addresses and login of a server."""

    hosts: tuple[str, ...]
    authorization: str | None = field(default=None, repr=False)
    ca_file: str | None = None
    verify: bool = True
    timeout_s: float = 60.0
    retry_s: float = 300.0


def endpoint(options: Mapping[str, str]) -> Endpoint:
    """Reads the connection's settings from a writer's options (`hosts`, `user`, `password`, `api_key`, ...)."""
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


class Connection:
    """A connection that opens on demand. Call `next_host` after a host that did not answer."""

    def __init__(self, where: Endpoint) -> None:
        self._where = where
        self._host = 0
        self._connection: http.client.HTTPConnection | None = None

    @property
    def name(self) -> str:
        return self._where.hosts[self._host]

    def post(self, path: str, data: bytes | memoryview, content_type: str) -> tuple[int, bytes]:
        """Sends a POST and returns status and body. Raises OSError and HTTPException."""
        return self.request("POST", path, data, content_type)

    def request(
        self, method: str, path: str, data: bytes | memoryview | None, content_type: str = "application/json"
    ) -> tuple[int, bytes]:
        """Sends a request and returns status and body. Raises OSError and HTTPException."""
        if self._connection is None:
            self._connection = self._open()
        headers = {} if data is None else {"Content-Type": content_type, "Content-Length": str(len(data))}
        if self._where.authorization is not None:
            headers["Authorization"] = self._where.authorization
        self._connection.request(method, urlsplit(self.name).path + path, data, headers)
        answer = self._connection.getresponse()
        return answer.status, answer.read()

    def next_host(self) -> None:
        self.close()
        self._host = (self._host + 1) % len(self._where.hosts)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _open(self) -> http.client.HTTPConnection:
        url = urlsplit(self.name)
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


def refresh(where: Endpoint, indices: Collection[str]) -> None:
    """Makes what was written to these indices searchable now.

    The documents are safe without it, and searchable after the index's own interval. So a refresh that is refused (it needs
    the privilege `maintenance`) or gets no answer is told, and fails nothing.
    """
    names = sorted(quote(name, safe="") for name in indices)
    connection = Connection(where)
    try:
        for first in range(0, len(names), _NAMES):
            path = f"/{','.join(names[first : first + _NAMES])}/_refresh?ignore_unavailable=true"
            status, answer = connection.request("POST", path, None)
            if status != 200:
                log.warning("%s: refresh: %s: %s", connection.name, status, short(answer))
                return
    except (OSError, http.client.HTTPException) as e:
        log.warning("%s: refresh: %s", connection.name, str(e) or type(e).__name__)
    finally:
        connection.close()


def reason(error: Any) -> str:
    """Returns Elasticsearch's error with its causes, in one line."""
    if not isinstance(error, Mapping):
        return str(error)
    found = [f"{error.get('type')}: {error.get('reason')}"]
    cause = error.get("caused_by")
    while isinstance(cause, Mapping) and len(found) < _CAUSES:
        if cause.get("reason"):
            found.append(str(cause["reason"]))
        cause = cause.get("caused_by")
    return ": ".join(found)


def short(body: bytes) -> str:
    """Shortens an answer that is an error, for use in a sentence."""
    try:
        return reason(orjson.loads(body).get("error"))[:300]
    except (ValueError, AttributeError):
        return body[:200].decode("utf-8", "replace")
