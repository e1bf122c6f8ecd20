"""Headers that every answer gets: those of `response.http.headers.config`, and CORS
(`access.control.allow.*`).

Both work as Jetty's handlers do in Kafka's workers. Pure, except that dates need the clock.
"""

from __future__ import annotations

import csv
import re
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from email.utils import formatdate
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:  # every command reads worker properties; few need a web framework
    from aiohttp import web


Signal = Callable[["web.Request", "web.StreamResponse"], Awaitable[None]]

HEADERS_CONFIG: Final = "response.http.headers.config"
ACTIONS: Final = ("set", "add", "setDate", "addDate")
DEFAULT_METHODS: Final = ("GET", "POST", "HEAD")
ALLOWED_HEADERS: Final = "Content-Type"
MAX_AGE_S: Final = 60
_PLAIN_ORIGIN: Final = re.compile(r"[A-Za-z]+://[A-Za-z0-9.:\[\]-]+")
_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


@dataclass(frozen=True, slots=True)
class HeaderRule:
    """A rule for a header of answers: `set` replaces an earlier value, `add` does not; a date's value is ms
    from now.
    """

    action: str
    name: str
    value: str

    def apply(self, response: web.StreamResponse) -> None:
        value = self.value
        if self.action.endswith("Date"):
            value = formatdate(time.time() + int(value) / 1000, usegmt=True)
        if self.action.startswith("set"):
            response.headers[self.name] = value
        else:
            response.headers.add(self.name, value)


def parse_rules(text: str) -> list[HeaderRule]:
    """Parses `response.http.headers.config`. Raises ValueError with the reason."""
    if not text.strip():
        return []
    return [_rule(item.strip()) for item in next(csv.reader([text], skipinitialspace=True)) if item.strip()]


def _rule(text: str) -> HeaderRule:
    action, _, rest = text.partition(" ")
    name, colon, value = rest.partition(":")
    name, value = name.strip(), value.strip()
    if action not in ACTIONS:
        raise ValueError(f"{text!r} does not begin with one of {', '.join(ACTIONS)}")
    if not colon or not _NAME.fullmatch(name):
        raise ValueError(f"{text!r} does not have the form ACTION NAME: VALUE")
    if action.endswith("Date") and not re.fullmatch(r"-?\d{1,15}", value):
        raise ValueError(f"{text!r}: {action} needs a number of milliseconds")
    if any(ord(c) < 32 for c in value):
        raise ValueError(f"{text!r}: a header's value is one line")
    return HeaderRule(action, name, value)


class Cors:
    """The rules for cross-origin requests: origins that may use the API, and methods."""

    def __init__(self, origins: str, methods: str) -> None:
        self._patterns = [_origin(part.strip()) for part in origins.split(",") if part.strip()]
        self._methods = [m.strip().upper() for m in methods.split(",") if m.strip()] or list(DEFAULT_METHODS)

    def allows(self, origin: str) -> bool:
        return any(pattern.fullmatch(origin) for pattern in self._patterns)

    def apply(self, request: web.Request, response: web.StreamResponse) -> None:
        """Sets the headers of an answer, also of the answer to a preflight request."""
        response.headers.add("Vary", "Origin")
        origin = request.headers.get("Origin", "")
        if not origin or not self.allows(origin):
            return
        wanted = request.headers.get("Access-Control-Request-Method")
        if request.method == "OPTIONS" and wanted is not None:
            response.headers["Access-Control-Allow-Methods"] = ",".join(self._methods)
            response.headers["Access-Control-Allow-Headers"] = ALLOWED_HEADERS
            response.headers["Access-Control-Max-Age"] = str(MAX_AGE_S)
        response.headers["Access-Control-Allow-Origin"] = origin


def _origin(text: str) -> re.Pattern[str]:
    """Parses `*`, a literal origin, or a regular expression. Raises ValueError for anything else."""
    if text == "*":
        text = ".*"
    elif _PLAIN_ORIGIN.fullmatch(text):
        text = re.escape(text)  # Jetty takes its dots for any character
    try:
        return re.compile(text, re.IGNORECASE)
    except re.error as e:
        raise ValueError(f"{text!r} is neither an origin nor a regular expression: {e}") from None


def answer_headers(rules: Sequence[HeaderRule], cors: Cors | None) -> Signal:
    """Returns the signal handler that sets the headers right before an answer is sent, also of streams and errors."""

    async def on_prepare(request: web.Request, response: web.StreamResponse) -> None:
        if cors is not None:
            cors.apply(request, response)
        for rule in rules:
            rule.apply(response)

    return on_prepare
