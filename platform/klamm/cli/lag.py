"""`klamm lag`: watch the lag of groups, sinks, mirror flows and Spark queries."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from klamm.cli.cluster import AdminCluster
from klamm.cli.common import EXIT_FAILED, OverrideOption, fail, reported
from klamm.cli.context import Commands
from klamm.cli.output import Format, FormatOption, print_rows

if TYPE_CHECKING:
    from klamm.lag.model import GroupStatus

app = Commands(help="Watch lag by Burrow's rules, and notify.", no_args_is_help=True)

URL: Final = "http://127.0.0.1:8000"
_ANSWER_S: Final = 10.0
_COLUMNS: Final = ["group", "status", "lag", "max_lag", "time_lag_s", "partitions", "complete"]
_OF_GROUP: Final = ["topic", "partition", "status", "offset", "lag", "time_lag_s", "complete", "client_id"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LagServerOf:
    """A running server, for what only it knows."""

    token: Annotated[
        str | None,
        typer.Option("--token", envvar="KLAMM_LAG_TOKEN", help="A bearer token for the server.", show_default=False),
    ] = None  # fmt: skip
    user: Annotated[
        str | None, typer.Option("--user", envvar="KLAMM_LAG_USER", help="NAME:PASSWORD for the server.")
    ] = None
    cacert: Annotated[
        Path | None, typer.Option("--cacert", help="A PEM file with the authority of an https server.")
    ] = None

    def ask(self, url: str, path: str) -> Any:
        """Returns the JSON of an answer. Raises KlammError with the server's words."""
        import base64
        import json
        import ssl
        import urllib.error
        import urllib.request

        from klamm_base.errors import KlammError

        address = url.rstrip("/") + path
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        if self.user:
            headers["Authorization"] = f"Basic {base64.b64encode(self.user.encode()).decode()}"
        context = ssl.create_default_context(cafile=self.cacert) if address.startswith("https:") else None
        try:
            request = urllib.request.Request(address, headers=headers)  # noqa: S310 - the user's own address
            with urllib.request.urlopen(request, timeout=_ANSWER_S, context=context) as answer:  # noqa: S310
                return json.load(answer)
        except urllib.error.HTTPError as e:
            try:
                said = json.load(e)["message"]
            except (ValueError, KeyError, TypeError):
                said = e.reason
            raise KlammError(f"{address}: {e.code} {said}") from None
        except (OSError, ValueError) as e:
            raise KlammError(f"no answer from the lag server at {url}: {getattr(e, 'reason', e)}") from None


UrlOption = Annotated[str, typer.Option("--url", envvar="KLAMM_LAG_URL", help="The address of the server.")]


@app.callback()
def _group() -> None:
    """Watch lag."""


@app.command()
def start(
    config: Annotated[
        Path | None, typer.Argument(metavar="[lag.properties]", help="Clusters, notifiers, HTTP.")
    ] = None,
    override: OverrideOption = None,
) -> None:
    """Watch the lag of all groups until SIGTERM or Ctrl-C.

    Serves Burrow's HTTP API v3 and /metrics, sends notifications, and keeps history. Without a file it watches
    127.0.0.1:9092. Prints `ready lag=http://HOST:PORT` once it serves.

    SIGHUP reads certificates, users and notifiers again; those that cannot be used are said, and the old ones stay.
    """
    import asyncio

    from klamm.lag.server import run
    from klamm_base.properties import layered
    from klamm_base.service_manager import say_ready

    with reported(server=True):
        asyncio.run(
            run(lambda: layered(config, override or []), lambda address: say_ready(f"ready lag={address}"))
        )


@app.command()
def status(
    cluster: AdminCluster,
    group: Annotated[str | None, typer.Argument(help="One group, with its partitions.")] = None,
    bad: Annotated[
        bool, typer.Option("--bad", help="Only what is not OK; exit code 1 if there is some.")
    ] = False,
    output: FormatOption = Format.TABLE,
) -> None:
    """Show the lag of groups now, by Burrow's rules, without a server.

    Reads the commits that the cluster has kept. What a server remembers beyond them, such as the ends of logs over
    time, is not known here.
    """
    with reported():
        found = _looked(cluster)
        if group is None:
            chosen = [s for s in found if not bad or s.status > 1]
            print_rows([_row(s) for s in chosen], _COLUMNS, output, wide=["kind", "cluster"])
        else:
            chosen = [s for s in found if s.group == group]
            if not chosen:
                fail(f"group {group!r} has committed nothing")
            rows = [_partition_row(p) for p in chosen[0].partitions if not bad or p.status > 1]
            print_rows(rows, _OF_GROUP, output, wide=["owner", "committed_ms"])
        if bad and any(s.status > 1 for s in chosen):
            raise typer.Exit(EXIT_FAILED)


