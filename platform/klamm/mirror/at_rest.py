"""Changes a flow, whether it runs or not: sets the places up to which it has copied, holds it, lets it go on.

A running flow does it itself. Where nothing runs, this process becomes the flow's worker for that moment, so that nobody
else can start in between.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from klamm.connect.service.connectors import ConnectService
from klamm.mirror import flow_hold, flow_offsets, orders
from klamm.mirror.flow import FlowWorker
from klamm.mirror.flow_offsets import Partition
from klamm.mirror.places import Place, claimed
from klamm_base.errors import KlammError
from klamm_mirror.copy.source_offsets import Position
from klamm_mirror.settings.mm2_config import Flow, MirrorConfig

START_S: Final = 60.0


Work = Callable[[ConnectService, Any], Awaitable[Any]]
"""Work in the flow's worker, with its argument."""


@dataclass(frozen=True, slots=True)
class Seat:
    """The worker of one flow of a file: a process that runs it, or this one."""

    mirror: MirrorConfig
    flow: Flow
    place: Place


async def set_places(
    seat: Seat, places: Mapping[Partition, int | None], before: Mapping[Partition, Position]
) -> None:
    """Sets where the flow goes on. Raises KlammError, also when another machine runs the flow."""
    changes = flow_offsets.entries(seat.flow, places, before)
    await _ask(
        seat, flow_offsets.ALTER, changes, lambda service, c: flow_offsets.alter(service, seat.place, c)
    )


async def states(seat: Seat) -> dict[str, str]:
    """Returns the state that each connector of the flow is to have. Raises KlammError, also when another machine runs it."""
    found: dict[str, str] = await _ask(seat, flow_hold.STATES, None, flow_hold.states)
    return found


async def hold(seat: Seat) -> None:
    """Holds the flow. Raises KlammError, also when another machine runs it."""
    await _ask(seat, flow_hold.HOLD, None, flow_hold.hold)


async def release(seat: Seat, before: Mapping[str, str] | None = None) -> None:
    """Lets the flow go on, as it was `before` if that is known. Raises KlammError, also when another machine runs it."""
    await _ask(seat, flow_hold.RELEASE, before, flow_hold.release)


async def _ask(seat: Seat, order: str, argument: Any, work: Work) -> Any:
    """Has an order carried out by the flow's process; where none is, does the work as the flow's worker."""
    try:
        return await orders.give(seat.place.orders, order, argument)
    except orders.NobodyThereError:
        return await _at_rest(seat, argument, work)


async def _at_rest(seat: Seat, argument: Any, work: Work) -> Any:
    with claimed(seat.place):
        worker = FlowWorker(seat.flow, seat.place, seat.mirror)
        try:
            async with asyncio.timeout(START_S):
                service = await worker.start_at_rest()
            return await work(service, argument)
        except TimeoutError:
            raise KlammError(f"{seat.flow.target} does not answer within {START_S:g} s") from None
        finally:
            await worker.stop()
