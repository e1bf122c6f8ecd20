"""The console's own metrics, for Prometheus."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from klamm.web.process_metrics import process_families
from klamm_base.metrics_text import Family, Sample

if TYPE_CHECKING:
    from klamm.console.state import Console

STARTED_S: Final = time.time()


def families(console: Console) -> Iterator[Family]:
    """Yields all families of now."""
    yield from process_families(STARTED_S)
    yield from console.requests.families("klamm_console")
    sessions = {"anonymous": console.sessions.anonymous, "logged in": console.sessions.logged_in}
    yield Family(
        "klamm_console_sessions",
        "gauge",
        "Sessions of browsers, with and without a login.",
        [Sample({"kind": kind}, count) for kind, count in sessions.items()],
    )
    yield Family(
        "klamm_console_logins_total",
        "counter",
        "Logins by result; those of an address that has failed too often are not checked.",
        [Sample({"result": r}, console.logins[r]) for r in ("good", "wrong", "not checked")],
    )
    yield Family(
        "klamm_console_searches",
        "gauge",
        "Searches and live tails that are running.",
        [Sample({}, console.searches)],
    )
    most = console.settings.searches_max
    yield Family("klamm_console_searches_max", "gauge", "As many may run at a time.", [Sample({}, most)])
