"""structlog: a logger factory that ends in the queue, and a processor that makes ECS documents.

    structlog.configure(
        processors=[structlog.contextvars.merge_contextvars, structlog.processors.add_log_level, EcsRenderer()],
        logger_factory=KafkaLoggerFactory("127.0.0.1:9092", "app-logs"),
    )

Nothing here imports structlog: it takes its processors and factories as plain callables.
"""

from __future__ import annotations

import atexit
import os
import socket
import sys
import time
from collections.abc import Mapping, MutableMapping
from typing import Any, Final

from klamm.logging.documents import encode, error, stamp
from klamm_agent.handler.shipper import Shipper

_TAKEN: Final = frozenset({"event", "level", "logger", "timestamp", "exc_info", "exception", "stack"})


class EcsRenderer:
    """The last processor: it makes an ECS document, in bytes, of an event's dict.

    `event` is the message, `level` and `logger` are `log.level` and `log.logger`, `timestamp` (ISO text or seconds) is
    `@timestamp`, `exc_info` (or a formatted `exception`) goes to `error`; the rest goes to `labels`.
    """

    def __init__(self, fields: Mapping[str, Any] | None = None) -> None:
        self._fields = dict(fields or {})
        self._host = socket.gethostname()

    def __call__(self, logger: Any, method: str, event: MutableMapping[str, Any]) -> bytes:
        at = event.get("timestamp")
        found: dict[str, Any] = {
            "@timestamp": at
            if isinstance(at, str)
            else stamp(at if isinstance(at, (int, float)) else time.time()),
            "message": event.get("event", ""),
            "log": {"level": str(event.get("level", method)).lower()},
            "process": {"pid": os.getpid()},
            "host": {"name": self._host},
        }
        if not isinstance(found["message"], str):
            found["message"] = str(found["message"])
        if name := event.get("logger"):
            found["log"]["logger"] = name
        if told := _error(event):
            found["error"] = told
        found |= self._fields
        labels = {name: value for name, value in event.items() if name not in _TAKEN}
        if labels:
            found["labels"] = labels
        return encode(found)


def _error(event: MutableMapping[str, Any]) -> dict[str, Any] | None:
    exc_info = event.get("exc_info")
    if exc_info is True:
        exc_info = sys.exc_info()
    elif isinstance(exc_info, BaseException):
        exc_info = (type(exc_info), exc_info, exc_info.__traceback__)
    if isinstance(exc_info, tuple) and exc_info[0] is not None:
        return error(exc_info)
    text = event.get("exception") or event.get("stack")
    return {"stack_trace": text} if text else None


class KafkaLogger:
    """The logger that structlog's bound loggers wrap: each method queues one record, text or bytes. Never blocks, never raises."""

    def __init__(self, shipper: Shipper) -> None:
        self._shipper = shipper

    def msg(self, message: str | bytes) -> None:
        """Queues one record."""
        value = message if isinstance(message, bytes) else str(message).encode(errors="backslashreplace")
        self._shipper.put(value)

    log = debug = info = warn = warning = error = err = fatal = critical = failure = exception = msg


class KafkaLoggerFactory:
    """A factory of loggers that share one queue. It takes the arguments of `KafkaHandler`, but `fields`. Call `close` at the end, or
    leave that to the interpreter's exit.
    """

    def __init__(self, bootstrap_servers: str, topic: str, **options: Any) -> None:
        self._shipper = Shipper(bootstrap_servers, topic, **options)
        atexit.register(self.close)

    def __call__(self, *args: Any) -> KafkaLogger:
        return KafkaLogger(self._shipper)

    @property
    def dropped(self) -> int:
        """The number of dropped records."""
        return self._shipper.dropped

    def statistics(self) -> dict[str, Any]:
        """Returns the figures that `KafkaHandler.statistics` describes."""
        return self._shipper.statistics()

    def flush(self) -> None:
        """Waits until queued records are delivered or in the spool, at most `flush_timeout`."""
        self._shipper.flush()

    def close(self) -> None:
        """Delivers or spools the queued records. For good."""
        atexit.unregister(self.close)
        self._shipper.close()
