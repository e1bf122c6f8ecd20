"""One run of the log pipeline under faults, compared line by line at the end.

Generator → files that rotate → agent → broker → Spark → Elasticsearch, all genuine, each a process of its own. While
lines are written one stage after the other, chosen by the seed, is killed and started again, or stands still for some
seconds; once Elasticsearch is away for long. In the middle, while all of it runs, `klamm reconcile` is asked.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import psutil
from support.elasticsearch import require
from support.klamm import klamm
from support.pipeline.memory import Usage, Watch

from klamm.demo.logs import report
from klamm.demo.logs.lines import ID_PATTERN
from klamm.demo.logs.pipeline import Pipeline
from klamm.demo.logs.target import ElasticsearchTarget
from klamm.testing import EmbeddedBroker
from klamm.testing.elasticsearch import ElasticsearchServer
from klamm_base.errors import KlammError
from klamm_spark.java import need_java

SETTLE_S: Final = 600.0
PAUSE_S: Final = (1.0, 8.0)
"""The time that a paused stage stands still."""
REST_S: Final = (2.0, 10.0)
"""Between two faults."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The things done to the pipeline. `outage_s`: how long Elasticsearch is away once, 0 for never."""

    seed: int
    rate: int
    total: int
    outage_s: float = 0.0
    faults: bool = True
    least_faults: int = 4
    """The least number of faults, the last of them while lines are still on their way."""
    ask: bool = True


@dataclass(slots=True, kw_only=True)
class Result:
    """The deeds and findings. `asked` is the reconciliation in the middle of the run."""

    seed: int
    faults: Counter[str] = field(default_factory=Counter)
    asked: list[str] = field(default_factory=list)
    usage: dict[str, Usage] = field(default_factory=dict)
    found: report.Report | None = None
    again: int = 0
    """Records that the agent sent more than once."""
    restarts: int = 0
    """The restarts of Spark's driver by itself."""
    caught_up_s: float = 0.0
    """From the last line written to the last document."""
    seconds: float = 0.0
    said: list[str] = field(default_factory=list)

    @property
    def good(self) -> bool:
        return self.found is not None and self.found.complete and not self.said


