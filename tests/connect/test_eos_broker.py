"""Source tasks against a broker: what it refuses, who is fenced while it works, keys, and both kinds of delivery."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from support.broker import broker, new_name, new_topic  # noqa: F401
from support.exactly_once import committed_values
from support.runtime import QUICK, Watched, install_plugins, task_spec, wait_for, worker_props
from support.runtime_broker import reader, stored_offsets

from klamm.connect.herding.fencing import fence
from klamm.connect.model import State, TaskId
from klamm.testing import EmbeddedBroker


@pytest.fixture(autouse=True)
def plugin_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", install_plugins(tmp_path / "site"))


@pytest.fixture
def offsets_topic(broker: EmbeddedBroker) -> str:  # noqa: F811
    return new_topic(broker, 3, {"cleanup.policy": "compact"}, name=new_name("offsets"))


class Group(Watched):
    """A supervisor whose worker answers exactly-once tasks: nothing to fence, every task may start."""

    def __init__(self) -> None:
        super().__init__(QUICK)
        self.asked: list[tuple[str, dict[str, Any]]] = []

        def answer(method: str) -> Any:
            async def note(params: dict[str, Any]) -> None:
                self.asked.append((method, params))

            return note

        self.supervisor._requests = {m: answer(m) for m in ("fence_zombies", "verify_task")}


def worker(broker: EmbeddedBroker, offsets: str, *, exactly_once: bool) -> dict[str, str]:  # noqa: F811
    return worker_props(
        broker.bootstrap,
        **{
            "group.id": "g",
            "offset.storage.topic": offsets,
            "exactly.once.source.support": "enabled" if exactly_once else "disabled",
        },
    )


@pytest.mark.parametrize("exactly_once", [True, False])
async def test_a_record_in_between_that_the_broker_refuses_stops_everything_after_it(
    broker: EmbeddedBroker,  # noqa: F811
    offsets_topic: str,
    exactly_once: bool,
) -> None:
    """Records go in lists, and only the last one of a list is asked for: one that is lost must not go unnoticed."""
    topic = new_topic(broker, 1, {"max.message.bytes": "2000"})
    name = new_name("src")
    config = {
        "topic": topic, "limit": "400", "batch": "100", "pace.s": "0.05",
        "says": "150=" + "x" * 5_000, "producer.override.batch.num.messages": "10",
    }  # fmt: skip
    async with Group() as w:
        w.offsets = reader(broker.bootstrap, offsets_topic)
        spec = task_spec(name, config, worker=worker(broker, offsets_topic, exactly_once=exactly_once))
        await w.supervisor.start_task(spec)
        await w.wait_state(TaskId(name, 0), State.FAILED)
        assert "Message size too large" in w.last(TaskId(name, 0)).trace
    reached = stored_offsets(broker.bootstrap, offsets_topic).get(
        f'["{name}",{{"task":"0"}}]'.encode(), {"n": 0}
    )
    assert reached["n"] <= 150, "nothing behind the refused record is committed"
    seen = Counter(int(v) for v in committed_values(broker.bootstrap, topic))
    assert set(range(reached["n"])) <= set(seen), "everything before the committed offset is there"
    assert max(seen, default=0) < 150
    if exactly_once:
        assert sorted(seen) == list(range(100)), "whole polls, or nothing of them"


async def test_a_task_that_is_fenced_while_it_works_says_so_and_goes_on_without_repeating(
    broker: EmbeddedBroker,  # noqa: F811
    offsets_topic: str,
) -> None:
    topic, name = new_topic(broker), new_name("src")
    config = {"topic": topic, "batch": "50", "pace.s": "0.01"}  # without end: it works whenever it is fenced
    async with Group() as w:
        w.offsets = reader(broker.bootstrap, offsets_topic)
        props = worker(broker, offsets_topic, exactly_once=True)
        task = TaskId(name, 0)
        await w.supervisor.start_task(task_spec(name, config, worker=props))
        await wait_for(lambda: (p := w.progress.get(task)) and p.records > 100, lambda: str(w.events))
        import asyncio

        await asyncio.to_thread(fence, {"bootstrap.servers": broker.bootstrap}, [f"g-{name}-0"])
        await wait_for(lambda: any(e.state is State.RESTARTING for e in w.events), lambda: str(w.events))
        said = next(e.trace for e in w.events if e.state is State.RESTARTING)
        assert said is not None
        assert "Either another task has taken over its transactional id" in said
        await wait_for(
            lambda: len(committed_values(broker.bootstrap, topic)) >= 4000, lambda: str(w.events[-3:])
        )
        assert [m for m, _ in w.asked][:2] == ["fence_zombies", "verify_task"]
        await w.supervisor.stop_task(task)
    values = committed_values(broker.bootstrap, topic)
    assert [int(v) for v in values] == list(range(len(values)))


@pytest.mark.parametrize("exactly_once", [True, False])
async def test_records_without_keys_are_spread_and_each_partition_is_in_order(
    broker: EmbeddedBroker,  # noqa: F811
    offsets_topic: str,
    exactly_once: bool,
) -> None:
    topic, name = new_topic(broker, 3), new_name("src")
    config = {"topic": topic, "limit": "60000", "batch": "1000"}
    async with Group() as w:
        w.offsets = reader(broker.bootstrap, offsets_topic)
        props = worker(broker, offsets_topic, exactly_once=exactly_once)
        await w.supervisor.start_task(task_spec(name, config, worker=props))
        task = TaskId(name, 0)
        await wait_for(lambda: (p := w.progress.get(task)) and p.records == 60_000, lambda: str(w.events), 60)
    from support.runtime_broker import read_all

    by_partition: dict[int, list[int]] = {}
    for message in read_all(broker.bootstrap, topic) if not exactly_once else ():
        by_partition.setdefault(message.partition(), []).append(int(message.value()))
    if exactly_once:
        assert sorted(int(v) for v in committed_values(broker.bootstrap, topic)) == list(range(60_000))
        return
    assert len(by_partition) > 1
    assert all(numbers == sorted(numbers) for numbers in by_partition.values())
    assert sorted(n for numbers in by_partition.values() for n in numbers) == list(range(60_000))
