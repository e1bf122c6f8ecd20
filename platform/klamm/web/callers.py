"""The caller of a request, as the access check found it, for handlers that show only a part to some callers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from aiohttp import web

from klamm.web.authentication import UsersFile
from klamm.web.endpoint import Access
from klamm.web.errors import Forbidden, RequestError
from klamm.web.roles import Caller, Realm

CALLER: Final = "klamm.caller"
"""The request's key for the Caller, set by the access check; a request without it may do everything."""

REALM: Final = web.AppKey("realm", Realm)
"""The application's key for the words of its server."""

USERS: Final = web.AppKey("users", UsersFile)
"""The application's key for its users, where it has some."""

STILL: Final = "klamm.still"
"""The request's key for a function that finds the caller again, for answers that go on."""


async def still_known(request: web.Request) -> bool:
    """Tells whether the caller of an answer that goes on still has access, and updates the caller's rights."""
    ask: Callable[[], Awaitable[Caller | None]] | None = request.get(STILL)
    if ask is None:
        return True
    try:
        caller = await ask()
    except RequestError:  # unknown at the moment: the client may reconnect and is checked again
        return False
    if caller is not None:
        request[CALLER] = caller
    return caller is not None


def may_view(request: web.Request, name: str) -> bool:
    """Tells whether the caller may see a thing of the server."""
    caller: Caller | None = request.get(CALLER)
    return caller is None or caller.may(Access.VIEW, name)


def demand(request: web.Request, access: Access, name: str | None) -> None:
    """Raises Forbidden unless the caller may do this to a thing of the server (None: the server)."""
    caller: Caller | None = request.get(CALLER)
    if caller is not None and not caller.may(access, name):
        realm = request.app[REALM]
        what = f"{realm.thing} {name}" if name is not None else f"the {realm.server}"
        raise Forbidden(f"{caller.name} may not {access.value} {what}")


def demand_group(request: web.Request, group: str) -> None:
    """Raises Forbidden unless the caller may be a member of a consumer group."""
    caller: Caller | None = request.get(CALLER)
    if caller is not None and not caller.may_use_group(group):
        raise Forbidden(f"{caller.name} may not use consumer group {group}: groups of a grant must list it")
