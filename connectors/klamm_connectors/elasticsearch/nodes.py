"""Kept connections to the nodes of a cluster, in turns. A node that fails is left out for a while.

Requests come from several threads; each takes a connection of its own and gives it back. Nothing is sent twice: the
caller decides about a request that failed.
"""

from __future__ import annotations

import contextlib
import http.client
import random
import select
import ssl
import threading
import time
import urllib.parse
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

_REST_S: Final = 1.0
_REST_MAX_S: Final = 30.0


class Answer(NamedTuple):
    """An answer of a node; `product` is what it says it is."""

    status: int
    body: bytes
    product: str


class Node:
    """The address of a node, its idle connections, and how it fared. `Nodes` guards it by its lock."""

    def __init__(self, url: str) -> None:
        parts = urllib.parse.urlsplit(url)
        self.url = url
        self.secure = parts.scheme == "https"
        self.host = parts.hostname or ""
        self.port = parts.port or (443 if self.secure else 80)
        self.path = parts.path.rstrip("/")
        self.idle: list[http.client.HTTPConnection] = []
        self.failures = 0
        self.rests_until = 0.0


class Nodes:
    """The nodes. `context` is for those with https; a connection must be there within `connect_timeout_s`."""

    def __init__(
        self,
        urls: Sequence[str],
        *,
        context: ssl.SSLContext | None,
        connect_timeout_s: float,
        headers: Mapping[str, str],
    ) -> None:
        self._nodes = [Node(url) for url in urls]
        self._context = context
        self._connect_timeout_s = connect_timeout_s
        self._headers = dict(headers)
        self._lock = threading.Lock()
        self._closed = False
        self._turn = random.randrange(len(self._nodes))

    def ask(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str], read_timeout_s: float
    ) -> Answer:
        """Sends one request to one node. Raises OSError (TimeoutError, ssl.SSLError) or HTTPException without an answer."""
        node = self._choose(time.monotonic())
        connection: http.client.HTTPConnection | None = None
        try:
            connection = self._connection(node)
            assert connection.sock is not None
            connection.sock.settimeout(read_timeout_s)
            whole = _send(connection, method, node.path + path, body, {**self._headers, **headers})
            response = connection.getresponse()
            answer = Answer(response.status, response.read(), response.headers.get("X-Elastic-Product", ""))
            if not whole:
                connection.close()
        except (OSError, http.client.HTTPException):
            if connection is not None:
                connection.close()
            with self._lock:
                node.failures += 1
                node.rests_until = time.monotonic() + min(
                    _REST_S * 2 ** min(node.failures - 1, 10), _REST_MAX_S
                )
            raise
        with self._lock:
            node.failures, node.rests_until = 0, 0.0
            if self._closed:
                connection.close()
            elif connection.sock is not None:  # the node keeps it open
                node.idle.append(connection)
        return answer

    def close(self) -> None:
        """Closes the idle connections; those in use are closed when their answer is there."""
        with self._lock:
            self._closed = True
            for node in self._nodes:
                while node.idle:
                    node.idle.pop().close()

    def _choose(self, now: float) -> Node:
        """Returns the next node that does not rest; if all rest, the one that rests the shortest."""
        with self._lock:
            self._turn += 1
            turns = [self._nodes[(self._turn + i) % len(self._nodes)] for i in range(len(self._nodes))]
            return next((n for n in turns if n.rests_until <= now), min(turns, key=lambda n: n.rests_until))

    def _connection(self, node: Node) -> http.client.HTTPConnection:
        while True:
            with self._lock:
                kept = node.idle.pop() if node.idle else None
            if kept is None:
                return self._connect(node)
            if not _closed_by_peer(kept):
                return kept
            kept.close()

    def _connect(self, node: Node) -> http.client.HTTPConnection:
        timeout = self._connect_timeout_s
        connection = (
            http.client.HTTPSConnection(node.host, node.port, timeout=timeout, context=self._context)
            if node.secure
            else http.client.HTTPConnection(node.host, node.port, timeout=timeout)
        )
        try:
            connection.connect()
        except BaseException:
            with contextlib.suppress(OSError):
                connection.close()
            raise
        return connection


def _send(
    connection: http.client.HTTPConnection,
    method: str,
    path: str,
    body: bytes | None,
    headers: dict[str, str],
) -> bool:
    """Sends a request. Returns False if the node stopped reading it: it may have answered all the same, that it is too big."""
    try:
        connection.request(method, path, body, headers)
    except (BrokenPipeError, ConnectionResetError):
        return False
    return True


def _closed_by_peer(connection: http.client.HTTPConnection) -> bool:
    """Returns whether an idle connection has something to read, which can only be its end."""
    if connection.sock is None:
        return True
    poll = select.poll()
    poll.register(connection.sock, select.POLLIN)
    return bool(poll.poll(0))
