"""Logging to standard error: time, level, logger, message. It uses the standard library, since start-up time counts.

Each process calls `configure` once at its start; modules only use `logging.getLogger(__name__)`.
"""

from __future__ import annotations

import logging
import sys
import time
from typing import Final

LEVELS: Final = ("DEBUG", "INFO", "WARNING", "ERROR")


class _Formatter(logging.Formatter):
    """A formatter with UTC times in milliseconds, so that logs of servers in several places compare."""

    converter = staticmethod(time.gmtime)
    default_time_format = "%Y-%m-%dT%H:%M:%S"
    default_msec_format = "%s.%03dZ"


def configure(level: str = "INFO", *, prefix: str = "") -> None:
    """Sends log lines of `level` and above to standard error; `prefix` names the process in shared output."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Formatter(f"%(asctime)s %(levelname)-7s {prefix}%(name)s: %(message)s"))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
