"""SIGHUP's two meanings: read the configuration again, or, from a terminal that is closed, end."""

from __future__ import annotations

import os
import signal


class Terminal:
    """The terminal from which this process was started, if it was from one. To be made before SIGHUP has a handler."""

    def __init__(self) -> None:
        # nohup makes us ignore SIGHUP, so that a closed terminal ends nothing
        self._ends = signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN and _controls()

    @property
    def gone(self) -> bool:
        """Tells whether it was closed since, so that a SIGHUP comes from that, and means the end."""
        return self._ends and not _controls()


def _controls() -> bool:
    """Tells whether standard error is the terminal that controls this process."""
    try:
        os.tcgetpgrp(2)
    except OSError:
        return False
    return True
