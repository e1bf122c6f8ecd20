"""Common to ShareFetch and ShareAcknowledge: the check of a sender and of its acknowledgements."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from klamm_broker.api.registry import STEP
from klamm_broker.log.steps import Steps
from klamm_kafka.wire.acls import AclOperation, ResourceType
from klamm_kafka.wire.api_keys import ApiKey
from klamm_kafka.wire.errors import ErrorCode

if TYPE_CHECKING:
    from klamm_broker.coordinator.share.delivery import Ack
    from klamm_broker.coordinator.share.sessions import At
    from klamm_broker.security.authorizer import Access
    from klamm_broker.server.share_groups import Outcome
    from klamm_broker.server.state import BrokerState
    from klamm_kafka.wire.messages.share_acknowledge import AcknowledgeTopic, ShareAcknowledgeRequest
    from klamm_kafka.wire.messages.share_fetch import FetchTopic, ShareFetchRequest

MEMBER_ID_MAX: Final = 36
RENEW_FROM: Final = 2
"""The version from which locks can be renewed."""


def refused(
    broker: BrokerState, request: ShareFetchRequest | ShareAcknowledgeRequest, access: Access | None
) -> tuple[ErrorCode, str | None]:
    """Returns what is wrong with a request as a whole; NONE if nothing is."""
    if not broker.serves_share_groups:
        error = ErrorCode.UNSUPPORTED_VERSION
        return error, error.message
    if request.group_id is None:
        return ErrorCode.INVALID_REQUEST, "Invalid group id in the request."
    api = ApiKey(request.API_KEY or 0).name
    if access is not None and not access.may(AclOperation.READ, ResourceType.GROUP, request.group_id, api):
        error = ErrorCode.GROUP_AUTHORIZATION_FAILED
        return error, error.message
    if not request.member_id or len(request.member_id) > MEMBER_ID_MAX:
        return ErrorCode.INVALID_REQUEST, "Invalid member id in the request."
    return ErrorCode.NONE, None


class TopicRights:
    """The topics that the sender of a request may read; each is asked for once."""

    def __init__(self, access: Access | None) -> None:
        self._access = access
        self._known: dict[str, bool] = {}

    def may_read(self, topic: str) -> bool:
        if self._access is None:
            return True
        if topic not in self._known:
            self._known[topic] = self._access.may(
                AclOperation.READ, ResourceType.TOPIC, topic, ApiKey.SHARE_FETCH.name
            )
        return self._known[topic]


Acks = tuple[dict["At", "list[Ack]"], dict["At", "Outcome"]]
"""The acknowledgements of each partition, and the outcome for partitions where there is nothing to do."""


def reading_acks(
    broker: BrokerState,
    topics: Iterable[FetchTopic] | Iterable[AcknowledgeTopic],
    access: Access | None,
    *,
    version: int,
    is_renew: bool,
) -> Steps[Acks]:
    """Reads and checks the acknowledgements of a request, in steps."""
    from klamm_broker.coordinator.share.delivery import REJECT, RENEW, Ack

    found: dict[At, list[Ack]] = {}
    outcomes: dict[At, Outcome] = {}
    most = RENEW if version >= RENEW_FROM else REJECT
    rights = TopicRights(access)
    for topic in topics:
        known = broker.topics.by_id.get(topic.topic_id)
        yield None
        left = STEP
        for partition in topic.partitions:
            left -= 1
            if not left:
                left = STEP
                yield None
            at = (topic.topic_id, partition.partition_index)
            acks = [
                Ack(b.first_offset, b.last_offset, b.acknowledge_types)
                for b in partition.acknowledgement_batches
            ]
            error = ErrorCode.NONE
            if known is None:
                error = ErrorCode.UNKNOWN_TOPIC_ID
            elif not _are_valid(acks, most, is_renew=is_renew):
                error = ErrorCode.INVALID_REQUEST
            elif not rights.may_read(known.name):
                error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif not 0 <= partition.partition_index < len(known.partitions):
                error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif acks:
                found[at] = acks
                continue
            outcomes[at] = (error, None if error is ErrorCode.NONE else error.message)
    return found, outcomes


def _are_valid(acks: Iterable[Ack], most: int, *, is_renew: bool) -> bool:
    from klamm_broker.coordinator.share.delivery import RENEW

    before = -1
    for ack in acks:
        count = len(ack.types)
        if ack.first > ack.last or ack.first < before or not count:
            return False
        if count > 1 and ack.last - ack.first != count - 1:
            return False
        if any(not 0 <= type_ <= most or (type_ == RENEW and not is_renew) for type_ in ack.types):
            return False
        before = ack.last
    return True
