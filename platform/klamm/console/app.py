"""The application: every path of the console, with its handler and the right that it asks for. Reading `ROUTES` is reading the
console.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from importlib.resources import files
from pathlib import Path
from typing import Final

from aiohttp import web

from klamm.console.cluster import Cluster
from klamm.console.guard import BODY_MAX, Page, Route, handler_of, outer
from klamm.console.pages import (
    access,
    connector,
    connector_form,
    connectors,
    dead_letters,
    groups,
    home,
    login,
    more,
    produce,
    records,
    schemas,
    topic_changes,
    topics,
)
from klamm.console.state import CONSOLE, Console
from klamm.web.endpoint import Access
from klamm_base.errors import KlammError
from klamm_kafka.client import ClientError

log = logging.getLogger(__name__)

STATIC_S: Final = 31_536_000
CLUSTER: Final = "/c/{cluster}"
TOPIC: Final = CLUSTER + "/topics/{topic}"
GROUP: Final = CLUSTER + "/groups/{group}"
CONNECTOR: Final = CLUSTER + "/connectors/{connector}"
VIEW, OPERATE, ADMINISTER, ANY = Access.VIEW, Access.OPERATE, Access.ADMINISTER, Access.ANY


def _see(
    path: str, page: Page, access: Access | None = VIEW, *, of_connector: bool = False, slow: bool = False
) -> Route:
    return Route(
        method="GET",
        path=path,
        page=page,
        access=access,
        connector="connector" if of_connector else None,
        slow=slow,
    )


def _change(
    path: str, page: Page, access: Access, *, of_connector: bool = False, slow: bool = False
) -> Route:
    return Route(
        method="POST",
        path=path,
        page=page,
        access=access,
        changes=True,
        connector="connector" if of_connector else None,
        slow=slow,
    )


def _try(path: str, page: Page, access: Access) -> Route:
    """Returns a route of a form that changes nothing: a check, or a preview."""
    return Route(method="POST", path=path, page=page, access=access)


ROUTES: Final[tuple[Route, ...]] = (
    _see("/", home.clusters, ANY),
    _see("/health", home.health, None),
    Route(method="GET", path="/metrics", page=home.metrics, programs=True),
    _see("/login", login.form, None),
    Route(method="POST", path="/login", page=login.log_in, access=None),
    Route(method="POST", path="/logout", page=login.log_out, access=None),
    _see(CLUSTER, home.overview),
    _see(CLUSTER + "/brokers/{broker:[0-9]+}", home.broker),
    _see(CLUSTER + "/topics", topics.list_page),
    _see(CLUSTER + "/new-topic", topic_changes.create_form, ADMINISTER),
    _change(CLUSTER + "/new-topic", topic_changes.create, ADMINISTER),
    _see(TOPIC, topics.topic),
    _see(TOPIC + "/settings", topics.settings),
    _see(TOPIC + "/settings/edit", topic_changes.edit_form, ADMINISTER),
    _try(TOPIC + "/settings/preview", topic_changes.preview, ADMINISTER),
    _change(TOPIC + "/settings/edit", topic_changes.edit, ADMINISTER),
    _see(TOPIC + "/change", topic_changes.change_page, ADMINISTER),
    _change(TOPIC + "/partitions", topic_changes.add_partitions, ADMINISTER),
    _change(TOPIC + "/trim", topic_changes.trim, ADMINISTER),
    _change(TOPIC + "/delete", topic_changes.delete, ADMINISTER),
    _see(TOPIC + "/records", records.page),
    _see(TOPIC + "/records/stream", records.stream, slow=True),
    _see(TOPIC + "/records/{partition:[0-9]+}/{offset:[0-9]+}", records.one),
    _see(TOPIC + "/produce", produce.form, OPERATE),
    _change(TOPIC + "/produce", produce.send, OPERATE),
    _see(CLUSTER + "/groups", groups.list_page),
    _see(GROUP, groups.group),
    _see(GROUP + "/lag", groups.lag),
    _see(GROUP + "/reset", groups.reset_form, OPERATE),
    _try(GROUP + "/reset/preview", groups.reset_preview, OPERATE),
    _change(GROUP + "/reset", groups.reset, OPERATE),
    _change(GROUP + "/delete", groups.delete, ADMINISTER),
    _see(CLUSTER + "/connectors", connectors.list_page, ANY),
    _see(CLUSTER + "/plugins", connectors.plugins, ANY),
    _change(CLUSTER + "/plugins", connectors.install, ADMINISTER, slow=True),
    _change(CLUSTER + "/plugins/remove", connectors.remove, ADMINISTER),
    _see(CLUSTER + "/new-connector", connector_form.choose, ANY),
    _see(CLUSTER + "/new-connector/form", connector_form.new_form, ANY),
    _try(CLUSTER + "/new-connector/check", connector_form.check, ANY),
    _try(CLUSTER + "/new-connector/try", connector_form.dry_run, ANY),
    Route(
        method="POST",
        path=CLUSTER + "/new-connector/form",
        page=connector_form.save,
        access=ANY,
        changes=True,
    ),
    _see(CONNECTOR, connector.status, of_connector=True),
    _see(CONNECTOR + "/edit", connector_form.edit_form, ADMINISTER, of_connector=True),
    _see(CONNECTOR + "/offsets", connector.offsets, of_connector=True),
    _change(CONNECTOR + "/offsets", connector.change_offsets, OPERATE, of_connector=True),
    _see(CONNECTOR + "/history", connector.history, of_connector=True),
    _change(CONNECTOR + "/do", connector.act, OPERATE, of_connector=True),
    _change(CONNECTOR + "/delete", connector.delete, ADMINISTER, of_connector=True),
    _see(CLUSTER + "/dead-letters", dead_letters.list_page),
    _see(CLUSTER + "/dead-letters/{topic}", dead_letters.letters),
    _change(CLUSTER + "/dead-letters/{topic}/replay", dead_letters.replay, OPERATE, slow=True),
    _see(CLUSTER + "/schemas", schemas.list_page),
    _see(CLUSTER + "/schemas/{subject}", schemas.subject),
    _change(CLUSTER + "/schemas/{subject}", schemas.register, ADMINISTER),
    _try(CLUSTER + "/schemas/{subject}/check", schemas.check, VIEW),
    _change(CLUSTER + "/schemas/{subject}/level", schemas.set_level, ADMINISTER),
    _change(CLUSTER + "/schemas/{subject}/delete", schemas.delete, ADMINISTER),
    _see(CLUSTER + "/access", access.page, ADMINISTER),
    _change(CLUSTER + "/access/acl", access.change_acl, ADMINISTER),
    _change(CLUSTER + "/access/quota", access.change_quota, ADMINISTER),
    _change(CLUSTER + "/access/user", access.change_user, ADMINISTER),
    _see(CLUSTER + "/mirror", more.mirror),
    _see(CLUSTER + "/watched", more.watched),
)


def make_app(console: Console) -> web.Application:
    """Makes the application of a console."""
    # Without logins, any page in a browser would reach us by a name of its own that points to this machine.
    hosts = frozenset({"localhost"}) if console.asks is None else None
    app = web.Application(middlewares=[outer(hosts=hosts)], client_max_size=BODY_MAX)
    app[CONSOLE] = console
    resources: dict[str, web.Resource] = {}
    for route in ROUTES:
        if route.path not in resources:
            resources[route.path] = app.router.add_resource(route.path)
        handler = handler_of(route)
        resources[route.path].add_route(route.method, handler)
        if route.method == "GET" and not route.slow:  # an answer that streams has no end to wait for
            resources[route.path].add_route("HEAD", handler)
    app.router.add_static("/static/", Path(str(files("klamm.console").joinpath("static"))))
    app.on_response_prepare.append(_keep_assets)
    app.on_startup.append(console.start)
    app.cleanup_ctx.append(_warm)
    app.on_cleanup.append(console.close)
    return app


async def _warm(app: web.Application) -> AsyncIterator[None]:
    """Asks for the lists that may take long, so that the first page has them."""

    async def ask(cluster: Cluster) -> None:
        try:
            for lists in (topics.summaries, home.summary, home.brokers, topics.all_sizes):
                await lists(cluster)
        except (KlammError, ClientError, OSError) as e:
            log.info("cluster %s does not answer yet: %s", cluster.name, e)  # its pages will say so

    asking = asyncio.gather(*(ask(cluster) for cluster in app[CONSOLE].clusters.values()))
    yield
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)


async def _keep_assets(request: web.Request, answer: web.StreamResponse) -> None:
    """Lets browsers keep the assets: their addresses change with them."""
    if request.path.startswith("/static/"):
        answer.headers["Cache-Control"] = f"public, max-age={STATIC_S}, immutable"
