"""Generator, agent and Spark driver as stages. Each knows how to start and how far it has come."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from klamm.demo.logs.job import INPUTS
from klamm.demo.logs.lines import SERVICES, Plan
from klamm.demo.logs.process import Process, StageFailed
from klamm_spark.model import Job

ROTATIONS: Final = 3
RESTARTS: Final = 3
"""The number of restarts of the Spark driver. An overloaded machine makes it fail: Spark gives a new Python
process ten seconds.
"""


class GeneratorStage:
    """The services that log."""

    def __init__(self, directory: Path, plan: Plan, log: Path) -> None:
        words = [
            str(directory),
            *(str(n) for n in (plan.seed, plan.start_ms, plan.rate, plan.total, ROTATIONS)),
        ]
        self.lines = 0
        self.rotations = 0
        self.done = False
        self.process = Process("generator", "klamm.demo.logs.generator", words, log, on_line=self._on_line)

    def _on_line(self, line: str) -> None:
        event = json.loads(line)
        self.lines, self.rotations, self.done = event["lines"], event["rotations"], event["done"]


class AgentStage:
    """`klamm agent start` on every service's files, rotated ones too, with one topic for each kind of log."""

    def __init__(self, directory: Path, state: Path, bootstrap: str, config: Path, log: Path) -> None:
        config.write_text(agent_toml(directory, state, bootstrap), encoding="utf-8")
        self._status = state / "status.json"
        words = ["agent", "start", str(config)]
        self.process = Process("agent", "klamm.up.child", words, log, watched=True)

    def status(self) -> Mapping[str, Any]:
        """Returns the agent's own status: acked, lag_bytes, gaps and more. It is empty until the agent writes it."""
        try:
            found = json.loads(self._status.read_text())
        except FileNotFoundError:
            return {}
        return found if isinstance(found, dict) else {}


def agent_toml(directory: Path, state: Path, bootstrap: str) -> str:
    """Returns the agent's configuration. Lines travel in a JSON envelope that says file and offset."""
    parts = [f"bootstrap_servers = {_toml(bootstrap)}", f"state_dir = {_toml(str(state))}"]
    for topic, kind in zip(INPUTS, ("access", "app"), strict=True):
        paths = [str(directory / f"{s.file}*") for s in SERVICES if s.kind == kind]
        parts += ["", "[[inputs]]", f"paths = [{', '.join(map(_toml, paths))}]", f"topic = {_toml(topic)}"]
        parts.append('format = "json"')
    return "\n".join([*parts, "", "[agent]", 'id = "demo"', "scan_interval_ms = 200", ""])


def _toml(text: str) -> str:
    return json.dumps(text)


class SparkStage:
    """The Spark driver with the log job."""

    def __init__(self, job: Job, log: Path, env: dict[str, str]) -> None:
        self.started = False
        self.progress: dict[str, dict[str, Any]] = {}
        """The latest progress event of every query."""
        self.spark_version = ""
        self.restarts = 0
        self._failure: dict[str, Any] | None = None
        self._outputs = [o.name for o in job.outputs]
        hello = json.dumps(job.to_json()) + "\n"
        self.process = Process(
            "Spark", "klamm_spark.driver", [], log, on_line=self._on_line, hello=hello, env=env
        )

    def start(self) -> None:
        """Starts the driver, also again. Forgets what it said before."""
        self.started, self.progress, self._failure = False, {}, None
        self.process.start()

    def check(self) -> None:
        """Raises StageFailed, with the driver's own sentence where it has said one."""
        if self._failure is not None:
            what = f"{self._failure['error']}: {self._failure['message']}"
            raise StageFailed("Spark", what, retriable=self._failure["retriable"])
        self.process.check()
        if self.process.code == 0:
            raise StageFailed("Spark", "the driver ended by itself")

    def mend(self) -> None:
        """Starts the driver again after a failure that may pass, at most RESTARTS times. Raises StageFailed for any other failure."""
        try:
            self.check()
        except StageFailed as e:
            if not e.retriable or self.restarts >= RESTARTS:
                raise
            self.process.stop()
            self.start()
            self.restarts += 1

    @property
    def mark(self) -> tuple[int, ...]:
        """The batches and positions of all queries, and the restarts: changes whenever a batch ends."""
        batches = [int(self.progress.get(name, {}).get("batch", -1)) for name in self._outputs]
        return (self.restarts, *batches, *map(self.read, self._outputs))

    def read(self, query: str) -> int:
        """Returns how many records of the topics a query has read (topics begin at offset 0)."""
        offsets = self.progress.get(query, {}).get("offsets", {})
        return sum(sum(partitions.values()) for topic, partitions in offsets.items() if topic in INPUTS)

    def least_read(self) -> int:
        """Returns the position of the query that is furthest behind."""
        return min((self.read(name) for name in self._outputs), default=0)

    def _on_line(self, line: str) -> None:
        event = json.loads(line)
        match event["event"]:
            case "started":
                self.started, self.spark_version = True, event["spark"]
            case "progress":
                self.progress[event["query"]] = event
            case "failed":
                self._failure = event
            case _:
                pass  # what else the driver says is for others
