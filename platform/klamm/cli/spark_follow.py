"""A Spark job that runs in the foreground: its events on the terminal, its figures at a port."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from klamm.cli.common import EXIT_FAILED, EXIT_USAGE, counted, fail

if TYPE_CHECKING:
    import asyncio

    from klamm_base.metrics_server import MetricsServer
    from klamm_spark.process import DriverProcess
    from klamm_spark.status import JobStatus


@dataclass(frozen=True, slots=True)
class Failing:
    """The context that the command adds to a failure: the place of a key in its file, and the path of the whole log."""

    place: Callable[[str], str]
    log: Path | None = None

    def tell(self, failure: Mapping[str, Any]) -> None:
        """Ends the command."""
        if self.log is not None:
            typer.echo(f"Spark's log with all traces: {self.log}", err=True)
        key = failure.get("key")
        message = f"{self.place(key)}: {failure['message']}" if key else failure["message"]
        fail(message, EXIT_USAGE if failure["error"] == "ConfigError" else EXIT_FAILED)


def follow(driver: DriverProcess, status: JobStatus, failing: Failing) -> int:
    """Show events until the driver has ended, and fold them into `status`; the exit code of the command."""
    asked = threading.Event()
    previous = {n: signal.signal(n, lambda *_: asked.set()) for n in (signal.SIGTERM, signal.SIGINT)}
    show = _table() if sys.stderr.isatty() else _lines
    failure: dict[str, Any] | None = None
    told = False
    try:
        while True:
            event = driver.next_event(0.2)
            if asked.is_set() and not told:
                told = True
                driver.ask_to_stop()
            if event is None:
                continue
            status.take(event, time.time())
            match event["event"]:
                case "started":
                    typer.echo(
                        f"ready job={status.name} queries={','.join(event['queries'])} driver={driver.pid}"
                    )
                case "progress":
                    show(event)
                case "drift":
                    _drift(event)
                case "waiting":
                    typer.echo(f"waiting for {event['for']}", err=True)
                case "failed":
                    failure = event
                case "stopped":
                    typer.echo(f"stopped: {counted(event['rows'], 'record')} read", err=True)
                case "ended":
                    return _exit_code(event["code"], failure, failing, told=told)
    finally:
        driver.stop()
        for number, handler in previous.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def metrics(status: JobStatus, host: str, port: int | None) -> Iterator[int | None]:
    """Serve `GET /metrics` in a thread of its own while the job runs; gives the port. Raises KlammError."""
    if port is None:
        yield None
        return
    import asyncio

    from klamm_base.metrics_server import MetricsServer
    from klamm_spark.status import families

    loop = asyncio.new_event_loop()
    server = MetricsServer(lambda: families(status))
    thread = threading.Thread(target=loop.run_forever, daemon=True, name="metrics")
    try:
        bound = _bound(loop, server, host, port)
        loop.run_until_complete(server.serve())
        thread.start()
        yield bound
    finally:
        if thread.is_alive():
            loop.call_soon_threadsafe(server.close)
            loop.call_soon_threadsafe(loop.stop)
            thread.join(5)
        loop.close()


def _bound(loop: asyncio.AbstractEventLoop, server: MetricsServer, host: str, port: int) -> int:
    from klamm_base.errors import ConfigError, KlammError

    try:
        return loop.run_until_complete(server.bind(host, port))
    except KlammError as e:
        why = e.__cause__.strerror if isinstance(e.__cause__, OSError) else str(e)
        raise ConfigError(
            f"[metrics] port = {port}: cannot listen on {host}: {why}", key="metrics.port"
        ) from e


def _exit_code(code: int, failure: dict[str, Any] | None, failing: Failing, *, told: bool) -> int:
    """Ends the command where the driver failed. `told`: the driver was asked to stop."""
    if failure is not None:
        failing.tell(failure)
    more = f"; its log: {failing.log}" if failing.log is not None else ""
    if told and code == -signal.SIGTERM:  # it did not handle signals yet
        typer.echo("stopped: the job had not begun", err=True)
    elif told and code:
        fail(
            f"the driver process did not stop in time and was ended; the next run goes on from its checkpoint{more}"
        )
    elif code:
        fail(f"the driver process ended unexpectedly (exit code {code}){more}")
    return 0


def _drift(event: dict[str, Any]) -> None:
    found = sum(len(t["found"]) for t in event["topics"].values())
    records = sum(event["records"].values())
    typer.echo(
        f"schema: {counted(found, 'difference')} in {counted(records, 'record')} looked at "
        f"({event['corrupt']} could not be read in full): klamm spark status shows them",
        err=True,
    )


def _lag(event: dict[str, Any]) -> str:
    """Return the number of records behind; `-` when Spark does not say, as for a batch that runs again after a kill."""
    return str(sum(event["lag"].values())) if event["lag"] else "-"


def _lines(event: dict[str, Any]) -> None:
    extra = f" lost={event['lost']}" if event["lost"] else ""
    extra += f" late={event['late']}" if event.get("late") else ""
    if throttled := event.get("sink", {}).get("throttled"):
        extra += f" throttled={throttled}"
    typer.echo(
        f"{event['query']} batch={event['batch']} rows={event['rows']} rows/s={event['rows_per_s']:.0f} "
        f"lag={_lag(event)} ms={event['duration_ms']}{extra}",
        err=True,
    )


def _table() -> Callable[[dict[str, Any]], None]:
    """Return a function that shows one line per query and keeps it up to date."""
    from rich.console import Console
    from rich.table import Table

    latest: dict[str, dict[str, Any]] = {}
    console = Console(stderr=True)
    drawn = 0

    def show(event: dict[str, Any]) -> None:
        nonlocal drawn
        latest[event["query"]] = event
        table = Table(box=None, header_style="bold", pad_edge=False)
        for column in ("QUERY", "BATCH", "ROWS", "ROWS/S", "LAG", "MS", "STATE"):
            table.add_column(column, justify="left" if column == "QUERY" else "right")
        for query, e in latest.items():
            figures = (
                e["batch"],
                e["rows"],
                round(e["rows_per_s"]),
                _lag(e),
                e["duration_ms"],
                e["state_rows"],
            )
            table.add_row(query, *map(str, figures))
        if drawn:
            sys.stderr.write(f"\x1b[{drawn}A\x1b[J")
        console.print(table)
        drawn = len(latest) + 1

    return show
