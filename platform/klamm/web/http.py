"""The common parts of all endpoints: JSON in and out, error bodies, content negotiation, the time
limit.

An error answers {"error_code", "message"}, Kafka's and Confluent's form; a server may choose another. A message says what is wrong
and where; a traceback goes to the log only.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final, NamedTuple

import orjson
from aiohttp import hdrs, web
from aiohttp.typedefs import Middleware

from klamm.web.endpoint import REQUEST_TIMEOUT_S, Endpoint, Handler
from klamm.web.errors import BadRequest, RequestError
from klamm.web.request_counts import RequestCounts
from klamm_base.errors import KlammError

log = logging.getLogger(__name__)

MAX_BODY_BYTES: Final = 4 << 20  # a connector config is kilobytes; offsets of many partitions may be more
_NO_BODY: Final = "The request has no body; a JSON object is needed"
_METHODS: Final = frozenset(hdrs.METH_ALL)
_SHOWN_MAX: Final = 200
CLIENT_GONE: Final = 499
"""Counted in place of an answer, which nobody would read."""


def json_response(body: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    return web.Response(
        body=orjson.dumps(body), status=status, headers=headers, content_type="application/json"
    )


class Failed(NamedTuple):
    """An error answer before it is written. `code` is the body's, None: the status."""

    status: int
    message: str
    headers: Mapping[str, str] | None = None
    warnings: Sequence[str] = ()
    code: int | None = None


ErrorForm = Callable[[web.Request, Failed], web.Response]
"""Writes an error in the form that the clients of a server expect."""


def kafkas_form(_request: web.Request, failed: Failed) -> web.Response:
    """Writes an error as Kafka Connect and Confluent's servers do."""
    body: dict[str, Any] = {"error_code": failed.code or failed.status, "message": failed.message}
    if failed.warnings:
        body["warnings"] = list(failed.warnings)
    return json_response(body, failed.status, failed.headers)


def empty(status: int) -> web.Response:
    return web.Response(status=status)


async def read_json(
    request: web.Request, *, exact_numbers: bool = False, types: Collection[str] = ("application/json",)
) -> Any:
    """Returns the body; raises BadRequest with line and column when it is not JSON.

    `types` are the content types that may be sent. With `exact_numbers`, numbers are the text that was sent, since config values are strings.
    """
    if request.content_type not in types:
        # As Kafka does, and also for safety: browsers send other types across sites without asking first.
        if hdrs.CONTENT_TYPE not in request.headers and not await request.read():
            raise BadRequest(_NO_BODY)
        raise web.HTTPUnsupportedMediaType
    try:
        text = await request.text()
    except (UnicodeError, LookupError) as e:
        raise BadRequest(f"The body is not text in {request.charset or 'utf-8'}: {e}") from None
    if not text.strip():
        raise BadRequest(_NO_BODY)
    numbers: dict[str, Any] = {"parse_int": str, "parse_float": str} if exact_numbers else {}
    try:
        value = json.loads(text, parse_constant=_refuse, **numbers)
        orjson.dumps(value)  # half a surrogate pair or a number beyond 64 bits could never be stored
    except json.JSONDecodeError as e:
        raise BadRequest(f"The body is not JSON: {e.msg} (line {e.lineno}, column {e.colno})") from None
    except RecursionError:
        raise BadRequest("The body is not usable JSON: it is nested too deeply") from None
    except (TypeError, ValueError) as e:  # an integer of thousands of digits is the latter
        raise BadRequest(f"The body is not usable JSON: {e}") from None
    return value


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not a JSON number")


def shown_path(request: web.Request) -> str:
    """Returns the path for a log: as it was sent, without decoded line ends, and shortened if it is long."""
    path = request.rel_url.raw_path
    return path if len(path) <= _SHOWN_MAX else f"{path[:_SHOWN_MAX]}…"


def as_config(value: Any, what: str) -> dict[str, str | None]:
    """Reads a JSON object of scalars as a config; raises BadRequest with the key that does not fit."""
    if not isinstance(value, dict):
        raise BadRequest(f"{what} must be a JSON object of strings, not {json_kind(value)}")
    return {key: _config_value(key, v) for key, v in value.items()}


