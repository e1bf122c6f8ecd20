"""Holds a flow: its connectors that copy and follow groups stop, and stay so over restarts, until it is released.

The config topic at the target keeps the state, so it holds whichever process runs the flow, and while the source is lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from klamm.connect.errors import RequestError
from klamm.connect.topics.config_topic import TARGET_STATE, ConfigState, TargetState
from klamm_base.errors import KlammError
from klamm_kafka.client import Cluster
from klamm_kafka.wire.batch import Record
from klamm_mirror.settings.mm2_config import CHECKPOINT, SOURCE, Flow
from klamm_mirror.topics.follower import TopicFollower

if TYPE_CHECKING:
    from klamm.connect.service.connectors import ConnectService

COPYING: Final = (SOURCE, CHECKPOINT)
"""The connectors that a hold stops."""
HOLD: Final = "hold"
RELEASE: Final = "release"
STATES: Final = "states"


async def states(service: ConnectService, _: Any = None) -> dict[str, str]:
    """Returns the state that each connector is to have."""
    return {name: str(service.target(name)) for name in _names(service)}


async def hold(service: ConnectService, _: Any = None) -> list[str]:
    """Stops the connectors, and waits until their tasks have committed and ended. Returns their names. Raises KlammError."""
    names = _names(service)
    await _set(service, dict.fromkeys(names, TargetState.STOPPED))
    try:
        for name in names:
            await service.offsets.wait_stopped(name)
    except RequestError as e:
        raise KlammError(str(e)) from None
    return names


async def release(service: ConnectService, before: Mapping[str, str] | None = None) -> list[str]:
    """Gives the connectors the states that they had `before`, else starts them. Returns their names. Raises KlammError."""
    had, names = before or {}, _names(service)
    await _set(service, {name: TargetState(had.get(name, TargetState.STARTED)) for name in names})
    return names


async def target_states(target: Cluster, flow: Flow) -> TargetStates:
    """Returns the present states of a flow, whichever process runs it. Raises ClientError."""
    states = TargetStates(target, flow)
    await states.catch_up()
    return states


class TargetStates(TopicFollower):
    """Follows a flow's connectors and the states that are wanted of them, in the config topic at the flow's target."""

    committed = True

    def __init__(self, target: Cluster, flow: Flow) -> None:
        super().__init__(target, flow.worker["config.storage.topic"])
        self.reset()

    def reset(self) -> None:
        self._state = ConfigState()
        self.started_ms: int | None = None
        """The last time, as far as the topic still tells, at which one of them was told to go on or was removed, ms."""

    @property
    def held(self) -> bool:
        """True while all of them are stopped."""
        return holds(self._state)

    def take(self, record: Record) -> None:
        key = (record.key or b"").decode(errors="replace")
        name = self._state.apply(key, record.value)
        if name not in COPYING or not key.startswith(TARGET_STATE):
            return
        if record.value is None or self._state.target(name) is not TargetState.STOPPED:
            self.started_ms = record.timestamp


def holds(configs: ConfigState) -> bool:
    """Returns True if all is stopped: a change of offsets stops the source's connector alone, for a moment."""
    names = [name for name in COPYING if name in configs]
    return SOURCE in names and all(configs.target(name) is TargetState.STOPPED for name in names)


def _names(service: ConnectService) -> list[str]:
    return [name for name in COPYING if name in service.connectors()]


async def _set(service: ConnectService, wanted: Mapping[str, TargetState]) -> None:
    try:
        for name, state in wanted.items():
            await service.set_target(name, state)
    except RequestError as e:
        raise KlammError(str(e)) from None
