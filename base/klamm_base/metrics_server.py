"""`GET /metrics` on a port of its own, in a few lines of HTTP/1.1: the broker imports no web framework.

A server may have pages of JSON beside it.

Each connection gets one answer. The text is made in slices, between which the event loop serves requests: a
scrape of ten thousand partitions delays each request by a millisecond at most. A peer that does not read is given
up after a while.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

from klamm_base.errors import KlammError
from klamm_base.metrics_text import CONTENT_TYPE, Family, lines

if TYPE_CHECKING:
    import ssl

log = logging.getLogger(__name__)

REQUEST_BYTES_MAX: Final = 16 * 1024
REQUEST_S: Final = 5.0
ANSWER_S: Final = 30.0
SCRAPES_MAX: Final = 8
LINES_A_SLICE: Final = 250
"""The lines of one slice. They take about half a millisecond."""


class MetricsServer:
    """A server of the text of `families`, and of JSON by path. It calls them for each request.

    With `tls` it speaks HTTPS. With `tokens`, SHA-256 hashes in hex, it answers whoever shows one of these tokens.
    """

    def __init__(
        self,
        families: Callable[[], Iterator[Family]],
        pages: Mapping[str, Callable[[], bytes]] | None = None,
        *,
        tls: ssl.SSLContext | None = None,
        tokens: Collection[str] = (),
    ) -> None:
        self._families = families
        self._pages = dict(pages or {})
        self._tls = tls
        self._tokens = [token.lower() for token in tokens]
        self._server: asyncio.Server | None = None
        self._scrapes = 0

    async def bind(self, host: str, port: int) -> int:
        """Takes the port and returns it (0 takes any free port); nothing is answered before `serve`. Raises KlammError."""
        try:
            self._server = await asyncio.start_server(
                self._serve, host, port, limit=REQUEST_BYTES_MAX, ssl=self._tls, start_serving=False
            )
        except OSError as e:
            why = e.strerror or e
            if isinstance(e, socket.gaierror) or e.errno == errno.EADDRNOTAVAIL:
                text = f"klamm.metrics.host={host}: cannot listen there: {why}; give an address of this machine, or 0.0.0.0"
            else:
                text = f"klamm.metrics.port={port}: cannot listen on {host}: {why}; give another port, or -1 for none"
            raise KlammError(text) from e
        return int(self._server.sockets[0].getsockname()[1])

    async def bind_unix(self, path: Path) -> None:
        """Takes a Unix socket instead of a port. The folder's mode decides who may reach it. Raises KlammError."""
        try:
            self._server = await asyncio.start_unix_server(
                self._serve, path, limit=REQUEST_BYTES_MAX, start_serving=False
            )
        except OSError as e:
            raise KlammError(f"cannot listen on {path}: {e.strerror or e}") from e

    async def text(self) -> Iterator[str]:
        """Returns the lines of an answer."""
        return lines(self._families())

    async def serve(self) -> None:
        """Begins to answer."""
        assert self._server is not None, "bind comes first"
        await self._server.start_serving()

    def close(self) -> None:
        """Stops taking connections. An answer that is under way ends with the loop."""
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(REQUEST_S):
                head = await reader.readuntil(b"\r\n\r\n")
            async with asyncio.timeout(ANSWER_S):
                await self._answer(head, writer)
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as e:
            log.debug("a scrape was given up: %r", e)
        except Exception:
            log.exception("a scrape failed")
        finally:
            writer.transport.abort() if writer.transport.get_write_buffer_size() else writer.close()

    async def _answer(self, head: bytes, writer: asyncio.StreamWriter) -> None:
        first, *headers = head.decode("latin-1").split("\r\n")
        method, _, rest = first.partition(" ")
        path = rest.partition(" ")[0].partition("?")[0]
        if self._tokens and not self._is_known(headers):
            await _say(
                writer, "401 Unauthorized", "a bearer token is needed\n", "WWW-Authenticate: Bearer\r\n"
            )
        elif method not in {"GET", "HEAD"}:
            await _say(
                writer, "405 Method Not Allowed", "GET /metrics is what there is\n", "Allow: GET, HEAD\r\n"
            )
        elif path in self._pages:
            body = self._pages[path]() if method == "GET" else b""
            writer.write(_head("200 OK", "application/json").encode() + body)
            await writer.drain()
        elif path != "/metrics":
            await _say(writer, "404 Not Found", "the metrics are at /metrics\n")
        elif self._scrapes >= SCRAPES_MAX:
            await _say(writer, "503 Service Unavailable", f"{SCRAPES_MAX} scrapes are under way\n")
        else:
            self._scrapes += 1
            try:
                await self._scrape(writer, body=method == "GET")
            finally:
                self._scrapes -= 1

    def _is_known(self, headers: list[str]) -> bool:
        import hashlib  # OpenSSL, which most servers do without
        import hmac

        given = (line.partition(":") for line in headers)
        value = next((v.strip() for name, _, v in given if name.strip().lower() == "authorization"), "")
        kind, _, token = value.partition(" ")
        shown = hashlib.sha256(token.strip().encode("latin-1")).hexdigest()
        return kind.lower() == "bearer" and any(hmac.compare_digest(shown, t) for t in self._tokens)

    async def _scrape(self, writer: asyncio.StreamWriter, *, body: bool) -> None:
        text = await self.text() if body else iter(())
        writer.write(_head("200 OK", CONTENT_TYPE).encode())
        while part := "".join(islice(text, LINES_A_SLICE)):
            writer.write(part.encode())
            await writer.drain()
            await asyncio.sleep(0)  # requests come first
        await writer.drain()


def url_of(host: str, port: int, scheme: str = "http") -> str:
    """Returns the address of the metrics, for a ready line."""
    shown = "127.0.0.1" if host == "localhost" else host
    return f"{scheme}://[{shown}]:{port}/metrics" if ":" in shown else f"{scheme}://{shown}:{port}/metrics"


async def _say(writer: asyncio.StreamWriter, status: str, text: str, headers: str = "") -> None:
    writer.write((_head(status, "text/plain; charset=utf-8", headers) + text).encode())
    await writer.drain()


def _head(status: str, content_type: str, headers: str = "") -> str:
    return f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\n{headers}Connection: close\r\n\r\n"
