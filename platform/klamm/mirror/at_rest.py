"""Sets the places up to which a flow has copied, whether it runs or not.

A running flow sets them itself: it stops its source connector for a moment. Where nothing runs, this process becomes
the flow's worker for that moment, so that nobody else can start in between.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final

from klamm.mirror import flow_offsets, orders
from klamm.mirror.flow import FlowWorker
from klamm.mirror.flow_offsets import Partition
from klamm.mirror.places import Place, claimed
from klamm_base.errors import KlammError
from klamm_mirror.copy.source_offsets import Position
from klamm_mirror.settings.mm2_config import Flow, MirrorConfig

START_S: Final = 60.0


async def set_places(
    mirror: MirrorConfig,
    flow: Flow,
    place: Place,
    places: Mapping[Partition, int | None],
    before: Mapping[Partition, Position],
) -> None:
    """Sets where the flow goes on. Raises KlammError, also when another machine runs the flow."""
    changes = flow_offsets.entries(flow, places, before)
    try:
        await orders.give(place.orders, flow_offsets.ALTER, changes)
    except orders.NobodyThereError:
        await _at_rest(mirror, flow, place, changes)


async def _at_rest(mirror: MirrorConfig, flow: Flow, place: Place, changes: Sequence[Sequence[Any]]) -> None:
    with claimed(place):
        worker = FlowWorker(flow, place, mirror)
        try:
            async with asyncio.timeout(START_S):
                service = await worker.start_at_rest()
            await flow_offsets.alter(service, place, changes)
        except TimeoutError:
            raise KlammError(f"{flow.target} does not answer within {START_S:g} s") from None
        finally:
            await worker.stop()
