"""The cost of tasks: CPU of their processes, and the data that they move."""

from __future__ import annotations

import os
import sys
import time

import pytest

from klamm.connect.children.usage import Usage, usage_of
from klamm.connect.herding.loads import BYTES_PER_CORE, LEAST_S, RECORDS_PER_CORE, Loads
from klamm.connect.model import Progress, TaskId

A, B = TaskId("a", 0), TaskId("b", 0)


class Tasks:
    """Two tasks; a clock that is set."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.pids = {A: os.getpid(), B: os.getpid()}
        self.progress: dict[TaskId, Progress] = {}
        self.loads = Loads(
            lambda: list(self.pids), self.pids.get, self.progress.get, clock=lambda: self.now_s
        )


@pytest.fixture
def tasks(monkeypatch: pytest.MonkeyPatch) -> Tasks:
    """Returns tasks whose processes use no CPU."""
    monkeypatch.setattr("klamm.connect.herding.loads.usage_of", lambda _pid: Usage(1.0, 0))
    return Tasks()


def test_group_loads_count_what_is_moved(tasks: Tasks) -> None:
    assert tasks.loads.measure() == {}
    tasks.now_s += 10
    tasks.progress[A] = Progress(records=2 * RECORDS_PER_CORE)
    tasks.progress[B] = Progress(details={"bytes": 5 * BYTES_PER_CORE})
    assert tasks.loads.measure() == pytest.approx({"a-0": 0.2, "b-0": 0.5})
    tasks.now_s += LEAST_S / 2
    assert tasks.loads.measure() == pytest.approx({"a-0": 0.2, "b-0": 0.5}), "too short to say anything new"
    tasks.now_s += LEAST_S / 2
    assert tasks.loads.measure() == pytest.approx({"a-0": 0.0, "b-0": 0.0})


def test_group_loads_of_a_task_that_starts_again_begin_anew(tasks: Tasks) -> None:
    """The earlier cost stands until there is a new figure."""
    tasks.loads.measure()
    tasks.now_s += 10
    tasks.progress[A] = Progress(records=5 * RECORDS_PER_CORE)
    assert tasks.loads.measure()["a-0"] == pytest.approx(0.5)
    tasks.pids[A] = 1
    tasks.progress[A] = Progress(records=0)
    tasks.now_s += 10
    assert tasks.loads.measure()["a-0"] == pytest.approx(0.5)
    tasks.progress[A] = Progress(records=RECORDS_PER_CORE)
    tasks.now_s += 10
    assert tasks.loads.measure()["a-0"] == pytest.approx(0.1)
    del tasks.pids[A]
    tasks.now_s += LEAST_S
    assert tasks.loads.measure().keys() == {"b-0"}


def test_group_loads_are_never_negative(tasks: Tasks) -> None:
    """A task that is made anew in its process counts from zero."""
    tasks.progress[A] = Progress(records=5 * RECORDS_PER_CORE)
    tasks.loads.measure()
    tasks.progress[A] = Progress(records=0, details={"bytes": "many"})
    tasks.now_s += 10
    assert tasks.loads.measure()["a-0"] == 0.0


def test_group_loads_ask_the_kernel_once_in_five_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that gets a thousand connectors has a thousand rebalances in a row, which look at no task either."""
    asked: list[int] = []
    monkeypatch.setattr(
        "klamm.connect.herding.loads.usage_of", lambda pid: asked.append(pid) or Usage(1.0, 0)
    )
    tasks, looks = Tasks(), []
    tasks.pids[B] = 1
    measured = Loads(lambda: looks.append(1) or list(tasks.pids), tasks.pids.get, clock=lambda: tasks.now_s)
    for _ in range(100):
        tasks.now_s += LEAST_S / 100
        measured.measure()
    assert asked == [os.getpid(), 1], "two processes, once each"
    assert len(looks) == 1
    tasks.now_s += 1
    assert measured.measure() == {"a-0": 0.0, "b-0": 0.0}


def test_group_loads_ask_once_for_a_process_that_tasks_share(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(
        "klamm.connect.herding.loads.usage_of", lambda pid: asked.append(pid) or Usage(4.0 * len(asked), 0)
    )
    tasks = Tasks()
    tasks.loads.measure()
    tasks.now_s += 10
    assert tasks.loads.measure() == pytest.approx({"a-0": 0.2, "b-0": 0.2})
    assert asked == [os.getpid()] * 2


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc is Linux's")
def test_group_loads_read_a_processs_cpu_time() -> None:
    before = usage_of(os.getpid())
    assert before is not None
    end = time.process_time() + 0.1
    while time.process_time() < end:
        pass
    after = usage_of(os.getpid())
    assert after is not None
    assert 0.05 < after.cpu_s - before.cpu_s < 5
    assert usage_of(2**22 + 1) is None
