"""A connector may be deleted, or resumed by another worker, while a request about it waits: an answer, no KeyError."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from support.hand_children import HandChildren, make
from support.hand_group import HandGroup
from support.runtime import wait_for

from klamm.connect.errors import BadRequest, NotFound
from klamm.connect.herding.assignment import Assignment
from klamm.connect.herding.cluster import Elsewhere
from klamm.connect.runtime import Runtime
from klamm.connect.service.connectors import ConnectService
from klamm.connect.topics.config_topic import (
    TargetState,
    connector_record,
    delete_records,
    target_state_record,
)

CONFIG = {"connector.class": "Src", "tasks.max": "1"}
STOPPED = [target_state_record("a", TargetState.STOPPED), connector_record("a", CONFIG)]
Ask = Callable[[ConnectService], Awaitable[Any]]

ASKED: dict[str, Ask] = {
    "reset offsets": lambda s: s.offsets.reset("a"),
    "alter offsets": lambda s: s.offsets.alter("a", [({"f": "x"}, {"n": 7})]),
    "stop": lambda s: s.set_target("a", TargetState.STOPPED),
    "resume": lambda s: s.set_target("a", TargetState.STARTED),
    "delete": lambda s: s.delete("a"),
}


@pytest.fixture
async def worker(bootstrap: str) -> AsyncIterator[tuple[Runtime, HandChildren]]:
    """Leads a group of one, with connector `a`, which is stopped."""
    runtime, children = make(bootstrap)
    runtime.cluster.group = HandGroup()
    await runtime.start()
    await runtime.write_config(STOPPED)
    await runtime.meet()
    runtime.assign(Assignment(connectors=frozenset({"a"})), 5)
    await wait_for(lambda: runtime.statuses.get("a") is not None, lambda: "no status")
    yield runtime, children
    await runtime.stop()


async def test_herd_requests_that_wait_for_a_deletion_say_not_found(
    worker: tuple[Runtime, HandChildren],
) -> None:
    runtime, _ = worker
    service = ConnectService(runtime)
    async with runtime.config_lock:
        asked = {name: asyncio.ensure_future(ask(service)) for name, ask in ASKED.items()}
        await asyncio.sleep(0.1)  # time to go on without the lock
        assert not any(each.done() for each in asked.values()), "all wait for the lock"
        await runtime.write_config(delete_records("a"))
    answers = await asyncio.gather(*asked.values(), return_exceptions=True)
    assert {name: type(each) for name, each in zip(asked, answers, strict=True)} == dict.fromkeys(
        ASKED, NotFound
    )


async def test_herd_a_restart_of_what_is_deleted_while_others_are_asked_says_not_found(
    worker: tuple[Runtime, HandChildren], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its status outlives it for a moment."""
    runtime, _ = worker
    runtime.herder.revoke(["a"], [])  # it runs elsewhere

    async def elsewhere() -> Elsewhere:
        await runtime.write_config(delete_records("a"))
        return Elsewhere()

    monkeypatch.setattr(runtime.cluster, "elsewhere", elsewhere)
    with pytest.raises(NotFound, match="a not found"):
        await ConnectService(runtime).restart("a", include_tasks=True, only_failed=False)


@pytest.mark.parametrize(
    ("news", "refusal"),
    [(delete_records("a"), NotFound), ([target_state_record("a", TargetState.STARTED)], BadRequest)],
    ids=["deleted", "resumed"],
)
async def test_herd_offsets_stay_when_another_worker_writes_while_the_plugin_is_asked(
    worker: tuple[Runtime, HandChildren], monkeypatch: pytest.MonkeyPatch, news: Any, refusal: type[Exception]
) -> None:
    runtime, children = worker

    async def call(method: str, params: dict[str, Any], *, timeout_s: float = 60) -> bool:
        assert method == "alter_offsets"
        await runtime.write_config(news)
        return True

    monkeypatch.setattr(children, "call", call)
    with pytest.raises(refusal):
        await ConnectService(runtime).offsets.alter("a", [({"f": "x"}, {"n": 7})])
    assert await runtime.read_offsets("a", [{"f": "x"}]) == [None]


async def test_herd_task_configs_of_a_connector_that_is_deleted_meanwhile_are_dropped(
    worker: tuple[Runtime, HandChildren],
) -> None:
    runtime, _ = worker
    found = runtime.herder._connectors["a"]
    for key, value in delete_records("a"):
        runtime.configs.apply(key, value)
    assert runtime.herder.on_task_configs("a", found.epoch, [{"n": "0"}], runtime.configs) == []
