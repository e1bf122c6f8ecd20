"""The live view: a table that is rewritten on a terminal, plain lines every two seconds elsewhere."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Any, Final, Self

from klamm.demo.logs.measure import Reading
from klamm.demo.logs.stages import RESTARTS

PLAIN_S: Final = 2.0


class View:
    """Shows the readings of all stages. Use it in a `with` block."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._began = time.monotonic()
        self._live: Any = None
        self._printed = 0.0
        self._last: list[Reading] = []

    def __enter__(self) -> Self:
        if sys.stdout.isatty():
            from rich.live import Live

            self._live = Live(refresh_per_second=4)
            self._live.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.__exit__(kind, error, trace)
        elif self._last:
            self._print(self._last)

    def show(self, readings: list[Reading]) -> None:
        """Shows these readings."""
        self._last = readings
        if self._live is not None:
            self._live.update(self._table(readings))
        elif time.monotonic() - self._printed >= PLAIN_S:
            self._printed = time.monotonic()
            self._print(readings)

    def _seconds(self) -> str:
        return f"{time.monotonic() - self._began:.0f} s"

    def _table(self, readings: list[Reading]) -> Any:
        from rich.table import Table

        table = Table(title=f"{self._total:,} lines to come through, {self._seconds()}", title_justify="left")
        table.add_column("stage")
        for name in ("total", "per second", "lag"):
            table.add_column(name, justify="right", min_width=11)
        table.add_column("", min_width=34)
        for r in readings:
            lag = "" if r.lag is None else f"{r.lag:,} {r.unit}"
            style = "green" if r.lag == 0 or r.total >= self._total else ""
            note = f"{r.note}{_restarts(r)}"
            table.add_row(r.stage, f"{r.total:,}", f"{r.rate:,.0f}", lag, note, style=style)
        return table

    def _print(self, readings: list[Reading]) -> None:
        parts = [f"{r.stage} {r.total:,} ({r.rate:,.0f}/s{_lag(r)}{_restarts(r)})" for r in readings]
        print(f"{self._seconds():>5}  " + "  ".join(parts), flush=True)


def _lag(reading: Reading) -> str:
    return f", lag {reading.lag:,} {reading.unit}" if reading.lag else ""


def _restarts(reading: Reading) -> str:
    return f", started again {reading.restarts} of {RESTARTS} times" if reading.restarts else ""
