"""A supervisor with everything that a test wants to see: events, progress, pids, offsets."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from klamm.connect.children.supervisor import GRACEFUL_S, Supervisor
from klamm.connect.model import ConnectorSpec, Kind, Progress, State, StateEvent, TaskId, TaskSpec
from klamm.connect.settings.restart_policy import RestartPolicy

TESTS = Path(__file__).parent.parent
STRING = "org.apache.kafka.connect.storage.StringConverter"
SOURCE = "support.runtime_plugins.CountingSourceConnector"
SINK = "support.runtime_plugins.CollectingSinkConnector"
DRIVER_SOURCE = "support.runtime_plugins.CountingDriverSourceConnector"
DRIVER_SINK = "support.runtime_plugins.CollectingDriverSinkConnector"
# Nobody listens on port 1: librdkafka goes on trying, which is all that most tests of the runtime need.
NO_BROKER = "127.0.0.1:1"
QUICK = RestartPolicy(max_restarts=3, backoff_ms=50, backoff_max_ms=100)


def install_plugins(directory: Path, module: str = "support.runtime_plugins") -> str:
    """Make the entry point of a module with plugins; the PYTHONPATH that children need."""
    info = directory / "runtime_test_plugins-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: runtime-test-plugins\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[klamm]\nruntime-test = {module}\n")
    # What is there already stays: the tests may run on another checkout than the installed one.
    return os.pathsep.join(filter(None, [str(directory), str(TESTS), os.environ.get("PYTHONPATH")]))


def worker_props(bootstrap: str = NO_BROKER, **more: str) -> dict[str, str]:
    return {
        "bootstrap.servers": bootstrap,
        "key.converter": STRING,
        "value.converter": STRING,
        "offset.storage.topic": "connect-offsets",
        "offset.flush.interval.ms": "200",
        **more,
    }


def task_spec(
    name: str,
    config: dict[str, str],
    *,
    kind: Kind = Kind.SOURCE,
    plugin: str | None = None,
    worker: dict[str, str] | None = None,
    number: int = 0,
    paused: bool = False,
) -> TaskSpec:
    plugin = plugin or (SOURCE if kind is Kind.SOURCE else SINK)
    full = {"name": name, "connector.class": plugin, "topic": "t", **config}
    return TaskSpec(
        id=TaskId(name, number),
        kind=kind,
        connector_config=full,
        task_config=full | {"task": str(number)},
        worker=worker or worker_props(),
        paused=paused,
    )


def connector_spec(name: str, config: dict[str, str], *, paused: bool = False) -> ConnectorSpec:
    full = {"name": name, "connector.class": SOURCE, "topic": "t", **config}
    return ConnectorSpec(name=name, config=full, worker=worker_props(), paused=paused)


class Watched:
    """A supervisor and what it said; used as `async with`."""

    def __init__(self, policy: RestartPolicy = QUICK, *, graceful_s: float = GRACEFUL_S) -> None:
        self.events: list[StateEvent] = []
        self.progress: dict[TaskId, Progress] = {}
        self.changed: list[str] = []
        self.skew_ms = 0  # of the clock
        self.offsets: Callable[[str, dict[str, Any]], dict[str, Any] | None] = lambda name, partition: None
        self.supervisor = Supervisor(
            on_event=self.events.append,
            on_progress=self.progress.__setitem__,
            on_task_configs_changed=self.changed.append,
            read_offsets=self._read_offsets,
            policy=policy,
            clock=lambda: time.monotonic_ns() // 1_000_000 + self.skew_ms,
            graceful_s=graceful_s,
        )

    async def _read_offsets(self, name: str, partitions: list[dict[str, Any]]) -> list[dict[str, Any] | None]:
        return [await asyncio.to_thread(self.offsets, name, p) for p in partitions]

    async def __aenter__(self) -> Watched:
        await self.supervisor.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.supervisor.stop()

    def states(self, target: TaskId | str) -> list[State]:
        """Returns the states without repetitions (RUNNING is said again when a topic is new)."""
        name, task = target if isinstance(target, TaskId) else (target, None)
        found: list[State] = []
        for e in self.events:
            if (e.connector, e.task) == (name, task) and found[-1:] != [e.state]:
                found.append(e.state)
        return found

    def last(self, target: TaskId | str) -> StateEvent:
        name, task = target if isinstance(target, TaskId) else (target, None)
        return [e for e in self.events if (e.connector, e.task) == (name, task)][-1]

    async def wait_states(self, target: TaskId | str, *states: State, timeout_s: float = 60) -> None:
        await wait_for(
            lambda: self.states(target) == list(states), lambda: f"{target}: {self.events}", timeout_s
        )

    async def wait_state(self, target: TaskId | str, state: State, timeout_s: float = 60) -> None:
        await wait_for(
            lambda: self.states(target)[-1:] == [state], lambda: f"{target}: {self.events}", timeout_s
        )


async def wait_for(condition: Callable[[], Any], say: Callable[[], str], timeout_s: float = 60) -> Any:
    """Returns the first true value of `condition()`."""
    deadline = time.monotonic() + timeout_s
    while not (value := condition()):
        assert time.monotonic() < deadline, f"not within {timeout_s} s: {say()}"
        await asyncio.sleep(0.01)
    return value


def alive(pid: int) -> bool:
    """Returns whether a process runs (a zombie does not)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def private_kib(pid: int) -> int:
    """USS: what the process does not share with others."""
    rows = (line.split() for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines())
    return sum(int(row[1]) for row in rows if row[0] in {"Private_Clean:", "Private_Dirty:"})
