"""The usual names of loggers as ECS's: `msg` is `message`, `levelname` is `log.level`, `trace_id` is `trace.id`. Pure."""

from __future__ import annotations

from typing import Any, Final

from klamm_connectors.logs.parse.fields import Document, get, merge, nested, placer
from klamm_connectors.logs.timestamps import Times
from klamm_connectors.logs.work import Work

_TEXTS: Final = {
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
    "err": "error.message",
    "error": "error.message",
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
}
"""Moved when they are text; objects of these names are taken as ECS's own."""
_NUMBERS: Final = {"pid": "process.pid"}
_PLACES: Final = {name: placer(name) for name in ("log.level", *_TEXTS.values(), *_NUMBERS.values())}
_TIMES: Final = ("@timestamp", "timestamp", "time", "ts", "asctime", "datetime")
_LEVELS: Final = {
    10: "trace",
    20: "debug",
    30: "info",
    40: "warn",
    50: "error",
    60: "fatal",
}  # bunyan's, pino's


class EcsNames:
    """The stage `ecs`."""

    name = "ecs"

    def __init__(self, times: Times | None) -> None:
        """`times` reads the usual time fields; None when one is configured."""
        self._times = times
        self._known = frozenset((*_TEXTS, *_NUMBERS, *(_TIMES if times else ())))

    def run(self, work: Work) -> None:
        """Rename in all documents; take the time out of the first field that is one."""
        known = self._known
        for i, doc in enumerate(work.docs):
            if known.isdisjoint(doc):
                continue
            if self._times is not None and work.seconds[i] is None:
                work.seconds[i] = self._time(doc, work.at)
            for name in [n for n in doc if n in known]:
                self._move(doc, name)

    def _time(self, doc: Document, reference: float) -> float | None:
        assert self._times is not None
        for name in _TIMES:
            if name in doc and (found := self._times.parse(doc[name], reference)) is not None:
                del doc[name]
                return found
        return None

    @staticmethod
    def _move(doc: Document, name: str) -> None:
        value = doc[name]
        if isinstance(value, str):
            to = _TEXTS.get(name)
        elif isinstance(value, int) and not isinstance(value, bool):
            to = _NUMBERS.get(name)
            if name == "level" and value in _LEVELS:
                to, value = "log.level", _LEVELS[value]
        else:
            return
        if to is None or (to == "message" and isinstance(doc.get("message"), str)):
            return
        del doc[name]
        _put_if_absent(doc, to, value, name)


def _put_if_absent(doc: Document, to: str, value: Any, name: str) -> None:
    """What an event has under ECS's own name stays; the other one keeps its name then."""
    if get(doc, to) is None:
        _PLACES[to](doc, value)
    elif name in to.split(".")[:1]:
        merge(doc, nested(to, value))
    else:
        doc[name] = value
