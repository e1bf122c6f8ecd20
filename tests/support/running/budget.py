"""The time that a run of CI may take: `.ci/run` says in the environment when it began, and its budget."""

from __future__ import annotations

import os
import time
from typing import Final

MINUTES: Final = "KLAMM_CI_BUDGET_MINUTES"
STARTED: Final = "KLAMM_CI_STARTED"
GRACE_S: Final = 600.0
"""The seconds after the end of the budget at which a slice, or a test that is run again, is ended."""


def end(*, late: bool = False) -> float | None:
    """Returns the Unix time at which the budget ends; None outside of CI. `late`: when what still runs then is ended."""
    if not (started := os.environ.get(STARTED)):
        return None
    return float(started) + 60 * float(os.environ.get(MINUTES) or 30) + (GRACE_S if late else 0)


def start_here() -> float:
    """Begins the budget now, for this process and those that it starts, unless CI began it before; returns its end."""
    os.environ.setdefault(STARTED, str(time.time()))
    ends = end()
    assert ends is not None
    return ends