class Round:
    """Runs one plan in one directory."""

    def __init__(self, work: Path, plan: Plan, *, say: Callable[[str], None] = print) -> None:
        self._work = work
        self._plan = plan
        self._random = random.Random(plan.seed)
        self._say = say
        self.result = Result(seed=plan.seed)
        self.broker = EmbeddedBroker(work / "data")
        self.pipeline: Pipeline
        self.server: ElasticsearchServer

    def run(self) -> Result:
        """Runs everything from start to comparison. Raises KlammError when a stage fails for good."""
        began = time.monotonic()
        with ElasticsearchServer(require(), heap_mb=768) as server:
            self.server = server
            target = ElasticsearchTarget(server.url, "soak-logs")
            target.prepare()
            java = need_java().environment()
            with Pipeline(self._work, target, java=java, broker=self.broker) as pipeline:
                self.pipeline = pipeline
                pipeline.start_processing(self._say)
                plan = self._plan
                pipeline.start_logging(seed=plan.seed, rate=plan.rate, total=plan.total)
                with Watch(self._pids) as watch:
                    self._under_faults()
                    self._drain()
                self.result.usage = watch.usage
                self.result.again = pipeline.lines_sent() - plan.total
                pipeline.stop()
                self.result.seconds = time.monotonic() - began
                self.result.found = report.make(pipeline.files, target, note="", seconds=self.result.seconds)
        return self.result

    def _pids(self) -> dict[str, int | None]:
        pipeline = self.pipeline
        stages: dict[str, Callable[[], int]] = {
            "agent": lambda: pipeline.agent.process.pid,
            "broker": lambda: self.broker.pid,
            "Spark": lambda: pipeline.spark.process.pid,
            "Elasticsearch": lambda: self.server.pid,
        }
        found: dict[str, int | None] = {}
        for name, pid in stages.items():
            try:
                found[name] = pid()
            except (AssertionError, OSError, ValueError, KlammError):  # it is down just now
                found[name] = None
        return found

    def _under_faults(self) -> None:
        """Works until all lines are written, and longer if there were too few faults by then."""
        total, generator = self._plan.total, self.pipeline.generator
        outage_at = total * 0.45 if self._plan.outage_s else float("inf")
        ask_at = total * 0.2 if self._plan.ask else float("inf")
        while not generator.done or (
            self._plan.faults and self.result.faults.total() < self._plan.least_faults
        ):
            self._mend()
            if generator.lines >= ask_at:
                ask_at = float("inf")
                self._ask()
            if generator.lines >= outage_at:
                outage_at = float("inf")
                self._outage()
            if self._plan.faults:
                self._one_fault()
                self._wait(self._random.uniform(*REST_S))
            else:
                self._wait(0.5)

    def _wait(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        self._mend_until(lambda: time.monotonic() >= until)

    def _mend_until(self, over: Callable[[], bool]) -> None:
        while not over():
            self._mend()
            time.sleep(0.2)

    def _mend(self) -> None:
        """Starts a driver again that gives up, as its supervisor does; any other stage never ends by itself."""
        pipeline = self.pipeline
        pipeline.generator.process.check()
        pipeline.agent.process.check()
        pipeline.spark.mend()
        self.result.restarts += pipeline.spark.restarts
        pipeline.spark.restarts = 0

    def _one_fault(self) -> None:
        faults: dict[str, Callable[[], None]] = {
            "agent killed": self._kill_agent,
            "broker killed": self._kill_broker,
            "Spark driver killed": self._kill_spark,
            "Spark worker killed": self._kill_worker,
            "Elasticsearch killed": self._kill_elasticsearch,
            "broker paused": lambda: self._pause(self.broker.pid),
            "Elasticsearch paused": lambda: self._pause(self.server.pid),
            "agent paused": lambda: self._pause(self.pipeline.agent.process.pid),
        }
        if not self.pipeline.spark.started:  # one that is killed whenever it starts gets nowhere
            del faults["Spark driver killed"], faults["Spark worker killed"]
        name = self._random.choice(list(faults))
        self._note(name)
        faults[name]()

    def _note(self, name: str) -> None:
        self.result.faults[name] += 1
        self._say(f"{self.pipeline.generator.lines:,} lines: {name}")

    def _kill_agent(self) -> None:
        self.pipeline.agent.process.kill()
        self._wait(self._random.uniform(0, 3))
        self.pipeline.agent.process.start()

    def _kill_broker(self) -> None:
        self.broker.kill()
        self._wait(self._random.uniform(0, 3))
        self.broker.start()

    def _kill_spark(self) -> None:
        self.pipeline.spark.process.kill()
        self.pipeline.spark.start()

    def _kill_worker(self) -> None:
        """Kills one of the Python processes below the driver's Java, where tasks run."""
        workers = []
        for process in psutil.Process(self.pipeline.spark.process.pid).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                command = " ".join(process.cmdline())
                if "pyspark" in command and "launch.py" not in command:  # Java holds processes by the latter
                    workers.append(process)
        if workers:
            with contextlib.suppress(psutil.Error):
                self._random.choice(workers).kill()

    def _kill_elasticsearch(self) -> None:
        self.server.kill()
        self._wait(self._random.uniform(0, 3))
        self.server.start()

    def _pause(self, pid: int) -> None:
        os.kill(pid, signal.SIGSTOP)
        try:
            self._wait(self._random.uniform(*PAUSE_S))
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def _outage(self) -> None:
        """Elasticsearch is stopped for long; everything before it goes on."""
        self._note(f"Elasticsearch away for {self._plan.outage_s:.0f} s")
        self.server.stop()
        self._wait(self._plan.outage_s)
        self.server.start()

    def _ask(self) -> None:
        """Runs `klamm reconcile` while everything runs."""
        self._mend_until(lambda: self.pipeline.spark.started)
        with ThreadPoolExecutor(1) as aside:
            asked = aside.submit(
                klamm,
                "reconcile", "--source", f"{self.pipeline.files}/**/*.log*", "--id-regex", ID_PATTERN,
                "--elasticsearch", self.server.url, "--index", "soak-logs-events,soak-logs-unparsed",
                "--id-field", "_id", "--agent-state", str(self._work / "agent"), "--settle", "240",
                timeout_s=600,
            )  # fmt: skip
            self._mend_until(asked.done)
            result = asked.result()
        self.result.asked.append(result.stdout)
        if result.returncode != 0:
            self.result.said.append(
                f"reconcile while it runs: exit code {result.returncode}\n{result.stdout}{result.stderr}"
            )

    def _drain(self) -> None:
        began = time.monotonic()
        while time.monotonic() - began < SETTLE_S:
            self._mend()
            if self.pipeline.drained():
                break
            time.sleep(0.5)
        self.result.caught_up_s = time.monotonic() - began


def rows(result: Result) -> list[tuple[str, Any]]:
    """Returns what a table says of a round."""
    assert result.found is not None
    lines = result.found.comparison
    return [
        ("lines written", lines.source_lines),
        ("source files", result.found.files),
        ("faults", result.faults.total()),
        *((f"faults: {name}", count) for name, count in sorted(result.faults.items())),
        ("records that the agent sent again", result.again),
        ("documents", lines.documents),
        *((kind.replace("_", " "), listing.count) for kind, listing in lines.differences.items()),
        ("windows of error rates compared", result.found.rates.windows),
        ("windows that differ", len(result.found.rates.differences)),
    ]