def _config_value(key: str, value: Any) -> str | None:
    match value:
        case None | str():
            return value
        case bool():
            return "true" if value else "false"
        case _:
            raise BadRequest(f"The value of {key} must be a string, not {json_kind(value)}")


def json_kind(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case str():
            return "a string"
        case int() | float():
            return "a number"
        case list():
            return "an array"
        case _:
            return "an object"


def errors(
    endpoints: Mapping[Any, Endpoint],
    redact: Callable[[str], str],
    requests: RequestCounts,
    form: ErrorForm = kafkas_form,
) -> Middleware:
    """Makes the middleware that turns every failure into an error answer of this form, and ends requests after their
    time limit. Messages are redacted; `requests` counts.
    """

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        endpoint = endpoints.get(request.match_info.handler)
        timeout_s = endpoint.timeout_s if endpoint is not None else REQUEST_TIMEOUT_S
        began = time.monotonic()
        answer = await _answered(request, handler, timeout_s)
        if isinstance(answer, Failed):
            warnings = list(map(redact, answer.warnings))
            answer = form(request, answer._replace(message=redact(answer.message), warnings=warnings))
        path = endpoint.template if endpoint is not None else "other"
        seconds = time.monotonic() - began if timeout_s else None
        method = request.method if request.method in _METHODS else "other"
        requests.note(method, path, answer.status, seconds)
        return answer

    return check


async def _answered(request: web.Request, handler: Handler, timeout_s: float) -> web.StreamResponse | Failed:
    try:
        async with asyncio.timeout(timeout_s or None):
            return await handler(request)
    except web.HTTPException as e:
        headers = {str(hdrs.ALLOW): e.headers[hdrs.ALLOW]} if hdrs.ALLOW in e.headers else None
        return Failed(e.status, f"HTTP {e.status} {HTTPStatus(e.status).phrase}", headers)
    except RequestError as e:
        return Failed(e.status, str(e), e.headers, e.warnings, e.code)
    except TimeoutError:
        return Failed(500, f"Request timed out after {timeout_s:g} s")
    except KlammError as e:
        log.error("%s %s: %s", request.method, shown_path(request), e)  # noqa: TRY400 - a sentence, no bug
        return Failed(500, str(e))
    except Exception as e:
        if isinstance(e, ConnectionError) and _has_gone(request):
            log.debug("%s %s: the client has gone: %s", request.method, shown_path(request), e)
            return Failed(CLIENT_GONE, "The client closed the connection")
        log.exception("%s %s", request.method, shown_path(request))
        return Failed(500, f"{type(e).__name__} (the server's log has the details)")


def _has_gone(request: web.Request) -> bool:
    return request.transport is None or request.transport.is_closing()


def negotiation(endpoints: Mapping[Any, Endpoint]) -> Middleware:
    """Makes the middleware that answers 406 to a client that does not accept the endpoint's type, which is
    mostly JSON.

    It also answers OPTIONS for every path that exists.
    """

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        endpoint = endpoints.get(request.match_info.handler)
        if endpoint is None and request.method != hdrs.METH_OPTIONS:
            return await handler(request)  # no such path, or an extension's, which chooses its own types
        produced = (endpoint.produces, *endpoint.also) if endpoint is not None else ("application/json",)
        accept = request.headers.get(hdrs.ACCEPT, "")
        if request.match_info.http_exception is None and not any(accepts(accept, each) for each in produced):
            raise web.HTTPNotAcceptable
        return await handler(request)

    return check


def accepts(accept: str, produced: str) -> bool:
    """Tells whether an Accept header allows a content type."""
    ranges = [part.partition(";") for part in accept.split(",") if part.strip()]
    wanted = {"*/*", f"{produced.partition('/')[0]}/*", produced}
    return not ranges or any(
        kind.strip().lower() in wanted and "q=0" not in params.replace(" ", "").split(";")
        for kind, _, params in ranges
    )
