"""A flow that is held gets back what an operator had set before."""

from __future__ import annotations

import asyncio

from klamm.connect.topics.config_topic import TargetState
from klamm.mirror import flow_hold
from klamm_mirror.settings.mm2_config import CHECKPOINT, SOURCE


class Service:
    """The part of a worker's service that a hold uses."""

    def __init__(self, **states: TargetState) -> None:
        self.states = states
        self.offsets = self

    def connectors(self) -> list[str]:
        return list(self.states)

    def target(self, name: str) -> TargetState:
        return self.states[name]

    async def set_target(self, name: str, state: TargetState) -> None:
        self.states[name] = state

    async def wait_stopped(self, name: str) -> None:
        assert self.states[name] is TargetState.STOPPED


def test_a_release_restores_the_states_before():
    before = {SOURCE: TargetState.PAUSED, CHECKPOINT: TargetState.STARTED}
    service = Service(**before)
    noted = asyncio.run(flow_hold.states(service))  # type: ignore[arg-type]
    asyncio.run(flow_hold.hold(service))  # type: ignore[arg-type]
    assert set(service.states.values()) == {TargetState.STOPPED}
    asyncio.run(flow_hold.release(service, noted))  # type: ignore[arg-type]
    assert service.states == before


def test_a_release_starts_what_nothing_is_known_of():
    service = Service(**{SOURCE: TargetState.STOPPED})
    asyncio.run(flow_hold.release(service))  # type: ignore[arg-type]
    assert service.states == {SOURCE: TargetState.STARTED}
