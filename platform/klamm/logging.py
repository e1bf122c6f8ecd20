"""`KafkaHandler`: an application's log records into a topic, through the standard library's logging.

    logging.getLogger().addHandler(KafkaHandler("127.0.0.1:9092", "app-logs"))

A call costs microseconds and never blocks: records go into librdkafka's queue and are sent by its own thread. When the
queue is full, or a record could not be delivered in time, it is dropped and counted (`dropped`); logging must not stop
what it describes. It imports nothing else of Klamm than the translation of client settings.
"""

from __future__ import annotations

import datetime as dt
import logging
import os
import socket
import sys
import time
import weakref
from collections.abc import Mapping
from typing import Any, Final

import orjson

from klamm_base.clientconfig import translate
from klamm_base.errors import ConfigError

__all__ = ["KafkaHandler"]

_SAID_AGAIN_S: Final = 30.0
_STANDARD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_OPTIONS: Final = orjson.OPT_NON_STR_KEYS
_DEFAULTS: Final = {
    "acks": "all",
    "compression.type": "lz4",
    "linger.ms": 50,
    "message.timeout.ms": 60_000,
    "queue.buffering.max.messages": 0,
    "log_level": 2,  # librdkafka prints by itself; connection errors are said here, sparingly
}


class KafkaHandler(logging.Handler):
    """Sends records as ECS JSON documents, or what a formatter makes of them when one is set.

    `config` holds further producer settings by Kafka's names, `fields` what is added to every JSON document;
    `queue_bytes` bounds the memory for records that wait (a record is dropped when it is full); `flush_timeout` (s)
    is how long `flush` and `close` wait for the broker. `key` is every record's key. Raises ConfigError for settings that
    the client refuses. After a fork the child has a producer of its own; what was queued stays the parent's.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        topic: str,
        *,
        level: int | str = logging.NOTSET,
        key: str | None = None,
        fields: Mapping[str, Any] | None = None,
        config: Mapping[str, Any] | None = None,
        queue_bytes: int = 16 * 1024 * 1024,
        flush_timeout: float = 5.0,
    ) -> None:
        super().__init__(level)
        self.topic = topic
        self.dropped = 0
        self._key = None if key is None else key.encode()
        self._fields = dict(fields or {})
        self._host = socket.gethostname()
        self._flush_timeout = flush_timeout
        given = {name: str(value) for name, value in (config or {}).items()}
        self._config: dict[str, Any] = _DEFAULTS | translate(given, "producer").config
        self._config |= {
            "bootstrap.servers": bootstrap_servers,
            "queue.buffering.max.kbytes": max(1, queue_bytes // 1024),
            "delivery.report.only.error": True,
            "on_delivery": self._undelivered,
            "error_cb": self._on_error,
        }
        self._said_at = float("-inf")
        self._why = ""
        self._closed = False
        self._producer: Any = self._open()
        _handlers.add(self)

    def _open(self) -> Any:
        from confluent_kafka import KafkaException, Producer

        try:
            return Producer(self._config)
        except KafkaException as e:
            raise ConfigError(f"KafkaHandler: {e.args[0].str()}") from None

    def emit(self, record: logging.LogRecord) -> None:
        """Queue one record. Never blocks, never raises."""
        try:
            if self.formatter is None:
                value = self._document(record)
            else:
                value = self.format(record).encode(errors="backslashreplace")
            if self._closed:
                self._drop("the handler is closed")
                return
            if self._producer is None:  # the first record after a fork
                self._producer = self._open()
            try:
                self._producer.produce(self.topic, value, self._key)
            except BufferError:
                self._drop(self._why or "the queue is full")
            self._producer.poll(0)
        except Exception:
            self.dropped += 1
            self.handleError(record)

    def _document(self, record: logging.LogRecord) -> bytes:
        stamp = dt.datetime.fromtimestamp(record.created, tz=dt.UTC).isoformat(timespec="milliseconds")
        document: dict[str, Any] = {
            "@timestamp": f"{stamp[:-6]}Z",
            "message": record.getMessage(),
            "log": {
                "level": record.levelname.lower(),
                "logger": record.name,
                "origin": {
                    "file": {"name": record.pathname, "line": record.lineno},
                    "function": record.funcName,
                },
            },
            "process": {"pid": record.process, "thread": {"name": record.threadName}},
            "host": {"name": self._host},
        }
        if record.exc_info and record.exc_info[0] is not None:
            document["error"] = {
                "type": record.exc_info[0].__name__,
                "message": str(record.exc_info[1]),
                "stack_trace": logging.Formatter().formatException(record.exc_info),
            }
        elif record.stack_info:
            document["error"] = {"stack_trace": record.stack_info}
        if self._fields:
            document |= self._fields
        extra = record.__dict__.keys() - _STANDARD
        if extra:
            document["labels"] = {name: record.__dict__[name] for name in extra}
        try:
            return orjson.dumps(document, default=_text, option=_OPTIONS)
        except TypeError:
            return orjson.dumps(_plain(document), default=_text)

    def flush(self) -> None:
        """Wait until what is queued is delivered, at most `flush_timeout`."""
        if self._producer is not None:
            self._producer.flush(self._flush_timeout)

    def close(self) -> None:
        """Deliver what is queued within `flush_timeout`; the rest is dropped and counted. For good."""
        producer, self._producer, self._closed = self._producer, None, True
        if producer is not None:
            left = producer.flush(self._flush_timeout)
            if left:
                self.dropped += left - 1
                self._drop(f"no broker took them within {self._flush_timeout:g} s")
                producer.purge()
        _handlers.discard(self)
        super().close()

    def _undelivered(self, error: Any, _message: Any) -> None:
        self._drop(error.str())

    def _on_error(self, error: Any) -> None:
        self._why = error.str()

    def _drop(self, why: str) -> None:
        """Count one; say so now and then, as logging does with its own failures (`logging.raiseExceptions`)."""
        self.dropped += 1
        now = time.monotonic()
        if logging.raiseExceptions and sys.stderr is not None and now - self._said_at >= _SAID_AGAIN_S:
            self._said_at = now
            sys.stderr.write(f"KafkaHandler: {self.dropped} log records for {self.topic} dropped: {why}\n")

    def _forked(self) -> None:
        """In the child: librdkafka's threads stayed behind, so the parent's client cannot even be destroyed."""
        if self._producer is not None:
            import ctypes

            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._producer))
            self._producer = None


def _text(value: object) -> str:
    """Also of what is no UTF-8, such as the name of a file in another encoding."""
    return str(value).encode(errors="backslashreplace").decode()


def _plain(value: Any) -> Any:
    """What JSON holds, as it is; the rest (lone surrogates, keys of any kind, huge integers) as text."""
    match value:
        case dict():
            return {_text(k): _plain(v) for k, v in value.items()}
        case list() | tuple():
            return [_plain(v) for v in value]
        case None | bool() | float():
            return value
        case int() if -(1 << 63) <= value < 1 << 64:
            return value
    return _text(value)


_handlers: weakref.WeakSet[KafkaHandler] = weakref.WeakSet()


def _after_fork() -> None:
    for handler in list(_handlers):
        handler._forked()  # noqa: SLF001 - of this module


os.register_at_fork(after_in_child=_after_fork)
