"""The login form."""

from __future__ import annotations

import base64
import re
import time
from typing import Final
from urllib.parse import urlsplit

from aiohttp import web

from klamm.console.audit import audit
from klamm.console.errors import Busy
from klamm.console.visit import Visit

# Browsers leave tabs and line ends out of an address, and take a backslash for a slash.
_CHANGED_BY_BROWSERS: Final = re.compile(r"[\x00-\x20\x7f-\x9f\\]")


def _target(text: str) -> str:
    """Returns a path of this console to go to; never another site's."""
    if not text.startswith("/") or text.startswith("//") or _CHANGED_BY_BROWSERS.search(text):
        return "/"
    try:
        parts = urlsplit(text)
    except ValueError:
        return "/"
    return "/" if parts.scheme or parts.netloc or parts.path.startswith("//") else text


async def form(visit: Visit) -> web.StreamResponse:
    """Shows the form."""
    if visit.console.asks is None:
        return visit.go("/")
    return visit.page("login.html", to=_target(visit.asked("to")), wrong=None)


async def log_in(visit: Visit) -> web.StreamResponse:
    """Checks user and password, and begins a new session."""
    if visit.console.asks is None:
        return visit.go("/")
    user, to = visit.field("user"), _target(visit.field("to"))
    login = base64.b64encode(f"{user}:{visit.form.get('password', '')}".encode()).decode()
    header = f"Basic {login}"
    try:
        caller = await visit.console.check_login(visit.request.remote, header)
    except Busy as e:
        audit(visit.request.remote, user, "login not checked", {})
        return visit.page("login.html", status=e.status, to=to, wrong=f"{e}.")
    audit(visit.request.remote, user, "login" if caller else "login refused", {})
    if caller is None:
        return visit.page("login.html", status=401, to=to, wrong="User or password is wrong.")
    visit.session = visit.console.sessions.log_in(visit.session, caller.name, header, time.monotonic())
    return visit.go(to)


async def log_out(visit: Visit) -> web.StreamResponse:
    """Ends the session."""
    if visit.session.user:
        audit(visit.request.remote, visit.session.user, "logout", {})
    visit.console.sessions.end(visit.session)
    visit.session = visit.console.sessions.make(time.monotonic())
    return visit.go("/login" if visit.console.asks else "/")
