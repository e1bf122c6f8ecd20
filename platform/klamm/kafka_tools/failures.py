"""Kafka's names and words for error codes: its tools print both, and scripts look for them."""

from __future__ import annotations

from typing import Final

from klamm.admin.errors import AdminError
from klamm_kafka.wire.errors import ErrorCode

_PREFIX: Final = "org.apache.kafka.common.errors."
_KNOWN: Final[dict[int, tuple[str, str]]] = {
    -1: ("UnknownServerException", "The server experienced an unexpected error when processing the request."),
    1: (
        "OffsetOutOfRangeException",
        "The requested offset is not within the range of offsets maintained by the server.",
    ),
    3: ("UnknownTopicOrPartitionException", "This server does not host this topic-partition."),
    5: (
        "LeaderNotAvailableException",
        "There is no leader for this topic-partition as we are in the middle of a leadership election.",
    ),
    6: (
        "NotLeaderOrFollowerException",
        (
            "For requests intended only for the leader, this error indicates that the broker is not the current leader. "
            "For requests intended for any replica, this error indicates that the broker is not a replica of the topic partition."
        ),
    ),
    7: ("TimeoutException", "The request timed out."),
    14: (
        "CoordinatorLoadInProgressException",
        "The coordinator is loading and hence can't process requests.",
    ),
    15: ("CoordinatorNotAvailableException", "The coordinator is not available."),
    16: ("NotCoordinatorException", "This is not the correct coordinator."),
    17: ("InvalidTopicException", "The request attempted to perform an operation on an invalid topic."),
    24: ("InvalidGroupIdException", "The group id is invalid."),
    29: ("TopicAuthorizationException", "Topic authorization failed."),
    30: ("GroupAuthorizationException", "Group authorization failed."),
    31: ("ClusterAuthorizationException", "Cluster authorization failed."),
    35: ("UnsupportedVersionException", "The version of API is not supported."),
    36: ("TopicExistsException", "Topic with this name already exists."),
    37: ("InvalidPartitionsException", "Number of partitions is below 1."),
    38: (
        "InvalidReplicationFactorException",
        "Replication factor is below 1 or larger than the number of available brokers.",
    ),
    39: ("InvalidReplicaAssignmentException", "Replica assignment is invalid."),
    40: ("InvalidConfigurationException", "Configuration is invalid."),
    41: ("NotControllerException", "This is not the correct controller for this cluster."),
    42: (
        "InvalidRequestException",
        (
            "This most likely occurs because of a request being malformed by the client library or the message was sent to "
            "an incompatible broker. See the broker logs for more details."
        ),
    ),
    44: ("PolicyViolationException", "Request parameters do not satisfy the configured policy."),
    47: (
        "InvalidProducerEpochException",
        "Producer attempted to produce with an old epoch.",
    ),
    48: (
        "InvalidTxnStateException",
        "The producer attempted a transactional operation in an invalid state.",
    ),
    53: ("TransactionalIdAuthorizationException", "Transactional Id authorization failed."),
    54: ("SecurityDisabledException", "Security features are disabled."),
    57: (
        "LogDirNotFoundException",
        "The user-specified log directory is not found in the broker config.",
    ),
    61: ("DelegationTokenDisabledException", "Delegation Token feature is not enabled."),
    62: ("DelegationTokenNotFoundException", "Delegation Token is not found on server."),
    63: ("DelegationTokenOwnerMismatchException", "Specified Principal is not valid Owner/Renewer."),
    64: (
        "UnsupportedByAuthenticationException",
        (
            "Delegation Token requests are not allowed on PLAINTEXT/1-way SSL channels and on delegation token "
            "authenticated channels."
        ),
    ),
    65: ("DelegationTokenAuthorizationException", "Delegation Token authorization failed."),
    66: ("DelegationTokenExpiredException", "Delegation Token is expired."),
    68: ("GroupNotEmptyException", "The group is not empty."),
    69: ("GroupIdNotFoundException", "The group id does not exist."),
    86: (
        "GroupSubscribedToTopicException",
        "Deleting offsets of a topic is forbidden while the consumer group is actively subscribed to it.",
    ),
    90: (
        "ProducerFencedException",
        "There is a newer producer with the same transactionalId which fences the current one.",
    ),
    91: (
        "ResourceNotFoundException",
        "A request illegally referred to a resource that does not exist.",
    ),
    105: ("TransactionalIdNotFoundException", "The transactionalId could not be found."),
}


def reason(error: AdminError) -> str:
    """Return the broker's own words, or Kafka's for the code, or ours."""
    if error.given:
        return error.text
    return _KNOWN[error.code][1] if error.code in _KNOWN else error.text


def with_class(error: AdminError) -> str:
    """Return the reason behind the name of Kafka's exception, as `toString` of it prints both."""
    if error.code in _KNOWN:
        return f"{_PREFIX}{_KNOWN[error.code][0]}: {reason(error)}"
    try:
        return f"{ErrorCode(error.code).name}: {reason(error)}"
    except ValueError:
        return reason(error)
