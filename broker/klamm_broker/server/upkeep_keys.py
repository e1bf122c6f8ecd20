"""The broker's properties of upkeep: checkpoints, retention, the log cleaner, and what Klamm alone has."""

from __future__ import annotations

import re
from typing import Any, Final

from klamm_base.configdef import Importance, Type, between, invalid, non_empty, one_of

MINUTE: Final = 60_000
_HASH: Final = re.compile(r"[0-9a-fA-F]{64}")


def define(key: Any) -> None:
    """Define the properties with `key(name, type, default, validator, documentation)`."""
    _log_keys(key)
    _cleaner_keys(key)
    _telemetry_keys(key)
    _klamm_keys(key)


def _log_keys(key: Any) -> None:
    positive, not_negative = between(1), between(0)
    key(
        "log.flush.offset.checkpoint.interval.ms",
        Type.INT,
        MINUTE,
        not_negative,
        "The interval at which recovery points are written, in milliseconds.",
    )
    key(
        "log.flush.start.offset.checkpoint.interval.ms",
        Type.INT,
        MINUTE,
        not_negative,
        "The interval at which log start offsets are written, in milliseconds.",
    )
    key(
        "log.retention.check.interval.ms",
        Type.LONG,
        300_000,
        positive,
        "The interval at which retention looks for segments to drop, in milliseconds.",
    )


def _cleaner_keys(key: Any) -> None:
    _positive, not_negative = between(1), between(0)
    key(
        "log.cleaner.enable",
        Type.BOOLEAN,
        True,
        None,
        "Lets the cleaner compact topics, the internal ones included.",
    )
    key(
        "log.cleaner.threads",
        Type.INT,
        1,
        not_negative,
        "Kept for compatibility: one process cleans, one log at a time, with the memory of all threads.",
        importance=Importance.LOW,
    )
    key(
        "log.cleaner.dedupe.buffer.size",
        Type.LONG,
        128 << 20,
        between(1 << 20),
        "Memory for keys, in bytes: some 5,000 keys a megabyte. A log with more dirty keys is cleaned in several rounds.",
    )
    key(
        "log.cleaner.io.buffer.load.factor",
        Type.DOUBLE,
        0.9,
        between(0, 1),
        "The share of `log.cleaner.dedupe.buffer.size` that may be used.",
        importance=Importance.LOW,
    )
    key(
        "log.cleaner.io.buffer.size",
        Type.INT,
        512 << 10,
        not_negative,
        "Memory for reading and writing, in bytes; it grows for larger batches.",
    )
    key(
        "log.cleaner.io.max.bytes.per.second",
        Type.DOUBLE,
        1.7976931348623157e308,
        None,
        "The bytes that the cleaner may read and write in a second on average.",
    )
    key(
        "log.cleaner.backoff.ms",
        Type.LONG,
        15_000,
        not_negative,
        "The pause when there is no log to clean, in milliseconds.",
    )


def _telemetry_keys(key: Any) -> None:
    key(
        "telemetry.max.bytes",
        Type.INT,
        1024 * 1024,
        between(1),
        "The most bytes of metrics that a client may push at once, compressed and decompressed.",
        importance=Importance.LOW,
    )


def _klamm_keys(key: Any) -> None:
    positive, _not_negative = between(1), between(0)
    key(
        "num.recovery.threads.per.data.dir",
        Type.INT,
        2,
        positive,
        "Accepted; recovery runs in the starting process.",
    )
    key(
        "klamm.event.loop",
        Type.STRING,
        "auto",
        one_of("auto", "asyncio", "uvloop"),
        "Event loop: `auto` takes asyncio's, which is as fast here (raw sockets, no streams) and starts sooner.",
        importance=Importance.LOW,
    )
    key(
        "klamm.metrics.port",
        Type.INT,
        -1,
        between(-1, 65535),
        "Port of `GET /metrics` (Prometheus' text format); 0 takes a free one, -1 serves none.",
    )
    key(
        "klamm.metrics.host",
        Type.STRING,
        "localhost",
        non_empty,
        "Address that `klamm.metrics.port` is on. The metrics name topics and groups: do not open it to everybody.",
    )
    key(
        "klamm.metrics.listener.name",
        Type.STRING,
        None,
        None,
        "A listener with TLS: the metrics are served over HTTPS with its certificate. Without it they are served over HTTP.",
    )
    key(
        "klamm.metrics.tokens.sha256",
        Type.LIST,
        [],
        _hashes,
        "SHA-256 hashes in hex of the bearer tokens that may read the metrics (`klamm connect token` makes one); empty: everybody.",
    )


def _hashes(name: str, value: Any) -> None:
    for item in value or ():
        if not _HASH.fullmatch(item):
            raise invalid(name, item, "must be SHA-256 hashes, each of 64 hexadecimal digits")
