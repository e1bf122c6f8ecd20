"""Holds a flow: its connectors that copy and follow groups stop, and stay so over restarts, until it is released.

The config topic at the target keeps the state, so it holds whichever process runs the flow, and while the source is lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from klamm.connect.errors import RequestError
from klamm.connect.topics.config_topic import TargetState
from klamm_base.errors import KlammError
from klamm_mirror.settings.mm2_config import CHECKPOINT, SOURCE

if TYPE_CHECKING:
    from klamm.connect.service.connectors import ConnectService

HOLD: Final = "hold"
RELEASE: Final = "release"


async def hold(service: ConnectService, _: Any = None) -> list[str]:
    """Stops the connectors, and waits until their tasks have committed and ended. Returns their names. Raises KlammError."""
    names = await _set(service, TargetState.STOPPED)
    try:
        for name in names:
            await service.offsets.wait_stopped(name)
    except RequestError as e:
        raise KlammError(str(e)) from None
    return names


async def release(service: ConnectService, _: Any = None) -> list[str]:
    """Starts the connectors again. Returns their names. Raises KlammError."""
    return await _set(service, TargetState.STARTED)


async def _set(service: ConnectService, state: TargetState) -> list[str]:
    names: list[str] = [name for name in (SOURCE, CHECKPOINT) if name in service.connectors()]
    try:
        for name in names:
            await service.set_target(name, state)
    except RequestError as e:
        raise KlammError(str(e)) from None
    return names
