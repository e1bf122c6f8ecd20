"""Takes the partitions of Fetch answers: converts their batches, finds out why the source refuses something.

A partition whose log is not the one that it was read from stops (`source_check`); so does one that the source refuses to
give, or that nobody can decode. The others go on. One event loop.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Final

from klamm_kafka.client import BrokerError, ClientError, broker_error
from klamm_kafka.wire.errors import CorruptRecord, ErrorCode, ProtocolError
from klamm_kafka.wire.messages.fetch import PartitionData
from klamm_kafka.wire.offset_specs import EARLIEST, LATEST
from klamm_mirror.copy.copies import Copies
from klamm_mirror.copy.fetch_settings import FetchSettings
from klamm_mirror.copy.parcels import Unchanged
from klamm_mirror.copy.partition import MirrorPartition
from klamm_mirror.copy.rewrite import Rewriter
from klamm_mirror.copy.schema_rewrite import RecordRefusedError, RegistryAwayError
from klamm_mirror.copy.source_check import SourceCheck, refused_record, unreadable
from klamm_mirror.copy.source_metadata import SourceMetadata
from klamm_mirror.copy.start_offset import KEY
from klamm_mirror.copy.throttle import Throttle
from klamm_mirror.provenance.tracker import Provenance
from klamm_mirror.raw import Counts, last_epoch

log = logging.getLogger(__name__)

NO_OFFSET: Final = -1
"""The answer to a question for a time after the last record."""
MOVED: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
    }
)
"""Errors that newer metadata may cure."""


class Intake:
    """The place where fetched records arrive. `provenance` decides which batches are copied; None: all."""

    def __init__(
        self, settings: FetchSettings, metadata: SourceMetadata, check: SourceCheck,
        *, rewriter: Rewriter | Unchanged, throttle: Throttle, provenance: Provenance | None, copies: Copies | None,
    ) -> None:  # fmt: skip
        self.counts = Counts()
        self._settings = settings
        self._metadata = metadata
        self._check = check
        self._rewriter = rewriter
        self._throttle = throttle
        self._provenance = provenance
        self._copies = copies

    async def begin(self, partitions: Sequence[MirrorPartition]) -> None:
        """Sets the places of partitions that have no committed offset. A time after the last record means the end."""
        answers = await self._check.offsets({p: p.start for p in partitions})
        if late := [p for p, answer in answers.items() if answer == NO_OFFSET]:
            answers |= await self._check.offsets(dict.fromkeys(late, LATEST))
        starts: dict[MirrorPartition, int] = {}
        for partition, answer in answers.items():
            if isinstance(answer, ClientError):
                self._asked_in_vain(partition, answer)
            else:
                starts[partition] = answer
        if self._copies is not None:
            await self._copies.begin(starts)
            return
        for partition, offset in starts.items():
            if partition.start != EARLIEST:
                log.info(
                    "%s begins at offset %d: earlier records are not copied (%s)", partition, offset, KEY
                )
            partition.begin(offset)

    async def take(self, partition: MirrorPartition, data: PartitionData) -> bool:
        """Takes a partition of an answer. Returns True if it brought records."""
        if data.error_code:
            await self._refused(partition, data.error_code)
            return False
        now_ms = time.time_ns() // 1_000_000
        partition.high_watermark = data.high_watermark
        if self._settings.committed_only:
            partition.stable(data.last_stable_offset, now_ms)
        if data.preferred_read_replica >= 0:
            self._read_from(partition, data.preferred_read_replica)
        partition.reading.succeeded()
        partition.source_start = data.log_start_offset
        partition.heard(now_ms)
        if not data.records:
            return False
        self._throttle.take(partition.topic, len(data.records), time.monotonic())
        await self._convert(partition, data)
        return True

    async def _convert(self, partition: MirrorPartition, data: PartitionData) -> None:
        records, began = data.records, (partition.topic_id, partition.position)
        assert records is not None
        aborted = None
        if self._settings.committed_only:
            aborted = [(a.producer_id, a.first_offset) for a in data.aborted_transactions or ()]
        lens = None
        if self._provenance is not None:
            await self._provenance.learn(partition.topic, records)
            lens = self._provenance.lens(partition.topic)
        try:
            batches, position = await self._rewriter.convert(partition, records, self.counts, aborted, lens)
        except CorruptRecord as e:
            # A checksum that was damaged on the way may hold the next time.
            log.warning("%s at offset %d: %s; fetched again", partition, partition.position, e)
            partition.reading.failed(time.monotonic(), str(e))
            return
        except ProtocolError as e:
            unreadable(partition, f"{partition} at offset {partition.position}: {e}")
            return
        except RecordRefusedError as e:
            if partition.empty:
                refused_record(partition, e.offset, str(e))
            else:  # the records before it come first
                partition.reading.failed(time.monotonic(), str(e))
            return
        except RegistryAwayError as e:
            partition.reading.failed(time.monotonic(), str(e))
            return
        if (partition.topic_id, partition.position) != began:
            return  # meanwhile another broker has answered the same fetch, or the topic was made anew
        whole = bool(batches) and batches[-1].next_offset == position
        partition.add(batches, position, batches[-1].epoch if whole else last_epoch(records, partition.epoch))
        partition.sensors.fetched(batches, time.time_ns() // 1_000_000)

    def _read_from(self, partition: MirrorPartition, replica: int) -> None:
        if self._metadata.read_from(partition.key, replica, time.monotonic()):
            rack = self._settings.rack
            log.info("%s is read from broker %d, the replica next to rack %s", partition, replica, rack)

    async def _refused(self, partition: MirrorPartition, code: int) -> None:
        if self._metadata.leave_replica(partition.key):
            return  # a replica that is behind: its leader knows better
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            try:
                await self._check.out_of_range(partition)
            except BrokerError as e:
                self._asked_in_vain(partition, e)
            return
        error = broker_error(code, f"fetching {partition}")
        if not error.retriable and code not in MOVED:
            unreadable(partition, f"the source does not give the records: {error}")
            return
        if partition.reading.why is None:
            log.warning("%s waits for the source: %s", partition, error)
        partition.reading.failed(time.monotonic(), str(error))
        self._metadata.stale = True

    def _asked_in_vain(self, partition: MirrorPartition, error: ClientError) -> None:
        if not error.retriable:
            unreadable(partition, f"the source does not tell its offsets: {error}")
            return
        partition.reading.failed(time.monotonic(), str(error))
        self._metadata.stale = True
