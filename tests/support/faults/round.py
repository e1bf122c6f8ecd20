"""One round: topics, load of every kind, a number of fault cycles, an orderly end, and the checker's verdict.

The seed decides which faults come and what the loads do; how the threads meet them is the machine's. A round has a
data directory of its own, so each can be run again by itself.
"""

from __future__ import annotations

import random
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from confluent_kafka.admin import AdminClient, NewTopic
from support.faults.churn import TopicLoad
from support.faults.flow import FIRST, SECOND, FlowLoad, origin
from support.faults.load import Load, ProducerLoad
from support.faults.logs import read_log, wait_for_markers
from support.faults.moves import MoveLoad
from support.faults.readers import CommitLoad, GroupLoad, OffsetReader, ScanLoad
from support.faults.recorder import Recorder
from support.faults.servers import Server
from support.faults.transactions import TransactionalLoad, TransactionLoad
from support.history import Flow, History, Verdict, check

PARTITIONS: Final = 2
TOPICS: Final = ("in", "out", "txn", "plain", "keyed")
KEYED_CONFIG: Final = {
    "cleanup.policy": "compact",
    "segment.ms": "1000",
    "min.cleanable.dirty.ratio": "0.01",
    "min.compaction.lag.ms": "0",
}
FAULTS: Final = {
    "kill": 60,
    "kill while starting": 10,
    "stop": 8,
    "kill while stopping": 8,
    "pause": 6,
    "pause, then kill": 4,
    "kill a child": 4,
}
"""The actions of a cycle on the broker, and how often each comes in a hundred."""
PROGRESS_S: Final = 60.0
LINGER_S: Final = 2.0
SLOW_S: Final = 10.0
"""A client that needs longer than this to get on after the last fault is named."""


@dataclass(slots=True, kw_only=True)
class Result:
    """The findings and deeds of one round."""

    seed: int
    history: History
    verdict: Verdict
    faults: Counter[str]
    transactions: Counter[str]
    seconds: float
    problems: list[str] = field(default_factory=list)

    @property
    def good(self) -> bool:
        return not self.verdict.violations and not self.problems


