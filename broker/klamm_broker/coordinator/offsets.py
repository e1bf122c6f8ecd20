"""Committed offsets: commit, fetch, delete, expire.

Invariant: `group.offsets` holds durable offsets only. A commit or a deletion shows only after its append has succeeded,
and appends of a group complete in order, so the last written one is the last seen. Partitions with an append under way
are in `group.pending_offsets` and do not expire.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from klamm_broker.coordinator import records
from klamm_broker.coordinator.base import Group
from klamm_broker.coordinator.effects import KeyValue, Token, Turn
from klamm_broker.coordinator.group import ClassicGroup
from klamm_broker.coordinator.group_state import Event
from klamm_broker.coordinator.model import (
    CommitRequest,
    CommitResult,
    CommittedOffset,
    GroupConfig,
    OffsetToCommit,
    TopicPartition,
)
from klamm_broker.coordinator.rebalance import Rebalancer, append_error
from klamm_broker.coordinator.txn_offsets import Completed, PendingOffsets, TxnCommitRequest
from klamm_kafka.wire.errors import ErrorCode

_TOMBSTONES_PER_APPEND: Final = 1_000
"""A key has at most 600 bytes with names of the usual 249 characters: this many fit the 1 MiB of a batch."""
_STRING_BYTES_MAX: Final = 32_767
_CHARACTER_BYTES_MAX: Final = 4

CommitResults = dict[TopicPartition, ErrorCode]


class Offsets:
    """Requests about the offsets of one group each. The coordinator finds and creates groups."""

    def __init__(self, config: GroupConfig, rebalancer: Rebalancer, turn: Turn) -> None:
        self._config = config
        self._rebalancer = rebalancer
        self._turn = turn
        self.in_transactions: defaultdict[int, PendingOffsets] = defaultdict(PendingOffsets)
        """By partition of the log: what open transactions have committed there."""

    # Commit

    def commit(self, group: Group, request: CommitRequest, token: Token) -> None:
        """Handle an OffsetCommit whose group exists (it may have been made for this request)."""
        error = group.validate_commit(request)
        if error is not ErrorCode.NONE:
            self._turn.reply(token, CommitResult(error=error))
            return
        if isinstance(group, ClassicGroup) and not request.is_transactional:
            member = group.members.get(request.member_id)
            if member is not None:
                self._rebalancer.restart_session(group, member)  # a commit counts as a heartbeat
        results: CommitResults = {}
        accepted: dict[TopicPartition, CommittedOffset] = {}
        for at, offset in request.offsets.items():
            if self._is_too_large(offset.metadata or ""):
                results[at] = ErrorCode.OFFSET_METADATA_TOO_LARGE
            else:
                results[at] = ErrorCode.NONE
                accepted[at] = self._committed(request, offset)
        if not accepted:
            self._turn.reply(token, CommitResult(partitions=results))
        elif isinstance(request, TxnCommitRequest):
            self._store_in_txn(group, request, accepted, results, token)
        else:
            self._store(group, accepted, results, token)

    def _is_too_large(self, metadata: str) -> bool:
        """Decides whether the metadata is too long. Kafka counts characters, despite the property's name; the field counts bytes."""
        if len(metadata) > self._config.offset_metadata_max_bytes:
            return True
        return len(metadata) * _CHARACTER_BYTES_MAX > _STRING_BYTES_MAX and (
            len(metadata.encode()) > _STRING_BYTES_MAX
        )

    def _committed(self, request: CommitRequest, offset: OffsetToCommit) -> CommittedOffset:
        now_ms = self._turn.now.wall_ms
        return CommittedOffset(
            offset=offset.offset,
            leader_epoch=offset.leader_epoch,
            metadata=offset.metadata or "",
            topic_id=offset.topic_id,
            commit_timestamp_ms=now_ms,
            expire_timestamp_ms=-1 if request.retention_ms is None else now_ms + request.retention_ms,
        )

    def _store(
        self,
        group: Group,
        accepted: dict[TopicPartition, CommittedOffset],
        results: CommitResults,
        token: Token,
    ) -> None:
        def then(error: ErrorCode) -> None:
            self._settle(group, accepted)
            if error is ErrorCode.NONE:
                group.offsets.update(accepted)
                self.in_transactions[group.partition].supersede(group.group_id, accepted)
            else:
                told = append_error(error, too_large=ErrorCode.INVALID_COMMIT_OFFSET_SIZE)
                results.update(dict.fromkeys(accepted, told))
            self._turn.reply(token, CommitResult(partitions=results))

        batch = [records.committed_offset(group.group_id, at, offset) for at, offset in accepted.items()]
        group.pending_offsets.update(accepted.keys())
        self._turn.append(group.partition, batch, then, refuse=lambda: self._refuse(token))

    def _store_in_txn(
        self,
        group: Group,
        request: TxnCommitRequest,
        accepted: dict[TopicPartition, CommittedOffset],
        results: CommitResults,
        token: Token,
    ) -> None:
        """Store offsets as `_store` does, but pending until the transaction is decided (see `complete`)."""

        def then(error: ErrorCode) -> None:
            self._settle(group, accepted)
            if error is ErrorCode.NONE:
                pending = self.in_transactions[group.partition]
                group.pending_offsets.update(pending.add(request.producer_id, group.group_id, accepted))
            else:
                told = append_error(error, too_large=ErrorCode.INVALID_COMMIT_OFFSET_SIZE)
                results.update(dict.fromkeys(accepted, told))
            self._turn.reply(token, CommitResult(partitions=results))

        batch = [records.committed_offset(group.group_id, at, offset) for at, offset in accepted.items()]
        group.pending_offsets.update(accepted.keys())
        producer = request.producer_id, request.producer_epoch
        self._turn.append(group.partition, batch, then, producer=producer, refuse=lambda: self._refuse(token))

    def _refuse(self, token: Token) -> None:
        self._turn.reply(token, CommitResult(error=ErrorCode.UNKNOWN_SERVER_ERROR))

    def complete(self, partition: int, producer_id: int, *, committed: bool) -> Completed:
        """Decide the offsets of a transaction whose marker is in this partition of the log. The caller applies visible ones."""
        return self.in_transactions[partition].complete(producer_id, committed=committed)

    def settle(self, group: Group, at: TopicPartition) -> None:
        """Note that a transaction has ended for this partition of the group."""
        self._settle(group, (at,))

    def _settle(self, group: Group, partitions: Iterable[TopicPartition]) -> None:
        for at in partitions:
            if group.pending_offsets[at] > 1:
                group.pending_offsets[at] -= 1
            else:
                del group.pending_offsets[at]

    # Delete

    def delete(
        self,
        group: Group,
        partitions: Sequence[TopicPartition],
        done: Callable[[ErrorCode], None],
        *,
        last: Sequence[KeyValue] = (),
    ) -> None:
        """Write tombstones for these offsets, then `last`. `done` gets the first error, or NONE, once."""
        chunks = [
            partitions[i : i + _TOMBSTONES_PER_APPEND]
            for i in range(0, len(partitions), _TOMBSTONES_PER_APPEND)
        ] or [partitions]
        outcome = [ErrorCode.NONE]
        for i, chunk in enumerate(chunks):
            is_last = i == len(chunks) - 1
            batch = [records.offset_tombstone(group.group_id, at) for at in chunk]
            group.pending_offsets.update(chunk)
            self._turn.append(
                group.partition,
                [*batch, *(last if is_last else ())],
                self._after_tombstones(group, chunk, outcome, done if is_last else None),
            )

    def _after_tombstones(
        self,
        group: Group,
        chunk: Sequence[TopicPartition],
        outcome: list[ErrorCode],
        done: Callable[[ErrorCode], None] | None,
    ) -> Callable[[ErrorCode], None]:
        def then(error: ErrorCode) -> None:
            self._settle(group, chunk)
            if error is ErrorCode.NONE:
                for at in chunk:
                    group.offsets.pop(at, None)
                self._settle(group, self.in_transactions[group.partition].forget(group.group_id, chunk))
            elif outcome[0] is ErrorCode.NONE:
                outcome[0] = error
            if done is not None:
                done(outcome[0])

        return then

    def known(self, group: Group) -> list[TopicPartition]:
        """Returns every partition that has an offset, or will have one if an append under way succeeds."""
        return list(group.offsets.keys() | group.pending_offsets.keys())

    def knows(self, group: Group, at: TopicPartition) -> bool:
        """Decides whether `known` contains the partition."""
        return at in group.offsets or at in group.pending_offsets

    # Expiry

    def expired(self, group: Group) -> list[TopicPartition]:
        """Returns the offsets that are past their retention and that nobody needs (Kafka's rules, KIP-211)."""
        since = group.retention_starts()
        if since is None:
            return []
        now_ms = self._turn.now.wall_ms
        retention_ms = self._config.offsets_retention_ms
        expired = []
        for at, committed in group.offsets.items():
            if committed.expire_timestamp_ms != -1:
                is_due = now_ms >= committed.expire_timestamp_ms
            else:
                is_due = now_ms - since(committed) >= retention_ms
            if is_due and at not in group.pending_offsets and not group.is_subscribed_to(at.topic):
                expired.append(at)
        return expired

    def expire(self, group: Group) -> bool:
        """Delete expired offsets. Returns whether the group is Empty and keeps nothing, so that it can be removed as well."""
        expired = self.expired(group)
        if (
            group.is_empty
            and len(expired) == len(group.offsets)
            and not group.pending_offsets
            and not (isinstance(group, ClassicGroup) and group.pending_members)
        ):
            return True
        if expired:
            self.delete(group, expired, lambda _: None)
        return False


def mark_removed(group: ClassicGroup, wall_ms: int) -> None:
    """Mark a removed group, so that those who still hold it see it Dead."""
    group.handle(Event.REMOVED, wall_ms)
