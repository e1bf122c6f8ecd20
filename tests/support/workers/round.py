"""One round: a cluster under load, one fault after the other until so many rebalances are done, then the judgement.

A fault is drawn from `FAULTS` by the round's seed. After each the group has to settle: every task RUNNING on a worker
that is alive, and leaving traces.
"""

from __future__ import annotations

import contextlib
import json
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from confluent_kafka import Consumer, KafkaError, TopicPartition
from support.connect_worker import wait_for
from support.workers.cluster import HEARTBEAT_MS, SESSION_MS, Cluster, Feeder
from support.workers.judge import (
    Number,
    Violation,
    judge_delivery,
    judge_lines,
    judge_numbers,
    judge_tenure,
)
from support.workers.plugins import SINK, SOURCE

FILE_SOURCE = "org.apache.kafka.connect.file.FileStreamSourceConnector"
FILES, TASKS, SINKS = 3, 4, 3
LONG_S = SESSION_MS / 1000 + 2
SHORT_S = 1.0
DRAIN_S = 60.0
WAKING_MS = 1500
"""The time that a process that stood still with its whole tree may run on: its lease ends at its first look at the clock."""


@dataclass
class Result:
    seed: int
    exactly_once: bool
    rebalances: int = 0
    seconds: float = 0.0
    faults: Counter[str] = field(default_factory=Counter)
    checked: Counter[str] = field(default_factory=Counter)
    violations: list[Violation] = field(default_factory=list)
    slowest_s: float = 0.0
    """The longest time from a fault's end until everything ran again."""
    takeovers_s: list[float] = field(default_factory=list)
    """The seconds until the work of a killed or stopped worker ran elsewhere."""

    @property
    def good(self) -> bool:
        return not self.violations