class Round:
    """Made and run once. `say` is told how it goes."""

    def __init__(self, server: Server, *, seed: int, cycles: int, say: Callable[[str], object] = lambda text: None, faults: Mapping[str, int] = FAULTS, patience_s: float = PROGRESS_S) -> None:  # fmt: skip
        self.server = server
        self.seed, self.cycles, self.say = seed, cycles, say
        self.chance = random.Random(seed)
        self.recorder = Recorder()
        self.kinds = faults
        self.patience_s = patience_s
        self.done: Counter[str] = Counter()
        self.producers: list[Load] = []
        self.consumers: list[Load] = []
        self.scans: list[ScanLoad] = []
        self.flows: list[FlowLoad] = []
        self.transactional: list[TransactionalLoad] = []
        self.offsets: OffsetReader

    def run(self) -> Result:
        """Raises AssertionError when the load does not get on, BrokerFailed when the broker does not come up."""
        began = time.monotonic()
        self.server.start()
        self._create_topics()
        self._make_loads()
        for load in self._all():
            load.start()
        try:
            self._await_progress(list(self._all()), self.patience_s)
            for number in range(self.cycles):
                self._cycle(number)
            self._await_progress(list(self._all()), self.patience_s)
            self._wind_down()
        finally:
            for load in self._all():
                load.stopping.set()
        verdict = self._judge()
        return Result(
            seed=self.seed,
            history=self.recorder.history,
            verdict=verdict,
            faults=self.done,
            transactions=self._counts(),
            seconds=time.monotonic() - began,
            problems=self._problems(),
        )

    # ---- set-up

    def _create_topics(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.server.bootstrap})
        wanted = [NewTopic(t, PARTITIONS, 1, config=KEYED_CONFIG if t == "keyed" else {}) for t in TOPICS]
        for future in admin.create_topics(wanted).values():
            future.result(60)

    def _make_loads(self) -> None:
        common = self.recorder, self.server.bootstrap, self.seed
        for i in range(2):
            self.producers.append(ProducerLoad(f"idem{i}", *common, topic="in", partitions=PARTITIONS))
        self.producers += [
            ProducerLoad("plain", *common, topic="plain", partitions=PARTITIONS, idempotent=False, acks=1),
            ProducerLoad("keyed", *common, topic="keyed", partitions=PARTITIONS, keys=40, size=3000),
            TopicLoad("churn", *common),
        ]
        if len(self.server.directories) > 1:
            self.producers.append(
                MoveLoad(
                    "moves",
                    *common,
                    topics=TOPICS,
                    partitions=PARTITIONS,
                    directories=self.server.directories,
                )
            )
        protocols = {"classic": "classic", "static": "classic", "consumer": "consumer"}
        groups = {group: {"in": PARTITIONS} for group in (*protocols, "flow")} | {"alone": {"in": 1}}
        for group, protocol in protocols.items():
            self.consumers += [
                GroupLoad(f"{group}{i}", *common, group=group, topic="in", protocol=protocol, static=group == "static")
                for i in range(2)
            ]  # fmt: skip
        self.consumers.append(CommitLoad("alone", *common, group="alone", topic="in"))
        self._make_transactional(common)
        readable = dict.fromkeys(("in", "out", "txn", "plain"), PARTITIONS)
        self.scans = [
            ScanLoad("committed", *common, topics=readable, committed=True),
            ScanLoad("uncommitted", *common, topics=readable, committed=False),
        ]
        self.offsets = OffsetReader("offsets", *common, groups=groups)

    def _make_transactional(self, common: tuple[Recorder, str, int]) -> None:
        self.transactional = [
            TransactionLoad(f"txn{i}", *common, topic="txn", partitions=PARTITIONS) for i in range(2)
        ]
        self.flows = [
            FlowLoad(
                f"flow{i}",
                *common,
                group="flow",
                source="in",
                partition=i,
                sink="out",
                partitions=PARTITIONS,
                versions=v,
            )
            for i, v in enumerate((FIRST, SECOND))
        ]
        self.recorder.history.flows.append(Flow(group="flow", source="in", sink="out", origin=origin))

    def _all(self) -> list[Load]:
        loads = [*self.producers, *self.consumers, *self.transactional, *self.flows, *self.scans]
        return [*loads, self.offsets] if hasattr(self, "offsets") else loads

    # ---- faults

    def _cycle(self, number: int) -> None:
        """Wait until somebody gets on, for a while also for one in particular, and a random time more; then a fault.

        Clients need different times to find the broker again: without the second wait the slowest would hardly ever
        have something under way when it is killed.
        """
        before = sum(load.progress for load in self._all())
        self._until(
            lambda: sum(load.progress for load in self._all()) > before + 30,
            "anybody gets on",
            self.patience_s,
        )
        one = self.chance.choice([*self.transactional, *self.flows, *self.consumers])
        deadline, seen = time.monotonic() + self.chance.random() * LINGER_S, one.progress
        while one.progress == seen and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(self.chance.random() ** 2)
        (kind,) = self.chance.choices(list(self.kinds), list(self.kinds.values()))
        self._inflict(kind)
        self.done[kind] += 1
        if number % 10 == 9:
            counts = self._counts()
            self.say(
                f"seed {self.seed}: cycle {number + 1} of {self.cycles}, {len(self.recorder.history.writes)} writes, "
                f"{counts['committed']} transactions committed"
            )

    def _inflict(self, kind: str) -> None:
        server, some = self.server, self.chance.random()
        match kind:
            case "kill":
                server.kill()
            case "kill while starting":
                server.kill()
                server.killed_while_starting(0.02 + 0.4 * some)
            case "stop":
                server.terminate()
            case "kill while stopping":
                server.terminate(give_up_s=0.1 * some)
            case "pause":
                server.pause(0.05 + some)
                return
            case "pause, then kill":
                server.pause(0.05 + 0.3 * some)
                server.kill()
            case "kill a child":
                if not server.kill_child(some):
                    server.kill()
                    server.start()
                return
        server.start()

    # ---- the end

    def _await_progress(self, loads: list[Load], timeout_s: float) -> None:
        before = {load: load.progress for load in loads}

        def stuck() -> list[str]:
            """Groups count as one: whether all of their members have something to do is their assignors' affair."""
            moved = {_party(load) for load in loads if load.progress > before[load]}
            return sorted({_party(load) for load in loads} - moved)

        began, last = time.monotonic(), stuck()
        while last:
            still = last
            self._until(lambda s=still: stuck() != s, lambda: f"{stuck()} get on", timeout_s)
            last = stuck()
        if time.monotonic() - began > SLOW_S:
            self.say(f"seed {self.seed}: {still} took {time.monotonic() - began:.0f} s to get on")

    def _until(self, condition: Callable[[], bool], what: str | Callable[[], str], timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        while not condition():
            for load in self._all():
                if load.failure is not None:
                    raise AssertionError(f"{load.name} failed (seed {self.seed})") from load.failure
            if time.monotonic() > deadline:
                said = what if isinstance(what, str) else what()
                raise AssertionError(
                    f"not within {timeout_s} s: {said} (seed {self.seed})\n{self._whereabouts()}"
                )
            time.sleep(0.01)

    def _whereabouts(self) -> str:
        """Returns where the loads are, for the report of one that is stuck."""
        frames = sys._current_frames()
        return "\n".join(
            f"{load.name} {load.last_error}: {''.join(traceback.format_stack(frames[load.ident])[-6:])}"
            for load in self._all()
            if load.ident in frames
        )

    def _wind_down(self) -> None:
        """Producers end, those who read reach the end, transactions are ended, everything is read once more."""
        for load in (*self.producers, *self.transactional):
            load.stop()
        for load in self.transactional:
            load.finish()
        port = int(self.server.bootstrap.rpartition(":")[2])
        self._drain_flows(port)
        for load in (*self.flows, *self.consumers):
            load.stop()
        for flow in self.flows:
            flow.finish()
        places = [(t, p) for t in TOPICS for p in range(PARTITIONS)]
        wait_for_markers(port, places)
        logs = {place: read_log(port, *place, compacted=place[0] == "keyed") for place in places}
        ends = {place: log.stable for place, log in logs.items()}
        for scan in self.scans:
            self._until(
                lambda s=scan: not s.behind(ends), lambda s=scan: str(s.behind(ends)), self.patience_s
            )
            scan.stop()
        self.offsets.stop()
        self.server.kill()
        self.server.start()
        self.offsets.read_all()
        self._read_the_end(port, logs)

    def _drain_flows(self, port: int) -> None:
        ends = {p: read_log(port, "in", p).end for p in range(PARTITIONS)}
        last = self.offsets.last

        def left() -> list[str]:
            said = {p: last.get(("flow", "in", p), -1) for p in ends}
            return [
                f"the flow is at {said[p]} of {end} in in-{p}" for p, end in ends.items() if said[p] < end
            ]

        self._until(lambda: not left(), lambda: str(left()), self.patience_s)

    def _read_the_end(self, port: int, before: dict[tuple[str, int], object]) -> None:
        """Reads the logs as they are after one more start. What they were before it is compared as a reader's view."""
        history = self.recorder.history
        admin = AdminClient({"bootstrap.servers": self.server.bootstrap})
        history.topics = {t.topic: len(t.partitions) for t in admin.list_topics(timeout=60).topics.values()}
        places = [
            (t, p) for t, count in history.topics.items() for p in range(count) if not t.startswith("__")
        ]
        for place in places:
            history.logs[place] = read_log(port, *place, compacted=place[0] == "keyed")
        for place, log in before.items():
            if place[0] != "keyed" and log != history.logs[place]:
                raise AssertionError(f"{place} has changed by a restart (seed {self.seed})")

    # ---- the verdict

    def _judge(self) -> Verdict:
        return check(self.recorder.finish())

    def _counts(self) -> Counter[str]:
        counts: Counter[str] = Counter()
        for load in (*self.transactional, *self.flows):
            counts["committed"] += load.committed
            counts["aborted"] += load.aborted
            counts["zombies"] += getattr(load, "zombies", 0)
            counts["left by a crash"] += getattr(load, "crashes", 0)
        for load in self.producers:
            counts["sessions given up"] += len(load.fatal)
            for error in load.fatal:
                self.say(f"seed {self.seed}: {load.name} gave its session up: {error}")
        return counts

    def _problems(self) -> list[str]:
        """Returns what a load died of, and defects that the broker's log tells of."""
        found = [f"{load.name}: {load.failure!r}" for load in self._all() if load.failure is not None]
        lines = self.server.log_text.splitlines()
        return (
            found
            + [
                line[:300]
                for line in lines
                if "Traceback (most recent call last)" in line or "failed here" in line
            ][:10]
        )


def _party(load: Load) -> str:
    return f"group {load.group}" if isinstance(load, GroupLoad) else load.name


def work_dir(parent: Path, seed: int) -> Path:
    path = parent / f"round-{seed}"
    path.mkdir(parents=True, exist_ok=True)
    return path
