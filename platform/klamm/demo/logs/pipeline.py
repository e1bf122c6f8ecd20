"""The pipeline: starts the stages in order, decides when all is drained, and ends them.

generator → files → agent → broker (logs.*) → Spark → Elasticsearch
                                                   ↘ broker (demo.*) → Connect's SQL sink → SQLite
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Protocol, Self

from klamm.demo.logs.job import DOCUMENTS, INPUTS, PARTITIONS, connectors, spark_job, topic
from klamm.demo.logs.lines import Plan
from klamm.demo.logs.measure import Meter, Reading
from klamm.demo.logs.process import StageFailed
from klamm.demo.logs.stages import AgentStage, GeneratorStage, SparkStage
from klamm.demo.logs.target import NAMES, SqliteTarget, Target
from klamm.demo.logs.topics import Topics
from klamm.demo.patience import Patience, cpu_seconds
from klamm.demo.platform import Embedded, NoAnswer
from klamm_base.errors import KlammError

SPARK_START_S: Final = 300.0
"""The driver may neither log nor compute for this long while it starts."""
TICK_S: Final = 0.5


class Broker(Protocol):
    """The server that starts before all stages and stops after them."""

    @property
    def bootstrap(self) -> str: ...
    def __enter__(self) -> object: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


@dataclass(frozen=True, slots=True)
class Drained:
    """The end of a run. `stage` is the stage that stood still when the run gave up, and `why` the reason if that is known.
    `gave_up` are the stages that were behind then.
    """

    seconds: float
    gave_up: Sequence[Reading] = ()
    stage: str = ""
    why: str = ""


class Pipeline:
    """All stages around one data directory. `with` starts broker and topics, and ends everything that was started.

    `broker` replaces `klamm up`; the SQLite target needs the Connect worker of `klamm up`.
    """

    def __init__(
        self, directory: Path, target: Target, *, java: dict[str, str], broker: Broker | None = None
    ) -> None:
        self.directory = directory
        self.files = directory / "logs"
        self.target = target
        self.embedded = Embedded(directory)
        self.broker: Broker = broker or self.embedded
        self._java = java
        self._stack = ExitStack()
        self._meters: dict[str, Meter] = {}
        self.generator: GeneratorStage
        self.agent: AgentStage
        self.spark: SparkStage
        self.topics: Topics

    def __enter__(self) -> Self:
        self.files.mkdir()
        with ExitStack() as stack:
            stack.enter_context(self.broker)
            self.topics = Topics(self.broker.bootstrap)
            stack.callback(self.topics.close)
            names = list(INPUTS)
            if isinstance(self.target, SqliteTarget):
                names += map(topic, NAMES)
            self.topics.create(names, PARTITIONS)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def start_processing(self, say: Callable[[str], None]) -> None:
        """Starts Spark and, for SQLite, the sink connectors. Returns once they run."""
        job = spark_job(self.broker.bootstrap, self.directory / "checkpoints", self.target)
        self.spark = SparkStage(job, self.directory / "spark.log", self._java)
        self._stack.callback(self.spark.process.stop)
        self.spark.start()
        if isinstance(self.target, SqliteTarget):
            for connector in connectors(self.target):
                self.embedded.create(connector)
                say(f"POST /connectors {connector['name']}: {connector['config']['connector.class']}")
        self.wait_for_spark()
        say(f"Spark {self.spark.spark_version}: {', '.join(NAMES)}")

    def wait_for_spark(self) -> None:
        """Waits until the driver runs its queries. Raises StageFailed."""
        patience = Patience(SPARK_START_S, lambda: cpu_seconds({self.spark.process.pid}))
        while not self.spark.started:
            self.spark.mend()
            if patience.over((self.spark.restarts, self.spark.process.log.stat().st_size)):
                tail = self.spark.process.tail()
                raise StageFailed(
                    "Spark", f"it stood still for {SPARK_START_S:.0f} s while it started\n{tail}"
                )
            time.sleep(0.1)

    def start_logging(self, *, seed: int, rate: int, total: int) -> Plan:
        """Starts the agent, and the services whose files it reads."""
        self.agent = AgentStage(
            self.files,
            self.directory / "agent",
            self.broker.bootstrap,
            self.directory / "agent.toml",
            self.directory / "agent.log",
        )
        self._stack.callback(self.agent.process.stop)
        self.agent.process.start()
        plan = Plan(seed=seed, start_ms=int(time.time() * 1000), rate=rate, total=total)
        self.generator = GeneratorStage(self.files, plan, self.directory / "generator.log")
        self._stack.callback(self.generator.process.stop)
        self.generator.process.start()
        return plan

    def check(self) -> None:
        """Raises StageFailed for the first stage that has failed for good, and NoAnswer when Connect does not answer."""
        self.generator.process.check()
        self.agent.process.check()
        if self.agent.process.code is not None:
            raise StageFailed("agent", "it ended by itself")
        self.spark.mend()
        if isinstance(self.target, SqliteTarget):
            for name in NAMES:
                try:
                    self.embedded.check(f"demo-{name}")
                except NoAnswer:
                    raise
                except KlammError as e:
                    raise StageFailed("Connect", str(e)) from None

    def readings(self, now: float) -> list[Reading]:
        """Returns the progress of every stage. Asks the last stage first, so that no stage is ahead of the one before it."""
        documents = self.target.count()
        spark, ends = self.spark.least_read(), self.topics.ends(list(INPUTS), PARTITIONS)
        agent, lines = self.agent.status(), self.generator.lines
        batch = _batch(self.spark.progress.get(DOCUMENTS, {})) or "its first batch is under way"
        rotated, waits = f"{self.generator.rotations} rotations", str(agent.get("waiting_for", ""))
        # The agent takes a copy that copytruncate made for another file and reads it: such lines come twice
        again = f"{ends - lines:,} lines came again" if ends > lines else ""
        written, committed = self._sink_offsets()
        sinks, mark = "", (written, committed)
        if isinstance(self.target, SqliteTarget):
            sinks = f"through Connect, {written - committed:,} records behind"
        stages = (
            ("generator", lines, None, "", rotated, ()),
            ("agent", int(agent.get("acked", 0)), int(agent.get("lag_bytes", 0)), "B", waits, ()),
            ("broker", ends, None, "", again, ()),
            ("Spark", spark, max(0, ends - spark), "records", batch, self.spark.mark),
            (self.target.name, documents, max(0, lines - documents), "lines", sinks, mark),
        )
        return [
            Reading(
                stage=stage,
                total=total,
                rate=self._rate(stage, now, total),
                lag=lag,
                unit=unit,
                note=note,
                mark=mark,
                restarts=self.spark.restarts if stage == "Spark" else 0,
            )
            for stage, total, lag, unit, note, mark in stages
        ]

    def _sink_offsets(self) -> tuple[int, int]:
        """Returns how many records the demo.* topics hold, and how many of them the sink connectors have committed."""
        if not isinstance(self.target, SqliteTarget):
            return 0, 0
        written = self.topics.ends([topic(name) for name in NAMES], PARTITIONS)
        groups = {f"connect-demo-{name}": topic(name) for name in NAMES}
        return written, sum(self.topics.committed(g, [name], PARTITIONS) for g, name in groups.items())

    def _rate(self, stage: str, now: float, total: int) -> float:
        return self._meters.setdefault(stage, Meter()).rate(now, total)

    def drained(self) -> bool:
        """Returns True once every line has gone through every stage that reports its progress."""
        if not self.generator.done or self.agent.status().get("lag_bytes") != 0:
            return False
        ends = self.topics.ends(list(INPUTS), PARTITIONS)
        through = ends >= self.generator.lines == self.target.count() and self.spark.least_read() >= ends
        written, committed = self._sink_offsets()
        return through and written == committed

    def run(self, show: Callable[[list[Reading]], None], *, patience_s: float) -> Drained:
        """Shows readings until all is drained, or until no stage moves for `patience_s`.

        The report then says what has not arrived. Asks a server that does not answer again; meanwhile nothing moves. Raises
        StageFailed.
        """
        began = time.monotonic()
        patience = Patience(patience_s, self._cpu_s)
        readings: list[Reading] = []
        while True:
            now, silent = time.monotonic(), ""
            try:
                self.check()
                readings = self.readings(now)
                show(readings)
                if self.generator.done and self.drained():
                    return Drained(now - began)
            except NoAnswer as e:
                silent = str(e)
            if patience.over([(r.total, r.lag, r.mark) for r in readings]):
                return Drained(
                    now - began,
                    gave_up=[r for r in readings if r.lag],
                    stage=self._standing(readings),
                    why=silent,
                )
            time.sleep(TICK_S)

    def _standing(self, readings: Sequence[Reading]) -> str:
        """Returns the first stage that is behind. The stages after it wait for it."""
        if not self.generator.done:
            return "generator"
        last = readings[-1].stage if readings else "broker"
        return next((r.stage for r in readings if r.lag), last)

    def _cpu_s(self) -> float:
        stages = (self.generator.process, self.agent.process, self.spark.process)
        return cpu_seconds({process.pid for process in stages if process.running})

    def lines_sent(self) -> int:
        """Returns the number of records that the agent has written, including lines that it sent twice."""
        return self.topics.ends(list(INPUTS), PARTITIONS)

    def stop(self) -> None:
        """Stops the stages that write, from the first on. Broker and target stay, to be read."""
        self.generator.process.stop()
        self.agent.process.stop()
        self.spark.process.stop()


def _batch(event: dict[str, object]) -> str:
    return f"batch {event['batch']}, {event['rows']:,} rows in {event['duration_ms']:,} ms" if event else ""
