"""ListOffsets (API key 2): beginnings and ends of logs, and the first record of a time."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from klamm.admin.client import Admin
from klamm.admin.errors import AdminError
from klamm.admin.filters import FilterError
from klamm.admin.model import TopicPartition, by_topic
from klamm_kafka.client import UnsupportedApi
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from klamm_kafka.wire.offset_specs import (
    EARLIEST,
    EARLIEST_LOCAL,
    EARLIEST_PENDING_UPLOAD,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
    SINCE,
)

SPECS: Final[Mapping[str, int]] = {
    "latest": LATEST,
    "earliest": EARLIEST,
    "max-timestamp": MAX_TIMESTAMP,
    "earliest-local": EARLIEST_LOCAL,
    "latest-tiered": LATEST_TIERED,
    "earliest-pending-upload": EARLIEST_PENDING_UPLOAD,
}
"""The special times; any number from 0 on is a timestamp in ms."""
NONE: Final = -1


def parse_time(text: str) -> int:
    """Return a timestamp, or a special time by number or name. Raises FilterError."""
    if text in SPECS:
        return SPECS[text]
    if text.removeprefix("-").isdecimal():
        return int(text)
    named = " / ".join(f"{number} or {name}" for name, number in SPECS.items())
    raise FilterError(
        f"Malformed time argument {text}. Please use {named}, or a specified long format timestamp"
    )


async def list_offsets(
    admin: Admin,
    partitions: Collection[TopicPartition],
    timestamp: int,
    *,
    committed: bool = False,
    again: bool = True,
) -> dict[TopicPartition, int | AdminError]:
    """Return the offset of a time in each partition: `NONE` where no record is that late, an AdminError where it
    failed. `committed`: the end lies before the first open transaction. `again`: as in `Admin.by_leader`.
    """

    async def call(node_id: int, mine: list[TopicPartition]) -> Mapping[TopicPartition, Any]:
        topics = [
            ListOffsetsTopic(
                name=topic,
                partitions=[ListOffsetsPartition(partition_index=p, timestamp=timestamp) for p in ids],
            )
            for topic, ids in by_topic(mine).items()
        ]
        request = ListOffsetsRequest(
            replica_id=-1, isolation_level=int(committed), topics=topics, timeout_ms=admin.timeout_ms
        )
        try:
            answer = await admin.ask_broker(node_id, request, floor=SINCE.get(timestamp, 0))
        except UnsupportedApi as e:
            return {tp: AdminError(ErrorCode.UNSUPPORTED_VERSION, str(tp), str(e)) for tp in mine}
        return {
            tp: AdminError(p.error_code, str(tp)) if p.error_code else p.offset
            for t in answer.topics
            for p in t.partitions
            for tp in [TopicPartition(t.name, p.partition_index)]
        }

    return await admin.by_leader(partitions, call, again=again)


async def known_offsets(
    admin: Admin, partitions: Collection[TopicPartition], timestamp: int, *, committed: bool = False
) -> dict[TopicPartition, int]:
    """Return what `list_offsets` does, for partitions that must have an answer. Raises the first AdminError."""
    found = await list_offsets(admin, partitions, timestamp, committed=committed)
    for offset in found.values():
        if isinstance(offset, AdminError):
            raise offset
    return {tp: o for tp, o in found.items() if isinstance(o, int)}


async def log_ends(admin: Admin, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int | None]:
    """Return log end offsets; None for partitions without a leader, or that are gone."""
    found = await list_offsets(admin, partitions, LATEST)
    return {tp: o if isinstance(o, int) else None for tp, o in found.items()}
