"""Sends parcels to copies that keep offsets: no producer, no sequence numbers, one parcel at a time for each partition.

A copy takes batches behind its end, with holes where the source has some. So a broker that has lost records which it
had acknowledged (a power cut) would get a hole unnoticed. Therefore a copy's end is asked for whenever a connection is
new, on the connection that then has the batches: such a loss ends the connection, too. So would a copy that was deleted and made again, without a new connection:
therefore Produce names the copy by its topic id, as it was when the end was asked for.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Final

from klamm_kafka.client import BrokerError, ClientError, Connection, ConnectionLost
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.fields import UUID_ZERO
from klamm_kafka.wire.messages.produce import PartitionProduceResponse
from klamm_kafka.wire.offset_specs import LATEST
from klamm_mirror.copy.copies import made_again, shortened
from klamm_mirror.copy.partition import MirrorPartition
from klamm_mirror.copy.sender import Sender
from klamm_mirror.raw import Batch
from klamm_mirror.settings.keep_offsets import KEEP_ACKS, PROMOTED
from klamm_mirror.topics import leaders
from klamm_mirror.topics.mirror_states import states_of

log = logging.getLogger(__name__)

BY_ID: Final = 13
"""The version of Produce from which on topics are known by their ids. All brokers that keep offsets have it."""


class KeepingSender(Sender):
    """A sender of whole batches, as they are."""

    PRODUCE_VERSION = BY_ID
    ACKS = KEEP_ACKS

    def __init__(self, *common: Any) -> None:
        super().__init__(*common)
        self._known: dict[MirrorPartition, Connection] = {}
        """The connection at which each copy's end is what we think."""

    async def new_producer(self, outbox: MirrorPartition | None = None) -> tuple[int, int]:
        """Returns no producer: batches have those of the source."""
        return -1, -1

    async def before_sending(
        self, connection: Connection, outboxes: Sequence[MirrorPartition]
    ) -> dict[MirrorPartition, BrokerError]:
        new = {(p.remote, p.partition): p for p in outboxes if self._known.get(p) is not connection}
        barred: dict[MirrorPartition, BrokerError] = {}
        ends = await leaders.offsets_by(connection, dict.fromkeys(new, LATEST)) if new else {}
        for place, partition in new.items():
            end = ends.get(place, ConnectionLost("an answer without the partition"))
            if isinstance(end, BrokerError):
                barred[partition] = end
            elif isinstance(end, ClientError):
                raise end
            elif end < partition.copy_end:
                raise shortened(partition, end, partition.copy_end)
            else:
                self._known[partition] = connection
        return barred

    def called(self, outbox: MirrorPartition) -> bytes:
        return outbox.copy_id or UUID_ZERO  # no topic has this id

    def failed(self, outbox: MirrorPartition, error: ClientError) -> None:
        self._known.pop(outbox, None)
        if isinstance(error, BrokerError) and error.code == ErrorCode.UNKNOWN_TOPIC_ID:
            raise made_again(outbox)
        super().failed(outbox, error)

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