def _looked(cluster: AdminCluster) -> list[GroupStatus]:
    """Returns the statuses of all groups, by one look at the cluster."""
    import asyncio

    from klamm.admin.settings import client_settings
    from klamm.lag.settings import DEFAULT_CLUSTER, one_cluster
    from klamm.lag.state import ClusterState, Judging
    from klamm.lag.watch import ClusterWatch, now_ms

    client = client_settings(cluster.bootstrap, cluster.command_config, timeout_s=cluster.timeout)

    async def look() -> list[GroupStatus]:
        state = ClusterState(DEFAULT_CLUSTER, Judging())
        settings = one_cluster(cluster.bootstrap, client.security)
        watch = ClusterWatch(settings, {DEFAULT_CLUSTER: state}, {}, lambda _: True)
        try:
            await watch.once()
        finally:
            await watch.close()
        now = now_ms()
        return [found for name in state.groups() if (found := state.status(name, now)) is not None]

    return asyncio.run(look())


def _row(status: GroupStatus) -> dict[str, Any]:
    worst = status.max_lag
    return {
        "group": status.group,
        "status": status.status.name,
        "lag": status.total_lag,
        "max_lag": worst.lag if worst is not None else None,
        "time_lag_s": _seconds(status.time_lag_ms),
        "partitions": len(status.partitions),
        "complete": round(status.complete, 2),
        "kind": status.kind,
        "cluster": status.cluster,
    }


def _partition_row(partition: Any) -> dict[str, Any]:
    end = partition.end
    return {
        "topic": partition.partition.topic,
        "partition": partition.partition.partition,
        "status": partition.status.name,
        "offset": end.offset if end is not None else None,
        "lag": partition.lag,
        "time_lag_s": _seconds(partition.time_lag_ms),
        "complete": round(partition.complete, 2),
        "client_id": partition.owner.client_id or None,
        "owner": partition.owner.host or None,
        "committed_ms": end.timestamp if end is not None else None,
    }


def _seconds(ms: int | None) -> float | None:
    return None if ms is None else round(ms / 1000, 1)


@app.command()
def history(
    server: LagServerOf,
    group: Annotated[str | None, typer.Argument(help="One group; without it all.")] = None,
    cluster: Annotated[
        str, typer.Option("--cluster", help="The name of the cluster at the server.")
    ] = "local",
    since: Annotated[float, typer.Option("--since", min=0, help="Hours to look back.")] = 24.0,
    limit: Annotated[
        int, typer.Option("--limit", min=1, max=100_000, help="The most rows, the last ones.")
    ] = 1000,
    url: UrlOption = URL,
    output: FormatOption = Format.TABLE,
) -> None:
    """Show how groups were over time, as a running server remembers it."""
    import datetime as dt
    import time
    from urllib.parse import quote

    from klamm_base.errors import KlammError

    with reported():
        since_ms = int((time.time() - since * 3600) * 1000)
        of = f"/consumer/{quote(group, safe='')}" if group is not None else ""
        path = f"/v3/kafka/{quote(cluster, safe='')}{of}/history?since={since_ms}&limit={limit}"
        rows = [
            {
                "at": dt.datetime.fromtimestamp(row["at"] / 1000, dt.UTC).isoformat(timespec="seconds"),
                "group": row["group"],
                "status": row["status"],
                "lag": row["totallag"],
                "max_lag": row["maxlag"],
                "time_lag_s": _seconds(row["time_lag_ms"]),
                "complete": round(row["complete"], 2),
            }
            for row in server.ask(url, path)["history"]
        ]
        if group is not None and not rows:
            raise KlammError(f"{url} remembers nothing of group {group!r} in the last {since:g} h")
        print_rows(rows, ["at", "group", "status", "lag", "max_lag", "time_lag_s"], output, wide=["complete"])
