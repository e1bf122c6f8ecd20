"""The key set that tokens are checked with, read again at intervals in a thread: a slow endpoint holds nobody up.

A key set that was read once stays until a newer one is there. A token with an unknown key id has it read at once, at most
every `UNKNOWN_S`: identity providers change their keys without notice.
"""

from __future__ import annotations

import asyncio
import logging
import urllib.parse
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Final

from klamm_broker.security.sasl.jwt import KeysInvalid, read_keys

if TYPE_CHECKING:
    from joserfc.jwk import KeySet

log = logging.getLogger(__name__)

REQUEST_S: Final = 30.0
BYTES_MAX: Final = 1 << 20
"""A key set has some kilobytes; the server of a wrong address may send anything."""
UNKNOWN_S: Final = 10.0


class KeyFile:
    """`keys` is the newest key set, None before the first. Event loop's thread only."""

    def __init__(
        self,
        url: str,
        loop: asyncio.AbstractEventLoop,
        *,
        refresh_s: float,
        backoff_s: float,
        backoff_max_s: float,
    ) -> None:
        self.keys: KeySet | None = None
        self._url = url
        self._loop = loop
        self._refresh_s = refresh_s
        self._backoff = backoff_s, backoff_max_s
        self._pause_s = backoff_s
        self._read_s = -UNKNOWN_S
        self._timer: asyncio.TimerHandle | None = None
        self._reading: asyncio.Future[KeySet] | None = None
        self._closed = False
        self._read()

    def expedite(self, key_id: str) -> None:
        """Read the key set now, because a token names a key that is not in it."""
        if self._loop.time() - self._read_s >= UNKNOWN_S:
            log.info("a token names the unknown key %r: %s is read again", key_id[:64], self._url)
            self._read()

    def close(self) -> None:
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()

    def _read(self) -> None:
        if self._reading is not None or self._closed:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._read_s = self._loop.time()
        self._reading = self._loop.run_in_executor(None, _load, self._url)
        self._reading.add_done_callback(self._done)

    def _done(self, reading: asyncio.Future[KeySet]) -> None:
        self._reading = None
        error = None if reading.cancelled() else reading.exception()
        if self._closed or reading.cancelled():
            return
        if error is None:
            self.keys = reading.result()
            self._pause_s, pause_s = self._backoff[0], self._refresh_s
            log.info("the key set %s has %d keys", self._url, len(self.keys.keys))
        else:
            pause_s, self._pause_s = self._pause_s, min(2 * self._pause_s, self._backoff[1])
            log.error("the key set %s cannot be read, again in %g s: %s", self._url, pause_s, error)
        self._timer = self._loop.call_later(pause_s, self._read)


def _load(url: str) -> KeySet:
    if url.startswith("file:"):
        document = Path(urllib.parse.unquote(urllib.parse.urlsplit(url).path)).read_bytes()
    else:
        with urllib.request.urlopen(url, timeout=REQUEST_S) as answer:  # noqa: S310 - the scheme was checked
            document = answer.read(BYTES_MAX + 1)
    if len(document) > BYTES_MAX:
        raise KeysInvalid(f"it has more than {BYTES_MAX} bytes")
    return read_keys(document)
