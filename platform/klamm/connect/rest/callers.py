"""Who calls: what the access check found, for handlers that show only a part to some."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from aiohttp import web

from klamm.connect.errors import Forbidden, RequestError
from klamm.connect.rest.endpoint import Access
from klamm.connect.rest.roles import Caller

CALLER: Final = "klamm.caller"
"""Where the access check leaves the Caller in a request; without one everybody may do everything."""

STILL: Final = "klamm.still"
"""Where it leaves what asks again who the caller is, for answers that go on."""


async def still_known(request: web.Request) -> bool:
    """Whether the caller of an answer that goes on may still come in; their rights are those of now."""
    ask: Callable[[], Awaitable[Caller | None]] | None = request.get(STILL)
    if ask is None:
        return True
    try:
        caller = await ask()
    except RequestError:  # cannot be found out now; who comes again is asked again
        return False
    if caller is not None:
        request[CALLER] = caller
    return caller is not None


def may_view(request: web.Request, connector: str) -> bool:
    """Whether the caller may see a connector."""
    caller: Caller | None = request.get(CALLER)
    return caller is None or caller.may(Access.VIEW, connector)


def demand(request: web.Request, access: Access, connector: str | None) -> None:
    """Raise Forbidden unless the caller may do this to a connector (None: the worker)."""
    caller: Caller | None = request.get(CALLER)
    if caller is not None and not caller.may(access, connector):
        what = f"connector {connector}" if connector is not None else "the worker"
        raise Forbidden(f"{caller.name} may not {access.value} {what}")
