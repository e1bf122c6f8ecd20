"""The usual names of loggers as ECS's: `msg` is `message`, `levelname` is `log.level`, `trace_id` is `trace.id`. Pure."""

from __future__ import annotations

from typing import Final

from klamm_agent.stages.parse.fields import Document, get, put
from klamm_agent.stages.staged import StagedEvents
from klamm_agent.stages.timestamps import Times

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
_PARTS: Final = {
    to: (to.partition(".")[0], to.partition(".")[2])
    for to in ("log.level", *_TEXTS.values(), *_NUMBERS.values())
}
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

    def run(self, staged: StagedEvents) -> None:
        """Rename in all documents; take the time out of the first field that is one."""
        known = self._known
        for i, doc in enumerate(staged.docs):
            if known.isdisjoint(doc):
                continue
            if self._times is not None and staged.seconds[i] is None:
                staged.seconds[i] = self._time(doc, staged.at)
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
        """What an event has under ECS's own name stays; the other one keeps its name then."""
        value = doc[name]
        if type(value) is str:
            to = _TEXTS.get(name)
        elif type(value) is int:
            to = _NUMBERS.get(name)
            if name == "level" and value in _LEVELS:
                to, value = "log.level", _LEVELS[value]
        else:
            return
        if to is None:
            return
        first, last = _PARTS[to]
        inner = doc.get(first) if last else None
        if "." in last:
            if inner is None or (type(inner) is dict and get(doc, to) is None):
                put(doc, to, value)
                del doc[name]
        elif type(inner) is dict:
            if inner.get(last) is None:
                inner[last] = value
                del doc[name]
        elif last and inner is None:
            doc[first] = {last: value}
            del doc[name]
        elif name == first:
            del doc[name]
            doc[first] = {last: value}
        elif not last and first not in doc:
            doc[first] = value
            del doc[name]
