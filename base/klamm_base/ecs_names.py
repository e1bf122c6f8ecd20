"""Loggers' names of fields and ECS's names for them: one table for the log agent and for Spark's log job.

Both move a field to its ECS name when its value fits and the event has no field of that name. Of several fields with one ECS
name the first of the table is moved; a name is looked for at the top of an event only. `host` is `host.hostname`, as Beats
and grok's patterns have it: `host.name` is the host that sends the event.
"""

from __future__ import annotations

import re
from typing import Any, Final

TEXTS: Final = {
    "msg": "message",
    "level": "log.level",
    "severity": "log.level",
    "lvl": "log.level",
    "loglevel": "log.level",
    "levelname": "log.level",
    "log_level": "log.level",
    "logger": "log.logger",
    "logger_name": "log.logger",
    "loggerName": "log.logger",
    "trace_id": "trace.id",
    "traceId": "trace.id",
    "traceID": "trace.id",
    "span_id": "span.id",
    "spanId": "span.id",
    "error": "error.message",  # before `err`: while its text is there no object can be
    "err": "error.message",
    "exception": "error.stack_trace",
    "stack": "error.stack_trace",
    "stacktrace": "error.stack_trace",
    "stack_trace": "error.stack_trace",
    "exc_info": "error.stack_trace",
    "thread": "process.thread.name",
    "thread_name": "process.thread.name",
    "threadName": "process.thread.name",
    "host": "host.hostname",
    "hostname": "host.hostname",
    "service": "service.name",
    "user": "user.name",
    "method": "http.request.method",
    "path": "url.original",
}
"""Fields that fit when they are text."""
NUMBERS: Final = {"pid": "process.pid", "status": "http.response.status_code"}
"""Fields that fit when they are whole numbers, or text that matches `NUMBER`; the event gets a number."""
IDS: Final = {"id": "event.id"}
"""Fields that fit when they are text or whole numbers; the event gets text."""
NAMES: Final = TEXTS | NUMBERS | IDS
NUMBER: Final = r"[0-9]{1,9}"
TIMES: Final = ("@timestamp", "timestamp", "time", "ts", "asctime", "datetime")
"""Fields that may hold an event's time, the first one first."""
LEVELS: Final = {10: "trace", 20: "debug", 30: "info", 40: "warn", 50: "error", 60: "fatal"}
"""The numbers of bunyan and pino for `log.level`: these fit as well, also as text."""

_NUMBER: Final = re.compile(NUMBER)
_LEVELS: Final = {str(number): level for number, level in LEVELS.items()}


def moved(name: str, value: Any) -> tuple[str, Any] | None:
    """Returns the ECS name and value for a field `name` of a parsed event; None for a field that stays as it is."""
    kind = type(value)
    if kind is str:
        if (to := TEXTS.get(name)) is not None:
            return to, _LEVELS.get(value, value) if to == "log.level" else value
        if (to := NUMBERS.get(name)) is not None:
            return (to, int(value)) if _NUMBER.fullmatch(value) else None
        return (IDS[name], value) if name in IDS else None
    if kind is int:
        if (to := NUMBERS.get(name)) is not None:
            return (to, value) if 0 <= value < 10**9 else None
        if name in IDS:
            return IDS[name], str(value)
        if TEXTS.get(name) == "log.level" and value in LEVELS:
            return "log.level", LEVELS[value]
    return None
