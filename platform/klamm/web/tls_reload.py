"""The TLS context of a server, which takes over changed key and trust stores.

A file's change is noticed within LOOK_S. Handshakes that begin later have the new certificate. Stores that cannot be used change
nothing, and the log says so.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from klamm_base.errors import ConfigError
from klamm_base.tls import TlsSettings

log = logging.getLogger(__name__)

LOOK_S: Final = 2.0
_FILES: Final = tuple(
    f"ssl.{what}.location" for what in ("keystore", "truststore", "key", "certificate", "ca")
)
_Stamps = dict[str, tuple[int, int, int] | None]


class TlsReload:
    """Holds `context`, in which each handshake takes the newest one. Raises ConfigError."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._properties = dict(properties)
        self._stamps = self._look()
        self._newest = self._load()
        self.context = self._load()
        self.context.sni_callback = self._take_newest  # called for clients without SNI, too
        self._watching: asyncio.Task[None] | None = None

    def watch(self) -> None:
        """Begins to look at the files; needs a running loop."""
        if self._watching is None:
            self._watching = asyncio.create_task(self._watch(), name="tls files")

    def close(self) -> None:
        if self._watching is not None:
            self._watching.cancel()

    def reload(self) -> None:
        """Loads the files. Raises ConfigError, and goes on with what it has, for those that cannot be used."""
        self._stamps = self._look()
        self._newest = self._load()

    def refresh(self) -> None:
        """Looks at the files once, and loads them if one has changed."""
        if self._look() == self._stamps:
            return
        try:
            self.reload()
        except ConfigError as e:
            log.error("%s; the certificates stay as they were", e)  # noqa: TRY400 - a sentence for the operator
        else:
            log.info("the certificates were read again")

    def _load(self) -> ssl.SSLContext:
        return TlsSettings.from_properties(self._properties).server_context()

    def _take_newest(self, connection: ssl.SSLObject, _host: str | None, _context: ssl.SSLContext) -> None:
        connection.context = self._newest

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            self.refresh()

    def _look(self) -> _Stamps:
        return {name: _stamp(Path(path)) for name in _FILES if (path := self._properties.get(name))}


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
