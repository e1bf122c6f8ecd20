"""Logging to standard error: time, level, logger, message. It uses the standard library, since start-up time counts.

Each process calls `configure` once at its start; modules only use `logging.getLogger(__name__)`.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from io import TextIOWrapper
from logging.handlers import WatchedFileHandler
from typing import Final

from klamm_base.errors import ConfigError

AUDIT: Final = "klamm.audit"
"""The logger whose messages are JSON objects: logins, denials, changes."""
AUDIT_FILE: Final = "KLAMM_AUDIT_LOG"
"""The variable with the file for the audit log. Without it, its lines are in the log of the server."""
LEVELS: Final = ("DEBUG", "INFO", "WARNING", "ERROR")


class _Formatter(logging.Formatter):
    """A formatter with UTC times in milliseconds, so that logs of servers in several places compare."""

    converter = staticmethod(time.gmtime)
    default_time_format = "%Y-%m-%dT%H:%M:%S"
    default_msec_format = "%s.%03dZ"


class _AuditFormatter(_Formatter):
    """A formatter that puts the time into the JSON object of a message."""

    def format(self, record: logging.LogRecord) -> str:
        said = record.getMessage().removeprefix("{")
        return f'{{"time": "{self.formatTime(record)}", {said}'


class _AuditFile(WatchedFileHandler):
    """A file that only its owner may read, opened again after it was renamed: logrotate needs to tell nobody."""

    def _open(self) -> TextIOWrapper:
        def private(path: str, flags: int) -> int:
            return os.open(path, flags, 0o600)

        return open(self.baseFilename, "a", encoding="utf-8", opener=private)


def configure(level: str = "INFO", *, prefix: str = "") -> None:
    """Sends log lines of `level` and above to standard error; `prefix` names the process in shared output.

    Lines of the audit log go to the file that KLAMM_AUDIT_LOG names. Raises ConfigError when it cannot be written.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Formatter(f"%(asctime)s %(levelname)-7s {prefix}%(name)s: %(message)s"))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    if path := os.environ.get(AUDIT_FILE):
        try:
            file = _AuditFile(path)
        except OSError as e:
            raise ConfigError(f"{AUDIT_FILE}={path}: cannot be written: {e.strerror}") from None
        file.setFormatter(_AuditFormatter())
        audit = logging.getLogger(AUDIT)
        audit.handlers[:] = [file]
        audit.propagate = False
