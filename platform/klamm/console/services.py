"""An HTTP client for a cluster's services: Connect's REST, the schema registry, the mirror's REST, metrics pages."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import ssl
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

import aiohttp

from klamm.console.errors import Upstream
from klamm.console.settings import Endpoint

TIMEOUT_S: Final = 95.0
"""A worker answers within 90 s, or says that it cannot."""
CONNECT_S: Final = 5.0
ANSWER_MAX: Final = 64 << 20
EVENTS_MAX: Final = 1_000
SILENCE_S: Final = 0.5
PAUSE_S: Final = 0.15
"""Events that are there come in one go, so that so short a pause after some of them is the end."""


class Service:
    """A service at one address. `what` names it in sentences."""

    def __init__(self, endpoint: Endpoint, what: str) -> None:
        self.url = endpoint.url
        self._what = what
        self._endpoint = endpoint
        self._session: aiohttp.ClientSession | None = None
        self._tls: ssl.SSLContext | bool = True

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            if self._endpoint.url.startswith("https:") and self._endpoint.cacert:
                try:
                    self._tls = ssl.create_default_context(cafile=self._endpoint.cacert)
                except (OSError, ssl.SSLError) as e:
                    raise Upstream(
                        f"{self._endpoint.cacert}: no certificates that can be read ({e})"
                    ) from None
            timeout = aiohttp.ClientTimeout(total=TIMEOUT_S, connect=CONNECT_S)
            self._session = aiohttp.ClientSession(timeout=timeout)
        return self._session

    async def close(self) -> None:
        """Closes its connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    def _login(self, caller: str | None) -> dict[str, str]:
        if self._endpoint.token is not None:
            return {"Authorization": f"Bearer {self._endpoint.token.value}"}
        if self._endpoint.user is not None:
            password = self._endpoint.password.value if self._endpoint.password else ""
            text = base64.b64encode(f"{self._endpoint.user}:{password}".encode()).decode()
            return {"Authorization": f"Basic {text}"}
        return {"Authorization": caller} if caller else {}

    async def text(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        caller: str | None = None,
        timeout_s: float | None = None,
    ) -> str:
        """Returns the text of an answer. `caller`: an Authorization header, where none is configured.

        Raises Upstream with the service's own sentence.
        """
        session = self._open()
        data = None if body is None else json.dumps(body).encode()
        headers = {"Accept": "application/json, text/plain", **self._login(caller)}
        if data is not None:
            headers["Content-Type"] = "application/json"
        more: dict[str, Any] = {"timeout": aiohttp.ClientTimeout(total=timeout_s)} if timeout_s else {}
        try:
            async with session.request(
                method,
                self.url + path,
                data=data,
                headers=headers,
                ssl=self._tls,
                allow_redirects=False,
                **more,
            ) as answer:
                raw = await answer.content.read(ANSWER_MAX)
                while not answer.content.at_eof() and len(raw) < ANSWER_MAX:
                    raw += await answer.content.read(ANSWER_MAX - len(raw))
                status, reason = answer.status, answer.reason
        except (TimeoutError, aiohttp.ClientError, OSError) as e:
            raise Upstream(f"{self._what} at {self.url} does not answer: {_why(e)}") from None
        text = raw.decode(errors="replace")
        if status >= 300:
            raise Upstream(f"{self._what}: {_said(text) or f'HTTP {status} {reason}'}", status)
        return text

    async def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        caller: str | None = None,
        timeout_s: float | None = None,
    ) -> Any:
        """Returns the decoded answer; None for an empty one."""
        text = await self.text(method, path, body, caller=caller, timeout_s=timeout_s)
        try:
            return json.loads(text) if text.strip() else None
        except ValueError:
            raise Upstream(
                f"{self._what} at {self.url} answers {path} with something that is not JSON"
            ) from None

    async def events(self, path: str, *, caller: str | None = None) -> list[dict[str, Any]]:
        """Returns the server-sent events that are there already: the stream goes on, so a moment of silence is the end."""
        session = self._open()
        headers = {"Accept": "text/event-stream", **self._login(caller)}
        found: list[dict[str, Any]] = []
        event: dict[str, Any] = {}
        try:
            async with session.get(
                self.url + path, headers=headers, ssl=self._tls, allow_redirects=False
            ) as answer:
                if answer.status != HTTPStatus.OK:
                    raise Upstream(
                        f"{self._what}: {_said(await answer.text()) or answer.reason}", answer.status
                    )
                while len(found) < EVENTS_MAX:
                    async with asyncio.timeout(PAUSE_S if found else SILENCE_S):
                        raw = await answer.content.readline()
                    if not raw:
                        break
                    name, _, text = raw.decode(errors="replace").rstrip("\r\n").partition(": ")
                    if name == "event":
                        event["kind"] = text
                    elif name == "data":
                        event |= json.loads(text)
                    elif not name and event:
                        found.append(event)
                        event = {}
        except TimeoutError:
            return found
        except (aiohttp.ClientError, OSError, ValueError) as e:
            raise Upstream(f"{self._what} at {self.url} does not answer: {_why(e)}") from None
        return found


def _why(error: Exception) -> str:
    if isinstance(error, aiohttp.ClientConnectorError) and error.os_error.errno:
        return os.strerror(error.os_error.errno).lower()
    return str(error) or type(error).__name__


def _said(text: str) -> str:
    try:
        body = json.loads(text)
    except ValueError:
        return ""
    return str(body.get("message", "")) if isinstance(body, Mapping) else ""
