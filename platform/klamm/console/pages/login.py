"""The login form."""

from __future__ import annotations

import base64
import time

from aiohttp import web

from klamm.console.audit import audit
from klamm.console.visit import Visit


def _target(text: str) -> str:
    """Returns a path of this console to go to; never another site's."""
    return text if text.startswith("/") and not text.startswith(("//", "/\\")) else "/"


async def form(visit: Visit) -> web.StreamResponse:
    """Shows the form."""
    if visit.console.asks is None:
        return visit.go("/")
    return visit.page("login.html", to=_target(visit.asked("to")), wrong=None)


async def log_in(visit: Visit) -> web.StreamResponse:
    """Checks user and password, and begins a new session."""
    asks = visit.console.asks
    if asks is None:
        return visit.go("/")
    user, to = visit.field("user"), _target(visit.field("to"))
    login = base64.b64encode(f"{user}:{visit.form.get('password', '')}".encode()).decode()
    header = f"Basic {login}"
    caller = await asks.authenticate(header)
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
    visit.session = visit.console.sessions.begin(time.monotonic())
    return visit.go("/login" if visit.console.asks else "/")
