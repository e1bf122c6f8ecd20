"""Sends parcels to copies that keep offsets: no producer, no sequence numbers, one parcel at a time for each partition.

A copy takes batches behind its end, with holes where the source has some. So a broker that has lost records which it
had acknowledged (a power cut) would get a hole unnoticed. Therefore the ends are asked for whenever a connection is
new: such a loss ends the connection, too.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from klamm_kafka.client import BrokerError
from klamm_kafka.wire.messages.produce import PartitionProduceResponse
from klamm_mirror.copy.copies import BeginAgain, Copies
from klamm_mirror.copy.partition import MirrorPartition
from klamm_mirror.copy.sender import Sender
from klamm_mirror.raw import Batch
from klamm_mirror.settings.keep_offsets import KEEP_ACKS, PROMOTED
from klamm_mirror.topics.mirror_states import states_of

log = logging.getLogger(__name__)


class KeepingSender(Sender):
    """A sender of whole batches, as they are."""

    ACKS = KEEP_ACKS

    def __init__(self, *common: Any, copies: Copies) -> None:
        super().__init__(*common)
        self._copies = copies
        self._known: dict[int, object] = {}
        """The connection to each broker at which the copies' ends are what we think."""

    async def new_producer(self, outbox: MirrorPartition | None = None) -> tuple[int, int]:
        """Returns no producer: batches have those of the source."""
        return -1, -1

    async def before_sending(self, outboxes: Sequence[MirrorPartition]) -> dict[MirrorPartition, BrokerError]:
        node = self.leader(outboxes[0].remote, outboxes[0].partition)
        connection = await self._cluster.broker(node)
        if self._known.get(node) is connection:
            return {}
        for partition in self.every_outbox():
            if self.leader(partition.remote, partition.partition) != node or partition.copy_end < 0:
                continue
            end = await self._copies.end(partition)
            if end < partition.copy_end:
                raise BeginAgain(
                    f"{partition}: the target has lost what it had acknowledged, offsets {end} to {partition.copy_end - 1}"
                )
        self._known[node] = connection
        return {}

    def delivered(self, outbox: MirrorPartition, parcel: Batch, offset: int) -> None:
        outbox.copy_end = parcel.next_offset
        super().delivered(outbox, parcel, offset)

    async def refused(
        self, outbox: MirrorPartition, parcel: Batch, error: BrokerError, answer: PartitionProduceResponse
    ) -> None:
        """Leaves a promoted copy alone; stops the partition otherwise."""
        if (await states_of(self._cluster, [outbox.remote])).get(outbox.remote) != PROMOTED:
            await super().refused(outbox, parcel, error, answer)
            return
        log.warning("%s is promoted at the target: it is not copied any more", outbox)
        outbox.promote()
        outbox.failed(0.0, "promoted")

    def _parts(
        self, outbox: MirrorPartition, batch: Batch, error: BrokerError, answer: PartitionProduceResponse
    ) -> Sequence[Batch]:
        """Returns none: batches are not split."""
        return ()
