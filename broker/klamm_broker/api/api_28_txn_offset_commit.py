"""TxnOffsetCommit, key 28: versions 0 to 5.

Behaviour: stores offsets within a producer's transaction: they are written at once and visible when it commits. The
group's partition of `__consumer_offsets` must be part of the transaction. Each partition that does not exist gets its
own error.
Versions: 3 brings the member's id and generation; 4 knows TRANSACTION_ABORTABLE; from 5 on (transaction version 2) the
broker adds the group's partition to the transaction.
"""

from __future__ import annotations

from asyncio import Future
from typing import TYPE_CHECKING, Final

from klamm_broker.api.commits import committing
from klamm_broker.api.registry import LARGE_REQUEST_MAX, STEP, Need, RequestContext, handles
from klamm_broker.coordinator.model import CommitResult, OffsetToCommit, TopicPartition
from klamm_broker.coordinator.transactions.model import ProducerRequest
from klamm_broker.coordinator.txn_offsets import TxnCommitRequest
from klamm_broker.log.steps import Steps
from klamm_broker.server.slices import drive
from klamm_broker.server.transactions import Errors, Support
from klamm_kafka.wire.acls import AclOperation, ResourceType
from klamm_kafka.wire.api_keys import ApiKey
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

if TYPE_CHECKING:
    from klamm_broker.server.state import BrokerState

LOADING_FROM: Final = 2
ABORTABLE_FROM: Final = 4
ADDS_FROM: Final = 5


@handles(
    ApiKey.TXN_OFFSET_COMMIT,
    versions=(0, 5),
    request_max=LARGE_REQUEST_MAX,
    needs=[
        Need(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID),
        Need(AclOperation.READ, ResourceType.GROUP),
        Need(AclOperation.READ, ResourceType.TOPIC),
    ],
)
def txn_offset_commit(
    broker: BrokerState, ctx: RequestContext, request: TxnOffsetCommitRequest
) -> Steps[TxnOffsetCommitResponse | Future[TxnOffsetCommitResponse]]:
    commit = _Commit(broker, ctx, request)
    if not ctx.may(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id):
        return commit.refuse(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if not ctx.may(AclOperation.READ, ResourceType.GROUP, request.group_id):
        return commit.refuse(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    yield from commit.collecting()
    if not commit.offsets:
        return commit.response(CommitResult())
    if not request.group_id:
        return commit.response(CommitResult(error=ErrorCode.INVALID_GROUP_ID))
    verified = commit.verify()
    if not isinstance(verified, Future):
        return commit.store(verified)

    async def later() -> TxnOffsetCommitResponse:
        answer = commit.store(await verified)
        return await answer if isinstance(answer, Future) else answer

    return broker.loop.create_task(later())


class _Commit:
    """One request: the offsets whose partitions exist, and their way through both coordinators."""

    def __init__(self, broker: BrokerState, ctx: RequestContext, request: TxnOffsetCommitRequest) -> None:
        self._broker = broker
        self._ctx = ctx
        self._request = request
        self._version = ctx.api_version
        self._denied: set[str] = set()
        self.offsets: dict[TopicPartition, OffsetToCommit] = {}

    def collecting(self) -> Steps[None]:
        """Find the partitions that exist and that the sender may read."""
        for topic in self._request.topics:
            if not self._ctx.may(AclOperation.READ, ResourceType.TOPIC, topic.name):
                self._denied.add(topic.name)
                continue
            found = self._broker.topics.by_name.get(topic.name)
            if found is None:
                continue
            for number, p in enumerate(topic.partitions, 1):
                if not number % STEP:
                    yield None
                if 0 <= p.partition_index < len(found.partitions):
                    self.offsets[TopicPartition(topic.name, p.partition_index)] = OffsetToCommit(
                        p.committed_offset, p.committed_leader_epoch, p.committed_metadata, found.id
                    )

    def refuse(self, error: ErrorCode) -> TxnOffsetCommitResponse:
        """Returns the answer with one error for all partitions."""
        self.offsets = {
            TopicPartition(topic.name, p.partition_index): OffsetToCommit(-1, -1, None, bytes(16))
            for topic in self._request.topics
            for p in topic.partitions
        }
        return self.response(CommitResult(error=error))

    def verify(self) -> Errors | Future[Errors]:
        groups, request = self._broker.groups, self._request
        index = groups.coordinator.partition_for(request.group_id)
        partition = groups.offsets_partition(index) if groups.ensure_topic() else None
        if partition is None:
            return {TopicPartition("", index): ErrorCode.COORDINATOR_NOT_AVAILABLE}
        producer = ProducerRequest(
            transactional_id=request.transactional_id,
            producer_id=request.producer_id,
            producer_epoch=request.producer_epoch,
        )
        support = Support.INVALID_STATE
        if self._version >= ADDS_FROM:
            support = Support.ADDS
        elif self._version >= ABORTABLE_FROM:
            support = Support.ABORTABLE
        return self._broker.transactions.verify(producer, [partition], support)

    def store(self, errors: Errors) -> TxnOffsetCommitResponse | Future[TxnOffsetCommitResponse]:
        for error in errors.values():
            return self.response(CommitResult(error=error))
        request = self._request
        commit = TxnCommitRequest(
            group_id=request.group_id,
            generation_id=request.generation_id,
            member_id=request.member_id,
            group_instance_id=request.group_instance_id,
            reports_missing_group=False,
            offsets=self.offsets,
            producer_id=request.producer_id,
            producer_epoch=request.producer_epoch,
        )
        stored = drive(self._broker.loop, committing(self._broker, commit))
        if isinstance(stored, CommitResult):
            return self.response(stored)
        return self._broker.loop.create_task(self._later(stored))

    async def _later(
        self, stored: Future[CommitResult] | Future[CommitResult | Future[CommitResult]]
    ) -> TxnOffsetCommitResponse:
        result = await stored
        return self.response(await result if isinstance(result, Future) else result)

    def response(self, result: CommitResult) -> TxnOffsetCommitResponse:
        """Returns the answer, with every partition in the order of the request."""
        return TxnOffsetCommitResponse(
            topics=[
                TxnOffsetCommitResponseTopic(
                    name=topic.name,
                    partitions=[
                        TxnOffsetCommitResponsePartition(
                            partition_index=p.partition_index,
                            error_code=self._error(TopicPartition(topic.name, p.partition_index), result),
                        )
                        for p in topic.partitions
                    ],
                )
                for topic in self._request.topics
            ]
        )

    def _error(self, at: TopicPartition, result: CommitResult) -> ErrorCode:
        if at.topic in self._denied:
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        if at not in self.offsets:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        error = result.partitions[at] if result.error is ErrorCode.NONE else result.error
        if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and self._version < LOADING_FROM:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE  # older clients may stop for good otherwise
        return error
