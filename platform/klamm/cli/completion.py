"""Names that the shell completes: connectors, topics and groups.

Each function asks the server that the command line so far names, waits 2 s at most, and offers nothing where anything
goes wrong: nobody reads an error while they type. It prints nothing, and asks for no password.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterable
from typing import Any, Final

import typer

ANSWER_S: Final = 2.0


def connector_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the connectors of the worker that begin with the word so far."""
    return _offered(incomplete, lambda: _connectors(ctx.params))


def topic_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the cluster's topics that begin with the word so far; internal ones once it begins with an underscore."""
    names = _offered(incomplete, lambda: _topics(ctx.params))
    return [n for n in names if incomplete.startswith("_") or not n.startswith("__")]


def group_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the cluster's consumer groups that begin with the word so far."""
    return _offered(incomplete, lambda: _groups(ctx.params))


def _offered(incomplete: str, ask: Callable[[], Iterable[str]]) -> list[str]:
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            return sorted(name for name in ask() if name.startswith(incomplete))
    except (Exception, SystemExit):
        return []


def _connectors(given: dict[str, Any]) -> list[str]:
    from klamm.cli.rest_client import Worker

    worker = _context(Worker, given)
    worker.require_password()
    names: list[str] = worker.call("GET", "/connectors", timeout_s=ANSWER_S)
    return names


def _topics(given: dict[str, Any]) -> Iterable[str]:
    from confluent_kafka.admin import AdminClient

    from klamm.cli.cluster import Cluster

    cluster = _context(Cluster, given)
    client = AdminClient(cluster.config("admin") | {"log_level": 0})
    names: Iterable[str] = client.list_topics(timeout=ANSWER_S).topics
    return names


def _groups(given: dict[str, Any]) -> list[str]:
    from klamm.admin.groups import list_groups
    from klamm.cli.cluster import AdminCluster

    cluster = _context(AdminCluster, given | {"timeout": ANSWER_S})
    return [g.group for g in cluster.ask(list_groups)]


def _context(kind: Any, given: dict[str, Any]) -> Any:
    """Return the context that the options so far describe."""
    from dataclasses import fields

    return kind(**{f.name: given[f.name] for f in fields(kind) if given.get(f.name) is not None})
