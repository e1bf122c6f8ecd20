"""An application of endpoints with everything that each server has: error answers, logins and roles, refusal of foreign pages,
negotiation, headers of all answers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from aiohttp import hdrs, web
from aiohttp.typedefs import Middleware

from klamm.web import callers, openapi
from klamm.web.access import access_check, foreign_pages
from klamm.web.answer_headers import answer_headers
from klamm.web.authentication import UsersFile
from klamm.web.endpoint import Endpoint
from klamm.web.http import MAX_BODY_BYTES, ErrorForm, errors, kafkas_form, negotiation
from klamm.web.request_counts import RequestCounts
from klamm.web.routes import routed
from klamm.web.settings import Web
from klamm_base.metrics_text import CONTENT_TYPE, Family, lines


def make_app(
    settings: Web,
    endpoints: tuple[Endpoint, ...],
    *,
    title: openapi.Title,
    counts: RequestCounts,
    form: ErrorForm = kafkas_form,
    outer: Sequence[Middleware] = (),
    inner: Sequence[Middleware] = (),
    redact: Callable[[str], str] = str,
    body_bytes_max: int = MAX_BODY_BYTES,
) -> web.Application:
    """Makes the application. `outer` are the middlewares before logins and roles are looked at, `inner` the last ones before a
    handler. Raises ConfigError for a bad users file.
    """
    by_handler = {endpoint.handler: endpoint for endpoint in endpoints}
    checks: list[Middleware] = [foreign_pages(settings.cors)]
    asks = UsersFile(settings.auth, settings.realm) if settings.auth is not None else None
    if asks is not None:
        checks.append(access_check(asks, endpoints, settings.realm))
    middlewares = [errors(by_handler, redact, counts, form), *outer, *checks, negotiation(by_handler), *inner]
    app = routed(endpoints, middlewares, body_bytes_max=body_bytes_max)
    app[callers.REALM], app[openapi.TITLE] = settings.realm, title
    if asks is not None:
        app[callers.USERS] = asks
    if settings.rules or settings.cors:
        app.on_response_prepare.append(answer_headers(settings.rules, settings.cors))
    return app


def metrics_response(families: Iterator[Family]) -> web.Response:
    """Returns Prometheus' text of these families, as the answer of GET /metrics."""
    return web.Response(body="".join(lines(families)).encode(), headers={hdrs.CONTENT_TYPE: CONTENT_TYPE})
