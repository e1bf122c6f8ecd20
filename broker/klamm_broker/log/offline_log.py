"""The log of a partition whose directory cannot be used: it refuses everything and knows nothing.

It replaces a `PartitionLog`, so that the partition is known, named and answered for. Its offsets are 0 and
mean nothing: check `offline` before using them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal, NoReturn

from klamm_broker.log.answers import AppendInfo, FileSlice
from klamm_broker.log.config import LogConfig
from klamm_broker.log.errors import StorageError
from klamm_broker.log.leader_epoch import LeaderEpochCache
from klamm_broker.log.log_loader import Loaded
from klamm_broker.log.partition_log import PartitionLog
from klamm_broker.log.producer_state import ProducerState
from klamm_broker.log.steps import Steps
from klamm_broker.log.timestamps import Found
from klamm_broker.log.txn_index import AbortedTxn
from klamm_broker.log.validation import Prepared

NOWHERE = Path("/nonexistent")


class OfflineLog(PartitionLog):
    """The stand-in. Every operation raises StorageError, which is KAFKA_STORAGE_ERROR for clients."""

    offline = True

    def __init__(self, topic: str, partition: int, config: LogConfig, leader_epoch: int, why: str) -> None:
        nothing = Loaded(
            segments=[],
            epochs=LeaderEpochCache(NOWHERE),
            producers=ProducerState(),
            log_start_offset=0,
            log_end_offset=0,
            snapshot_offset=0,
        )
        super().__init__(
            NOWHERE, topic, partition, config, nothing, recovery_point=0, leader_epoch=leader_epoch, now_ms=0
        )
        self.why = why
        self._closed = True  # nothing to flush, to clean or to close
        self._failed = OSError(why)  # nothing will ever be committed

    def _refuse(self) -> NoReturn:
        raise StorageError(f"{self.name} is offline: {self.why}")

    def preparing(
        self, batches: bytearray | memoryview, *, now_ms: int, from_client: bool = True
    ) -> Steps[Prepared]:
        self._refuse()

    def append(
        self,
        batches: bytearray | memoryview | Prepared,
        *,
        now_ms: int,
        origin: Literal["client", "coordinator"] = "client",
        transaction_version: int | None = 0,
    ) -> AppendInfo:
        self._refuse()

    def append_copied(self, batches: bytearray | memoryview, *, now_ms: int) -> AppendInfo:
        self._refuse()

    def begin_copy_at(self, offset: int, *, now_ms: int) -> None:
        self._refuse()

    def read(
        self, offset: int, max_bytes: int, *, up_to: int, min_one_batch: bool = True
    ) -> FileSlice | None:
        self._refuse()

    def advance_log_start_offset(self, offset: int) -> None:
        self._refuse()

    def aborted_transactions(self, first: int, end: int) -> list[AbortedTxn]:
        self._refuse()

    def finding_timestamp(self, timestamp: int | None) -> Steps[Found | None]:
        self._refuse()

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        self._refuse()
