"""The eighteen cells in which brokers are compared: what varies, and how one run of a cell is measured.

A cell is one way of using a broker: record size, partitions, connections, acks, codec, and whether it writes, reads what
is in the page cache, reads at the tail, reads what is only on the disk, or sends one small message at a time.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bench.broker import load
from bench.servers import Server


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """`size` of a record in bytes; `mb` of record values a run (1e6 bytes); `messages` of the latency cells."""

    name: str
    kind: str  # produce, consume, tail, cold, ping
    size: int = 1024
    partitions: int = 4
    connections: int = 1
    acks: str = "1"
    codec: str = "none"
    mb: int = 512
    messages: int = 3000
    beside_mb_s: int = 0  # of another producer, during a ping
    tls: bool = False

    @property
    def kind_of_figure(self) -> str:
        """The first figure of its results."""
        return "p50_us" if self.kind == "ping" else "mb_s"

    @property
    def about(self) -> str:
        parts = [
            f"{self.size} B",
            f"{self.partitions} p",
            f"{self.connections} c",
            f"acks={self.acks}",
            self.codec,
        ]
        if self.tls:
            parts.append("TLS 1.3")
        if self.beside_mb_s:
            parts.append(f"beside {self.beside_mb_s} MB/s")
        return ", ".join(parts)


CELLS = [
    Cell(name="produce-1k", kind="produce"),
    Cell(name="produce-100b", kind="produce", size=100, mb=96),
    Cell(name="produce-10k", kind="produce", size=10_240),
    Cell(name="produce-100k", kind="produce", size=102_400),
    Cell(name="produce-all", kind="produce", acks="all"),
    Cell(name="produce-lz4", kind="produce", codec="lz4"),
    Cell(name="produce-zstd", kind="produce", codec="zstd"),
    Cell(name="produce-16c", kind="produce", connections=16, partitions=16),
    Cell(name="produce-500p", kind="produce", partitions=500),
    Cell(name="consume-1k", kind="consume"),
    Cell(name="consume-100b", kind="consume", size=100, mb=96),
    Cell(name="consume-16c", kind="consume", connections=16, partitions=16),
    Cell(name="produce-tls", kind="produce", tls=True),
    Cell(name="consume-tls", kind="consume", tls=True),
    Cell(name="tail-1k", kind="tail"),
    Cell(name="cold-1k", kind="cold"),
    Cell(name="ping-100b", kind="ping", size=100, acks="all"),
    Cell(name="ping-busy", kind="ping", size=100, acks="all", beside_mb_s=50),
]


def run(cell: Cell, server: Server, *, share: float = 1.0) -> dict[str, float]:
    """One run on a topic of its own; `share` of the cell's volume (a warm-up needs less)."""
    topic = load.create_topic(server.bootstrap, cell.partitions)
    try:
        return _KINDS[cell.kind](cell, server, topic, share)
    finally:
        load.delete_topic(server.bootstrap, topic)


def _records(cell: Cell, share: float) -> int:
    return max(cell.connections, int(cell.mb * share * 1e6 / cell.size))


def _produce(cell: Cell, server: Server, topic: str, share: float) -> dict[str, float]:
    records = _records(cell, share)
    return _rate(server, records * cell.size, lambda: _write(cell, server, topic, records))


def _consume(cell: Cell, server: Server, topic: str, share: float) -> dict[str, float]:
    records = _records(cell, share)
    _write(cell, server, topic, records)
    return _rate(server, records * cell.size, lambda: _read(cell, server, topic, records))


def _cold(cell: Cell, server: Server, topic: str, share: float) -> dict[str, float]:
    records = _records(cell, share)
    _write(cell, server, topic, records)
    forget_pages(server.directory, topic)
    return _rate(server, records * cell.size, lambda: _read(cell, server, topic, records))


def _tail(cell: Cell, server: Server, topic: str, share: float) -> dict[str, float]:
    records = _records(cell, share)

    def both() -> None:
        _in_threads([
            lambda: _read(cell, server, topic, records),
            lambda: _write(cell, server, topic, records),
        ])  # fmt: skip

    return _rate(server, records * cell.size, both)


def _ping(cell: Cell, server: Server, topic: str, share: float) -> dict[str, float]:
    other = load.create_topic(server.bootstrap, 4) if cell.beside_mb_s else None
    stop = threading.Event()
    beside = threading.Thread(
        target=load.produce_steadily, args=(server.bootstrap, other, cell.beside_mb_s, stop)
    )
    if other is not None:
        beside.start()
        time.sleep(0.3)
    try:
        took = sorted(
            load.latency_us(
                server.bootstrap, topic, messages=int(cell.messages * share), acks=cell.acks, size=cell.size
            )
        )
    finally:
        stop.set()
        if other is not None:
            beside.join()
            load.delete_topic(server.bootstrap, other)
    return {"p50_us": took[len(took) // 2], "p99_us": took[len(took) * 99 // 100]}


_KINDS: dict[str, Callable[[Cell, Server, str, float], dict[str, float]]] = {
    "produce": _produce, "consume": _consume, "cold": _cold, "tail": _tail, "ping": _ping,
}  # fmt: skip


def _rate(server: Server, size: int, work: Callable[[], None]) -> dict[str, float]:
    cpu, begin = server.cpu_s(), time.monotonic()
    work()
    seconds = time.monotonic() - begin
    return {"mb_s": size / 1e6 / seconds, "cpu_s_gb": (server.cpu_s() - cpu) / (size / 1e9)}


def _address(cell: Cell, server: Server) -> str:
    return server.tls_bootstrap if cell.tls else server.bootstrap


def _write(cell: Cell, server: Server, topic: str, records: int) -> None:
    each = records // cell.connections
    _in_threads([
        lambda c=c: load.produce(
            _address(cell, server), topic, records=each if c else records - each * (cell.connections - 1), size=cell.size,
            partitions=cell.partitions, acks=cell.acks, codec=cell.codec, first_partition=c,
        )
        for c in range(cell.connections)
    ])  # fmt: skip


def _read(cell: Cell, server: Server, topic: str, records: int) -> None:
    """Each connection reads its share of the partitions to their ends."""
    total = load.Countdown(records)
    _in_threads([
        lambda c=c: load.consume(
            _address(cell, server), topic, remaining=total,
            partitions=range(c, cell.partitions, cell.connections),
        )
        for c in range(cell.connections)
    ])  # fmt: skip


def _in_threads(jobs: list[Callable[[], object]]) -> None:
    if len(jobs) == 1:
        jobs[0]()
        return
    failed: list[BaseException] = []

    def guarded(job: Callable[[], object]) -> None:
        try:
            job()
        except BaseException as e:
            failed.append(e)

    threads = [threading.Thread(target=guarded, args=(job,)) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]


def forget_pages(directory: Path, topic: str) -> None:
    """Write a topic's segments to the disk and drop them from the page cache: what follows is read cold."""
    for path in (directory / "data").glob(f"{topic}-*/*.log"):
        fd = os.open(path, os.O_RDONLY)
        try:
            os.fsync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(fd)
