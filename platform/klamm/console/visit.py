"""A visit: one request of a browser, with who asks, the cluster of the address, and the ways to answer."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, unquote, urlencode

from aiohttp import web

from klamm.console.audit import audit
from klamm.console.cluster import Cluster
from klamm.console.errors import ConsoleError, Refused
from klamm.console.sessions import Session
from klamm.console.view import in_path, rendered
from klamm.web.endpoint import Access
from klamm.web.roles import NEEDED, Caller

if TYPE_CHECKING:
    from klamm.console.state import Console

log = logging.getLogger(__name__)

TOKEN: Final = "csrf"  # noqa: S105 - the field's name
FIELDS_MAX: Final = 2_000
READ_ONLY: Final = "The console is read-only (console.read.only=true)"


@dataclass(slots=True, kw_only=True)
class Visit:
    """One request. `caller` is None where the console asks nobody for a login; then everything is allowed."""

    request: web.Request
    console: Console
    session: Session
    caller: Caller | None = None
    cluster_name: str = ""
    form: Mapping[str, str] = field(default_factory=dict)
    many: Mapping[str, list[str]] = field(default_factory=dict)
    has_shown: bool = False
    """True once a page was made, whose forms need the session."""

    # ---- what was asked

    @property
    def cluster(self) -> Cluster:
        """The cluster of the address. Raises NotThere."""
        return self.console.cluster(self.cluster_name)

    @property
    def partial(self) -> bool:
        """True where htmx asks for a part of the page."""
        return (
            self.request.headers.get("HX-Request") == "true"
            and "HX-History-Restore-Request" not in self.request.headers
        )

    @property
    def here(self) -> str:
        """The path of the address, with names written as in all links."""
        return "/".join(in_path(unquote(part)) for part in self.request.rel_url.raw_path.split("/"))

    def part(self, name: str) -> str:
        """Returns a part of the path, decoded."""
        return self.request.match_info[name]

    def asked(self, name: str, default: str = "") -> str:
        """Returns a query parameter, without spaces around it."""
        return self.request.query.get(name, default).strip()

    @property
    def parameters(self) -> dict[str, Any]:
        """The query's parameters."""
        found: dict[str, Any] = {}
        for name, value in parse_qsl(self.request.query_string, max_num_fields=FIELDS_MAX):
            found[name] = (
                [*found[name], value]
                if isinstance(found.get(name), list)
                else ([found[name], value] if name in found else value)
            )
        return found

    # ---- who asks

    def may(self, access: Access, connector: str | None = None) -> bool:
        """Tells whether the user may do this; where it is no reading, whether the console lets anybody do it."""
        if access is not Access.VIEW and self.console.settings.read_only:
            return False
        return self.caller is None or self.caller.may(access, connector)

    def may_see(self) -> bool:
        """Tells whether the user may see what belongs to no connector."""
        return self.may(Access.VIEW)

    def may_with_some(self, access: Access) -> bool:
        """Tells whether the user may do this with some connector."""
        if access is not Access.VIEW and self.console.settings.read_only:
            return False
        return self.caller is None or any(grant.role >= NEEDED[access] for grant in self.caller.grants)

    def may_operate(self, connector: str | None = None) -> bool:
        """Tells whether the user may restart, produce, reset offsets."""
        return self.may(Access.OPERATE, connector)

    def may_administer(self, connector: str | None = None) -> bool:
        """Tells whether the user may make, change and delete."""
        return self.may(Access.ADMINISTER, connector)

    def demand(self, access: Access, connector: str | None = None) -> None:
        """Raises Refused unless the user may do this."""
        if access is not Access.VIEW and self.console.settings.read_only:
            raise Refused(READ_ONLY)
        if not self.may(access, connector):
            assert self.caller is not None
            what = f"connector {connector}" if connector else "this"
            raise Refused(f"{self.caller.name} may not {access.value} {what}")

    def demand_topic(self, access: Access, topic: str) -> None:
        """Raises Refused unless the user may do this with a topic: a grant may name topics beside connectors."""
        if self.caller is not None and not self.caller.may_with_topic(access, topic):
            raise Refused(f"{self.caller.name} may not {access.value} topic {topic}")

    async def still_may(self, access: Access) -> bool:
        """Tells whether the user, who was allowed this, is logged in and allowed it now: for answers that go on."""
        asks = self.console.asks
        if asks is None:
            return True
        if not self.console.sessions.lives(self.session, time.monotonic()):
            return False
        caller = await asks.authenticate(self.session.authorization)
        topic = self.request.match_info.get("topic")
        if caller is None or topic is None:
            return caller is not None and caller.may(access, None)
        return caller.may_with_topic(access, topic)

    @property
    def is_gone(self) -> bool:
        """True when the browser no longer waits for the answer."""
        transport = self.request.transport
        return transport is None or transport.is_closing()

    @property
    def login(self) -> str | None:
        """The user's own Authorization header for a worker, where the cluster wants it passed on."""
        return self.session.authorization if self.cluster.settings.pass_login else None

    # ---- answers

    def page(self, template: str, *, status: int = 200, **values: Any) -> web.Response:
        """Answers with a page."""
        self.has_shown = True
        values |= {
            "visit": self,
            "console": self.console,
            "token": self.console.sessions.token(self.session),
            "here": self.here,
            "parameters": self.parameters,
            "base": f"/c/{self.cluster_name}",
            "partial": self.partial,
        }
        text = rendered(template, **values)
        return web.Response(text=text, status=status, content_type="text/html")

    def go(self, url: str, note: str | None = None, *, kind: str = "good", **parameters: Any) -> web.Response:
        """Answers a form by sending the browser to a page, which tells the sentence."""
        if note:
            self.session.note(kind, note)
        if parameters:
            url += "?" + urlencode(parameters)
        return web.Response(status=303, headers={"Location": url})

    def audit(self, what: str, /, **facts: Any) -> None:
        """Writes a change to the audit log."""
        audit(
            self.request.remote,
            self.caller.name if self.caller else None,
            what,
            {"cluster": self.cluster_name, **facts} if self.cluster_name else facts,
        )

    def field(self, name: str, default: str = "") -> str:
        """Returns a field of the form, without spaces around it."""
        return self.form.get(name, default).strip()

    def whole_number(
        self, name: str, text: str | None = None, *, least: int = 0, most: int = 2**63 - 1
    ) -> int:
        """Returns a field of the form, or `text`, as a number. Raises ConsoleError that names the field."""
        given = self.field(name) if text is None else text
        if not given.lstrip("-").isdecimal() or not given.isascii() or not least <= int(given) <= most:
            raise ConsoleError(f"{name}: {given!r} is no whole number from {least} to {most}")
        return int(given)
