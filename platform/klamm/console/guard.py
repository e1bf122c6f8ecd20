"""The checks around every handler: sessions, logins, the token of a change, roles, headers, errors in words."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final
from urllib.parse import parse_qsl, quote, urlsplit

from aiohttp import hdrs, web
from aiohttp.typedefs import Middleware

from klamm.console.errors import ConsoleError, Refused
from klamm.console.sessions import Session
from klamm.console.state import CONSOLE, Console
from klamm.console.visit import FIELDS_MAX, READ_ONLY, TOKEN, Visit
from klamm.web.endpoint import Access, Handler
from klamm.web.errors import RequestError
from klamm_base.errors import KlammError

log = logging.getLogger(__name__)

Page = Callable[[Visit], Awaitable[web.StreamResponse]]
PAGE_S: Final = 60.0
"""A page that takes longer is given up, with a sentence."""
BODY_MAX: Final = 64 << 20
"""An uploaded plugin package; forms are small."""
OPEN_BODY_MAX: Final = 16 << 10
"""The most that is read of somebody who has not logged in: user, password, and where to go on."""
OPEN: Final = frozenset({"/login", "/logout"})
FORM: Final = "application/x-www-form-urlencoded"
POLICY: Final = "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
STALE: Final = "The form is too old, or is not from this console: open the page again and repeat the change"


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """A path: who may see it (`access`; None: everybody), and whether it `changes` something, which read-only refuses.

    `connector`: the part of the path that names the connector that the right is asked for. `slow`: it takes its time, or streams.
    `programs`: it is for programs as well, which send a login with each request instead of a cookie.
    """

    method: str
    path: str
    page: Page
    access: Access | None = Access.VIEW
    changes: bool = False
    connector: str | None = None
    slow: bool = False
    programs: bool = False


def handler_of(route: Route) -> Handler:
    """Makes aiohttp's handler of a route, with all checks."""

    async def handle(request: web.Request) -> web.StreamResponse:
        console = request.app[CONSOLE]
        session, fresh = _session(request, console)
        visit = Visit(
            request=request,
            console=console,
            session=session,
            cluster_name=request.match_info.get("cluster", ""),
        )
        try:
            async with asyncio.timeout(None if route.slow else PAGE_S):
                answer = await _checked(visit, route)
        except TimeoutError:
            answer = failed(visit, 504, f"No answer within {PAGE_S:.0f} s; the cluster may be busy or away")
        except web.HTTPException:
            raise
        except RequestError as e:
            answer = failed(visit, e.status, str(e))
        except ConsoleError as e:
            answer = failed(visit, e.status, str(e))
        except KlammError as e:
            answer = failed(visit, 502, str(e))
        except Exception as e:
            log.exception("%s %s", request.method, request.path)
            answer = failed(
                visit,
                500,
                f"An unexpected {type(e).__name__}: the console's log has the details. Please report it",
            )
        _keep_session(visit, answer, fresh=fresh)
        return answer

    return handle


def _keep_session(visit: Visit, answer: web.StreamResponse, *, fresh: bool) -> None:
    """Remembers a new session where it was used: by a form of the page, by a sentence for the next one, or by a login."""
    session = visit.session
    if answer.prepared:
        return
    if session.user is None and fresh and (visit.has_shown or session.notes):
        visit.console.sessions.keep(session)
        set_cookie(visit.request, answer, session.id)
    elif session.user is not None and visit.request.cookies.get(cookie_name(visit.request)) != session.id:
        set_cookie(visit.request, answer, session.id)


async def _checked(visit: Visit, route: Route) -> web.StreamResponse:
    console = visit.console
    if route.access is not None and console.asks is not None:
        given = visit.request.headers.get(hdrs.AUTHORIZATION) if route.programs else None
        if given is not None:
            visit.caller = await console.check_login(visit.request.remote, given)
        else:
            visit.caller = await console.asks.authenticate(visit.session.authorization)
        if visit.caller is None:
            return _to_login(visit) if not route.programs else _asked_for_login()
    if route.changes and console.settings.read_only:
        raise Refused(READ_ONLY)
    if visit.cluster_name:
        console.cluster(visit.cluster_name)
    if route.access is not None and route.access is not Access.ANY:
        name = visit.request.match_info.get(route.connector) if route.connector else None
        visit.demand(route.access, name)
        if (topic := visit.request.match_info.get("topic")) is not None:
            visit.demand_topic(route.access, topic)
    if route.method == hdrs.METH_POST:
        # Last: nothing is read of somebody who may not send it
        await _read_form(visit, _small(visit.request) if route.path in OPEN else visit.request)
    return await route.page(visit)


def _small(request: web.Request) -> web.Request:
    found = request.clone(client_max_size=OPEN_BODY_MAX)
    assert isinstance(found, web.Request)  # its type says BaseRequest
    return found


