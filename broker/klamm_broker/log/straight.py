"""The straight way into a log, for what producers send most of the time: one batch, and nothing to do but to write it.

`append_one` accepts a batch only where every rule of `PartitionLog.append` holds and none of them asks for more work: the
topic stores batches as they come, the producer goes on where it was, the active segment has room. For anything else it
returns None and has changed nothing; `append` then decides, and explains its refusals. Both ways write the same bytes
and leave the same state. Decision 049 has the measurements.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from klamm_broker.log.producer_state import BatchMetadata, ProducerEntry
from klamm_broker.log.stored_log import StoredLog
from klamm_broker.log.validation import EXPANSION_MAX, RECORD_BYTES_MIN
from klamm_kafka.wire.batch import CRC_FROM, HEADER, HEADER_BYTES, LENGTH_PREFIX_BYTES, MAGIC
from klamm_kafka.wire.compression import Compression
from klamm_kafka.wire.crc import crc32c

_PLACE: Final = Struct(">qii")  # base offset, length, leader epoch: the first fields of a batch
_CODEC_MAX: Final = int(Compression.ZSTD)  # attributes above are flags, or unknown codecs


class StraightLog(StoredLog):
    """A stored log that takes the common batch."""

    def append_one(self, data: bytearray | memoryview, now_ms: int) -> int | None:
        """Append a client's record set if it is the common case. Returns its offset; or None, and nothing has changed.

        The buffer is patched in place and not kept, as by `append`.
        """
        config, size = self.config, len(data)
        if not config.straight or not HEADER_BYTES <= size <= config.batch_bytes_max:
            return None
        (
            base, length, epoch, magic, crc, attributes, delta, first_timestamp, timestamp, producer_id, producer_epoch,
            sequence, count,
        ) = HEADER.unpack_from(data)  # fmt: skip
        latest = now_ms + config.message_timestamp_after_max_ms
        if (
            magic != MAGIC
            or base
            or length != size - LENGTH_PREFIX_BYTES
            or not 0 <= attributes <= _CODEC_MAX
            or count <= 0
            or delta != count - 1
            or count * RECORD_BYTES_MIN > (size - HEADER_BYTES) * EXPANSION_MAX[attributes]
            or timestamp > latest
            or first_timestamp > latest
            or not self.sole_replica
            or self._closed
            or self._failed is not None
            or self.leader_epoch != self.epochs.latest
        ):
            return None
        entry: ProducerEntry | None = None
        if producer_id >= 0:
            entry = self.producers.entries.get(producer_id)
            if entry is None or not entry.continues(producer_epoch, sequence):
                return None
        if crc32c(data[CRC_FROM:]) != crc:
            return None
        offset = self.log_end_offset
        last = offset + delta
        _PLACE.pack_into(data, 0, offset, length, self.leader_epoch)
        if not self._segments.active.append_one(
            data, last, timestamp, max_bytes=config.segment_bytes, max_age_ms=config.roll_ms
        ):
            _PLACE.pack_into(data, 0, 0, length, epoch)  # as it came
            return None
        if entry is not None:
            entry.add(BatchMetadata((sequence + delta) & 0x7FFFFFFF, last, delta, timestamp))
            entry.last_timestamp = timestamp
        self.log_end_offset = self.high_watermark = last + 1
        if self._ending:
            self._ending.clear()
        return int(offset)
