"""A log that is fed by a test, and what a reader of committed records sees of it."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from pathlib import Path

import psutil
from confluent_kafka import Consumer, TopicPartition

LINE = "line {:07d} of a log that nobody may see twice"


class Feeder:
    """Appends numbered lines to a file from a thread, until stopped; `count` are in the file."""

    def __init__(self, path: Path, *, lines_per_s: int) -> None:
        self.path = path
        self.count = 0
        self._per_s = lines_per_s
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._feed, daemon=True)

    def __enter__(self) -> Feeder:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> int:
        """Ends the lines; returns how many there are."""
        self._stopping.set()
        self._thread.join()
        return self.count

    def _feed(self) -> None:
        step_s = 0.02
        with self.path.open("a") as f:
            while not self._stopping.wait(step_s):
                more = max(1, int(self._per_s * step_s))
                f.write("".join(LINE.format(n) + "\n" for n in range(self.count, self.count + more)))
                f.flush()
                self.count += more


def committed_values(
    bootstrap: str, topic: str, *, isolation: str = "read_committed", timeout_s: float = 60
) -> list[bytes]:
    """Returns every record of a topic that a reader of what is committed sees now, partition by partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"check-{time.monotonic_ns()}",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 10,
        }
    )
    try:
        partitions = consumer.list_topics(topic, timeout=60).topics[topic].partitions
        consumer.assign([TopicPartition(topic, p, 0) for p in partitions])
        left = set(partitions)
        values: list[bytes] = []
        deadline = time.monotonic() + timeout_s
        while left:
            assert time.monotonic() < deadline, f"{topic} cannot be read to its end: {left}"
            for message in consumer.consume(10_000, 0.2):
                if message.error() is None:
                    values.append(message.value() or b"")
                else:
                    left.discard(message.partition())
        return values
    finally:
        consumer.close()


def check_exactly_once(bootstrap: str, topic: str, count: int) -> None:
    """Checks that every line is there once, and in order within its partition (there is one partition)."""
    values = committed_values(bootstrap, topic)
    seen = Counter(values)
    twice = [v for v, n in seen.items() if n > 1]
    assert not twice, f"{len(twice)} of {count} lines came more than once, such as {twice[:3]}"
    missing = [n for n in range(count) if LINE.format(n).encode() not in seen]
    assert not missing, f"{len(missing)} of {count} lines are missing, such as {missing[:3]}"
    assert len(values) == count
    assert values == sorted(values)


def task_pid(worker_pid: int, label: str) -> int | None:
    """Returns the process of a task (`name-0`) below a worker, by what it calls itself; None when it has none just now."""
    try:
        below = psutil.Process(worker_pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return None
    for process in below:
        try:
            if f"klamm connect: {label}" in " ".join(process.cmdline()):
                return process.pid
        except psutil.Error:
            continue
    return None


def kill_9(pid: int | None) -> bool:
    """Kills the process; returns whether there was somebody to kill."""
    if pid is None:
        return False
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True