async def _read_form(visit: Visit, request: web.Request) -> None:
    """Reads a form, and checks its token. Raises Refused."""
    fields = []
    if request.content_type == FORM:
        fields = parse_qsl(await request.text(), keep_blank_values=True, max_num_fields=FIELDS_MAX)
    elif request.content_type == "multipart/form-data":
        for name, value in (await request.post()).items():
            if isinstance(value, web.FileField):
                request[f"file:{name}"] = (value.filename, value.file.read())
            elif isinstance(value, str):
                fields.append((name, value))
    many: dict[str, list[str]] = {}
    for name, value in fields:
        many.setdefault(name, []).append(value)
    visit.many = many
    visit.form = {name: values[-1] for name, values in many.items()}
    given = request.headers.get("X-CSRF-Token") or visit.form.get(TOKEN, "")
    if not visit.console.sessions.right(visit.session, given) or foreign(request):
        raise Refused(STALE)


def foreign(request: web.Request) -> bool:
    """Tells whether a change comes from another site's page, by what the browser says of it."""
    if request.headers.get("Sec-Fetch-Site", "").lower() in {"cross-site", "same-site"}:
        return True
    origin = request.headers.get(hdrs.ORIGIN)
    return origin is not None and urlsplit(origin).netloc.lower() != request.host.lower()


def _asked_for_login() -> web.Response:
    asks = {"WWW-Authenticate": 'Basic realm="Klamm console", charset="UTF-8"'}
    return web.Response(status=401, text="A login is needed.\n", headers=asks)


def _to_login(visit: Visit) -> web.Response:
    target = quote(visit.request.path_qs if visit.request.method == hdrs.METH_GET else "/", safe="/")
    url = f"/login?to={quote(target, safe='')}" if target != "/" else "/login"
    if visit.partial:
        return web.Response(status=401, headers={"HX-Redirect": url})
    return web.Response(status=303, headers={"Location": url})


# ---- sessions


def cookie_name(request: web.Request) -> str:
    """Returns the name of the session's cookie. Browsers share cookies between ports of a host, so it has the port."""
    port = request.host.rpartition(":")[2]
    return f"klamm_console_{port}" if port.isdecimal() else "klamm_console"


def set_cookie(request: web.Request, answer: web.StreamResponse, id: str) -> None:
    """Gives the browser its session. Lax: a link in a letter opens the page of whoever is logged in; forms have their token."""
    answer.set_cookie(
        cookie_name(request), id, path="/", httponly=True, samesite="Lax", secure=request.secure
    )


def _session(request: web.Request, console: Console) -> tuple[Session, bool]:
    now_s = time.monotonic()
    found = console.sessions.find(request.cookies.get(cookie_name(request)), now_s)
    return (found, False) if found is not None else (console.sessions.make(now_s), True)


# ---- errors and headers


def failed(visit: Visit, status: int, said: str) -> web.Response:
    """Answers with a sentence: a page, or for htmx a part of one."""
    if status >= 500:
        log.warning("%s %s: %s", visit.request.method, visit.request.path, said)
    template = "error_part.html" if visit.partial else "error.html"
    return visit.page(template, status=status, said=said, reason=HTTPStatus(status).phrase)


def outer(*, hosts: frozenset[str] | None) -> Middleware:
    """Makes the middleware around everything. `hosts`: the names under which a console without logins answers; a page that makes
    its own name point to this machine gets nothing.
    """

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        if hosts is not None and not _trusted(request.host, hosts):
            return web.Response(
                status=421, text="This console answers to addresses of this machine only.\n", headers=HEADERS
            )
        began = time.monotonic()
        try:
            answer = await handler(request)
        except web.HTTPException as e:
            answer = _plain(request, e)
        _count(request, answer, time.monotonic() - began)
        if not answer.prepared:
            for name, value in HEADERS.items():
                answer.headers.setdefault(name, value)
            if request.secure:
                answer.headers["Strict-Transport-Security"] = "max-age=31536000"
        return answer

    return check


def _count(request: web.Request, answer: web.StreamResponse, seconds: float) -> None:
    resource = request.match_info.route.resource
    streams = answer.content_type == "text/event-stream"
    request.app[CONSOLE].requests.note(
        request.method if request.method in hdrs.METH_ALL else "other",
        resource.canonical if resource is not None else "other",
        answer.status,
        None if streams else seconds,
    )


def _plain(request: web.Request, error: web.HTTPException) -> web.StreamResponse:
    """Answers for paths that do not exist, and requests that aiohttp refuses."""
    console = request.app[CONSOLE]
    session, _ = _session(request, console)
    said = {
        404: "There is no such page.",
        405: f"{request.method} is not possible here.",
        413: "That is too large: at most "
        + (f"{OPEN_BODY_MAX >> 10} KiB." if request.path in OPEN else f"{BODY_MAX >> 20} MiB."),
    }.get(error.status, error.reason)
    return failed(Visit(request=request, console=console, session=session), error.status, said)


def _trusted(host: str, hosts: frozenset[str]) -> bool:
    name = urlsplit(f"//{host}").hostname or ""
    if name in hosts:
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