class Round:
    """See the module."""

    def __init__(
        self, directory: Path, *, seed: int, exactly_once: bool, say: Callable[[str], None] = print
    ) -> None:
        self._dir, self._say = directory, say
        self._random = random.Random(seed)
        self.result = Result(seed, exactly_once)
        self._excused: list[tuple[int, int]] = []
        self._paths = [directory / f"in-{i}.txt" for i in range(FILES)]
        self._out = directory / "out.txt"
        self._tasks = self._tasks_max = TASKS
        self._wanted = {f"file-{i}": 1 for i in range(FILES)} | {"tenure": TASKS, "sink": SINKS}
        self._high = 0

    def run(self, rebalances: int) -> Result:
        start = time.monotonic()
        for path in self._paths:
            path.touch()
        cluster = self._cluster = Cluster(self._dir, exactly_once=self.result.exactly_once)
        try:
            self._create()
            feeder = Feeder(self._paths)
            cluster.settle(self._wanted)
            try:
                self._break_things(rebalances)
            finally:
                feeder.stop()
            self._finish(feeder)
        finally:
            cluster.close()
        self.result.seconds = time.monotonic() - start
        return self.result

    # The load

    def _create(self) -> None:
        for i, path in enumerate(self._paths):
            config = {"connector.class": FILE_SOURCE, "file": str(path), "topic": f"file-{i}"}
            self._cluster.put(f"file-{i}", config | {"tasks.max": "1"})
        self._cluster.put("tenure", self._tenure())
        # Kafka's consumers look for new topics every five minutes.
        consumer = {
            "consumer.override.metadata.max.age.ms": "500",
            "consumer.override.isolation.level": "read_committed",
        }
        config = {
            "connector.class": SINK,
            "topics.regex": "file-.*|tenure-.*",
            "tasks.max": str(SINKS),
            "trace.file": str(self._dir / "sink.trace"),
            "out.file": str(self._out),
        }
        self._cluster.put("sink", config | consumer)

    def _tenure(self) -> dict[str, str]:
        return {
            "connector.class": SOURCE,
            "tasks.max": "8",
            "tasks": str(self._tasks),
            "topic": "tenure",
            "trace.file": str(self._dir / "tenure.trace"),
        }

    # The faults

    def _break_things(self, rebalances: int) -> None:
        first = self._cluster.generation()
        faults: dict[str, tuple[int, Callable[[], None]]] = {
            "kill": (4, self._kill),
            "kill two": (1, self._kill_two),
            "orderly restart": (3, self._restart),
            "pause, long": (3, lambda: self._pause(LONG_S)),
            "pause, short": (1, lambda: self._pause(SHORT_S)),
            "pause of the whole tree": (2, self._pause_tree),
            "cut, long": (3, lambda: self._cut(LONG_S)),
            "cut, short": (1, lambda: self._cut(SHORT_S)),
            "silence, long": (2, lambda: self._freeze(LONG_S)),
            "fork server killed": (1, self._kill_fork_server),
            "other number of tasks": (2, self._resize),
        }
        names, weights = list(faults), [weight for weight, _ in faults.values()]
        while self._seen(first) < rebalances:
            (name,) = self._random.choices(names, weights)
            began = time.monotonic()
            faults[name][1]()
            healed = time.monotonic()
            self._cluster.settle(self._wanted)
            took = time.monotonic() - healed
            self.result.faults[name] += 1
            self.result.slowest_s = max(self.result.slowest_s, took)
            self._check_traces()
            self._say(
                f"{name}: {healed - began:.1f} s, settled {took:.1f} s later, "
                f"{self._seen(first)} of {rebalances} rebalances"
            )
        self.result.rebalances = self._seen(first)

    def _seen(self, first: int) -> int:
        self._high = max(self._high, self._cluster.generation())
        return self._high - first

    def _any(self) -> int:
        return self._random.randrange(len(self._cluster.workers))

    def _kill(self) -> None:
        which = self._any()
        self._cluster.workers[which].end()
        if self._random.random() < 0.5:
            self._settle_without()
        self._cluster.start(which)

    def _kill_two(self) -> None:
        both = self._random.sample(range(len(self._cluster.workers)), 2)
        for which in both:
            self._cluster.workers[which].end()
        for which in both:
            self._cluster.start(which)

    def _restart(self) -> None:
        which = self._any()
        code = self._cluster.workers[which].stop(signal.SIGTERM)
        if code != 0:
            self.result.violations.append(Violation("lost", f"an orderly stop ended with {code}"))
        if self._random.random() < 0.5:
            self._settle_without()
        self._cluster.start(which)

    def _settle_without(self) -> None:
        """Waits until the others have taken over; the time that it takes counts from now."""
        began = time.monotonic()
        self._cluster.settle(self._wanted)
        self.result.takeovers_s.append(time.monotonic() - began)

    def _pause(self, seconds: float) -> None:
        process = self._cluster.workers[self._any()].process
        process.send_signal(signal.SIGSTOP)
        time.sleep(seconds)
        process.send_signal(signal.SIGCONT)

    def _pause_tree(self) -> None:
        tree = self._cluster.tree(self._any())
        start = _now_ms()
        for process in tree:
            with contextlib.suppress(
                psutil.NoSuchProcess
            ):  # a task ends when its worker is silent for too long
                process.suspend()
        time.sleep(LONG_S)
        for process in reversed(tree):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.resume()
        self._excused.append((start, _now_ms()))

    def _cut(self, seconds: float) -> None:
        relay = self._cluster.broker.relays[self._any()]
        relay.cut()
        time.sleep(seconds)
        relay.heal()

    def _freeze(self, seconds: float) -> None:
        relay = self._cluster.broker.relays[self._any()]
        relay.freeze()
        time.sleep(seconds)
        relay.heal()

    def _kill_fork_server(self) -> None:
        children = self._cluster.tree(self._any())[1:]
        if children:
            with contextlib.suppress(psutil.NoSuchProcess):
                children[0].kill()

    def _resize(self) -> None:
        self._tasks = self._random.choice([n for n in (3, 4, 5, 6) if n != self._tasks])
        self._tasks_max = max(self._tasks_max, self._tasks)
        self._wanted["tenure"] = self._tasks
        self._cluster.put("tenure", self._tenure())

    def _check_traces(self) -> None:
        """Waits until every task of `tenure` has been at work since now."""
        since = _now_ms()
        missing = set(range(self._tasks))

        def all_work() -> bool:
            found = {int(task) for task, _, ms in self._trace("tenure.trace", tail=True) if ms >= since}
            missing.difference_update(found)
            return not missing

        try:
            wait_for(all_work, timeout_s=15)
        except AssertionError:
            what = f"tasks {sorted(missing)} of {self._tasks} do nothing"
            self.result.violations.append(Violation("idle", what))
            self._say(f"{what}\n{self._cluster.logs()}")

    def _trace(self, name: str, *, tail: bool = False) -> list[tuple[str, str, int]]:
        path = self._dir / name
        if not path.exists():
            return []
        with path.open("rb") as f:
            if tail:
                f.seek(max(0, path.stat().st_size - 8192))
                f.readline()
            lines = f.read().decode().split("\n")[:-1]  # the last one may be half written
        return [(task, run, int(ms)) for task, run, ms, _ in (line.split() for line in lines)]

    # The judgement

    def _finish(self, feeder: Feeder) -> None:
        """Waits until everything that the files hold has come through; then the numbers stop, and all is compared."""
        exactly, found = self.result.exactly_once, self.result.violations
        lines = {path.name: feeder.written[path] for path in self._paths}
        topics = {f"file-{i}": path.name for i, path in enumerate(self._paths)}

        def all_there() -> bool:
            return all(
                len(set(_read(self._cluster.broker.bootstrap, topic))) >= len(lines[name])
                for topic, name in topics.items()
            )

        try:
            wait_for(all_there, timeout_s=DRAIN_S)
        except AssertionError:
            self._say(f"not all lines came within {DRAIN_S:g} s\n{self._cluster.logs()}")
        self._cluster.request("PUT", "/connectors/tenure/stop")
        self._wanted["tenure"] = 0
        numbers = [f"tenure-{i}" for i in range(self._tasks_max)]
        wait_for(lambda: self._still(numbers), timeout_s=DRAIN_S)
        held = {topic: _read_offsets(self._cluster.broker.bootstrap, topic) for topic in (*topics, *numbers)}
        wait_for(
            lambda: sum(map(len, held.values())) <= len(set(self._delivered())),
            lambda: f"the sink is not through\n{self._cluster.logs()}",
            DRAIN_S,
        )
        for topic, name in topics.items():
            values = [value for _, value in held[topic]]
            found += judge_lines(name, lines[name], values, exactly_once=exactly)
            self.result.checked["lines"] += len(lines[name])
        for topic in numbers:
            parsed = [json.loads(value) for _, value in held[topic]]
            of_task = [Number(p["run"], p["n"]) for p in parsed]
            found += judge_numbers(topic, of_task, exactly_once=exactly)
            self.result.checked["numbers"] += len(of_task)
            self.result.checked["lives of tasks"] += len({n.run for n in of_task})
        found += judge_delivery({topic: len(records) for topic, records in held.items()}, self._delivered())
        self.result.checked["records in the sink"] += len(set(self._delivered()))
        for name in ("tenure.trace", "sink.trace"):
            found += judge_tenure(self._trace(name), self._excused, WAKING_MS)

    def _still(self, topics: list[str]) -> bool:
        ends = [_ends(self._cluster.broker.bootstrap, topic) for topic in topics]
        time.sleep(3 * HEARTBEAT_MS / 1000)
        return ends == [_ends(self._cluster.broker.bootstrap, topic) for topic in topics]

    def _delivered(self) -> list[tuple[str, int]]:
        out = []
        whole = self._out.read_bytes().rpartition(b"\n")[0]  # the last one may be half written
        for line in whole.splitlines():
            topic, _, offset, _ = line.split(b" ", 3)
            out.append((topic.decode(), int(offset)))
        return out


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000


def _ends(bootstrap: str, topic: str) -> tuple[int, int] | None:
    consumer = _consumer(bootstrap)
    try:
        return consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=60)
    finally:
        consumer.close()


def _consumer(bootstrap: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "judge",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        }
    )


def _read_offsets(bootstrap: str, topic: str) -> list[tuple[int, str]]:
    """Returns (offset, value) of every record of partition 0 that is committed."""
    consumer, out = _consumer(bootstrap), []
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            for message in consumer.consume(5000, timeout=1):
                error = message.error()
                if error is None:
                    out.append((message.offset(), message.value().decode()))
                elif error.code() == KafkaError._PARTITION_EOF:
                    return out
                else:
                    raise AssertionError(f"{topic}: {error}")
    finally:
        consumer.close()
    raise AssertionError(f"{topic} could not be read to its end")


def _read(bootstrap: str, topic: str) -> list[str]:
    return [value for _, value in _read_offsets(bootstrap, topic)]
