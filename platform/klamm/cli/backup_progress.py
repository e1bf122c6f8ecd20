"""Progress of backups on standard error: a bar with rate and remaining time on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import typer

if TYPE_CHECKING:
    from klamm.backup.progress import Progress

LINE_S: Final = 10.0


@contextmanager
def shown_progress() -> Iterator[Progress]:
    """Give a progress that shows itself until the end."""
    if not sys.stderr.isatty():
        yield Lines(lambda text: typer.echo(f"klamm: {text}", err=True), time.monotonic)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"), TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        yield Bar(bar, time.monotonic)


class Lines:
    """Progress as lines, at most one in `LINE_S`: a run that ends sooner says nothing."""

    def __init__(self, say: Callable[[str], None], clock: Callable[[], float]) -> None:
        self.say = say
        self._clock = clock
        self._what, self._total, self._done, self._size = "", 0, 0, 0
        self._since = self._said = clock()

    def begin(self, what: str, total: int) -> None:
        self._what, self._total, self._done, self._size = what, total, 0, 0
        self._since = self._said = self._clock()

    def advance(self, offsets: int, size: int) -> None:
        self._done += offsets
        self._size += size
        now = self._clock()
        if now - self._said < LINE_S:
            return
        self._said = now
        spent = now - self._since
        left = f", {spent * (self._total - self._done) / self._done:.0f} s left" if self._done else ""
        self.say(f"{self._what}: {self._done} of {self._total} records, {_rate(self._size, spent)}{left}")


class Bar:
    """Progress as a bar of rich."""

    def __init__(self, bar: Any, clock: Callable[[], float]) -> None:
        self._bar = bar
        self._clock = clock
        self._task: Any = None
        self._size = 0
        self._since = clock()

    def begin(self, what: str, total: int) -> None:
        self._since, self._size = self._clock(), 0
        self._task = self._bar.add_task(what, total=total, rate="")

    def advance(self, offsets: int, size: int) -> None:
        self._size += size
        rate = _rate(self._size, self._clock() - self._since)
        self._bar.update(self._task, advance=offsets, rate=rate)

    def say(self, text: str) -> None:
        self._bar.console.print(f"klamm: {text}", markup=False, highlight=False)


def _rate(size: int, spent_s: float) -> str:
    return f"{size / max(spent_s, 1e-3) / 1e6:.1f} MB/s"
