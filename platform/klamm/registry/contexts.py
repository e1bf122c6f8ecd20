"""Addresses with a context: what is asked below `/contexts/NAME/` is asked of that context. Clients get such an address as the
registry's.

A request is rewritten before logins and roles are looked at, so that these are asked for the subject that is meant.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import quote, unquote

from aiohttp import web
from aiohttp.typedefs import Middleware
from yarl import URL

from klamm.registry.errors import invalid_subject
from klamm.registry.subjects import ANY, DEFAULT
from klamm.web.endpoint import Handler

PATH: Final = "/contexts/{context}/{rest:.+}"
_OF_ALL: Final = f":{DEFAULT}:"


async def pass_on(request: web.Request) -> web.StreamResponse:
    """Answers as the endpoint to which a request was rewritten."""
    return await request.match_info.handler(request)


@web.middleware
async def _rewrite(request: web.Request, handler: Handler) -> web.StreamResponse:
    if request.match_info.handler is pass_on:
        url = rewritten(request.match_info["context"], request.rel_url)
        request = request.clone(rel_url=url)
        match = await request.app.router.resolve(request)
        if match.http_exception is not None:
            raise match.http_exception
        match.add_app(request.app)
        match.freeze()
        request._match_info = match  # noqa: SLF001 - aiohttp has no other way
    subject = request.match_info.get("subject", "")
    if subject.startswith(_OF_ALL) and subject != _OF_ALL:
        request.match_info["subject"] = subject.removeprefix(
            _OF_ALL
        )  # the spelling for which rights are given
    return await handler(request)


REWRITE: Final[Middleware] = _rewrite


def rewritten(context: str, url: URL) -> URL:
    """Returns the address without its context: the context is with the subject there. Raises RegistryError 42208."""
    prefix = prefix_of(context)
    parts = url.raw_path.split("/")[3:]
    query = url.query.copy()
    whole = parts[-1] in {"", parts[0]}  # nothing follows the first part
    if parts[0] in {"config", "mode"}:
        if whole:
            parts = [parts[0], *([_quoted(prefix)] if prefix else [])]
        else:
            parts[1] = _within(prefix, parts[1])
    elif whole and parts[0] in {"subjects", "schemas"}:
        query["subjectPrefix"] = _text_within(prefix or _OF_ALL, query.get("subjectPrefix", ""))
    elif parts[:2] == ["schemas", "ids"]:
        query["subject"] = _text_within(prefix, query.get("subject", ""))
    else:
        for number, part in enumerate(parts[:-1]):
            if part == "subjects":
                parts[number + 1] = _within(prefix, parts[number + 1])
                break
    return URL("/" + "/".join(parts), encoded=True).with_query(query)


def prefix_of(context: str) -> str:
    """Returns what a context's subjects begin with: `:.NAME:` for NAME, .NAME and :.NAME:. Raises RegistryError 42208."""
    name = context.removeprefix(":").removesuffix(":")
    if not name or ":" in name:
        raise invalid_subject(context)
    name = name if name.startswith(".") else f".{name}"
    return "" if name == DEFAULT else f":{name}:"


def _within(prefix: str, part: str) -> str:
    return _quoted(_text_within(prefix, unquote(part)))


def _text_within(prefix: str, name: str) -> str:
    return name if name.startswith((":.", ANY)) else prefix + name


def _quoted(name: str) -> str:
    return quote(name, safe="")
