"""`klamm top`: a page of rates, lag and tasks that renews itself."""

from __future__ import annotations

import select
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from klamm.cli.chosen_context import NO_ADDRESS
from klamm.cli.cluster import AdminCluster
from klamm.cli.common import Output, OutputOption, fail, print_record, reported
from klamm.cli.rest_client import Worker

if TYPE_CHECKING:
    from klamm.top.figures import Look

_QUIT = frozenset("qQ\x1b\x03")


def top(
    cluster: AdminCluster,
    worker: Worker,
    interval: Annotated[
        float, typer.Option("--interval", "-n", min=0.2, help="Seconds between two looks.")
    ] = 2.0,
    internal: Annotated[bool, typer.Option("--internal", help="Internal topics, too.")] = False,
    no_connect: Annotated[bool, typer.Option("--no-connect", help="Ask no Connect worker.")] = False,
    metrics_url: Annotated[
        str | None,
        typer.Option("--metrics-url", help="A broker's /metrics, for bytes a second.", show_default=False),
    ] = None,
    once: Annotated[
        bool,
        typer.Option("--once", help="Look twice, print once, end. So it does where there is no terminal."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="As --once -o json.")] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show rates, lag and tasks, again and again.

    Topics with most records a second come first, groups by their lag, and connectors that failed. q ends it, space pauses it.
    """  # fmt: skip
    from klamm.top.looking import look

    def states() -> Any:
        return worker.call("GET", "/connectors?expand=status", timeout_s=5)

    def see() -> Look:
        ask = None if no_connect or worker.url == NO_ADDRESS else states
        return cluster.ask(
            lambda admin: look(admin, internal=internal, connectors=ask, metrics_url=metrics_url)
        )

    with reported():
        form = Output.JSON if as_json else output
        if once or form.structured or not sys.stdout.isatty():
            _print_once(see, interval, cluster.bootstrap, form)
        elif not sys.stdin.isatty():
            fail("standard input is no terminal, so no key could end the page; give --once")
        else:
            _run(see, interval, cluster.bootstrap)


def _print_once(see: Callable[[], Look], interval: float, title: str, output: Output) -> None:
    from klamm.top.figures import figures

    first = see()
    time.sleep(interval)
    shown = figures(see(), first)
    if output.structured:
        print_record(asdict(shown), output)
        return
    from rich.console import Console

    from klamm.top.page import page

    rows = len(shown.topics) + len(shown.groups) + len(shown.connectors or ())
    Console().print(page(shown, height=4 * rows + 30, title=title))


def _run(see: Callable[[], Look], interval: float, title: str) -> None:
    from rich.console import Console
    from rich.live import Live

    from klamm.top.figures import figures
    from klamm.top.page import page

    console, before, paused = Console(), None, False
    now: Any = see()
    with _keys() as key, Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            live.update(
                page(figures(now, before), height=console.height, title=title, paused=paused), refresh=True
            )
            pressed = key(interval)
            if pressed in _QUIT and pressed:
                return
            if pressed == " ":
                paused = not paused
            elif not paused:
                before, now = now, see()


@contextmanager
def _keys() -> Iterator[Callable[[float], str]]:
    """Gives a function that waits so many seconds for a key, and returns it, or "". The terminal is as before afterwards."""
    import termios
    import tty

    fd = sys.stdin.fileno()
    before = termios.tcgetattr(fd)
    try:
        tty.setcbreak(fd)

        def key(wait_s: float) -> str:
            readable, _, _ = select.select([fd], [], [], wait_s)
            return sys.stdin.read(1) if readable else ""

        yield key
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)
