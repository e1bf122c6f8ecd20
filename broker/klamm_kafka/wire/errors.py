"""Kafka's error codes, and the errors of the wire layer.

Every error of this package is a `ProtocolError` and carries the `ErrorCode` that a server answers. The peer causes a
`MalformedMessage` and its kin (bytes that cannot be read); we cause an `UnencodableValue` (a value that has no place in
the message). Nothing here logs or answers.
"""

from __future__ import annotations

from enum import IntEnum
from typing import ClassVar

from klamm_base.errors import KlammError


class ErrorCode(IntEnum):
    """The codes that responses carry. `retriable`: clients repeat the request by themselves."""

    retriable: bool
    message: str

    def __new__(cls, code: int, retriable: bool = False, message: str = "") -> ErrorCode:
        member = int.__new__(cls, code)
        member._value_ = code
        member.retriable = retriable
        member.message = message
        return member

    UNKNOWN_SERVER_ERROR = -1, False, "the server failed in an unexpected way"
    NONE = 0, False, "no error"
    OFFSET_OUT_OF_RANGE = 1, False, "the log does not hold this offset"
    CORRUPT_MESSAGE = 2, True, "the batch failed its checksum or is damaged"
    UNKNOWN_TOPIC_OR_PARTITION = 3, True, "this broker has no such topic or partition"
    INVALID_FETCH_SIZE = 4, False, "the fetch size is not usable"
    LEADER_NOT_AVAILABLE = 5, True, "the partition has no leader at the moment"
    NOT_LEADER_OR_FOLLOWER = 6, True, "this broker does not lead, or does not host, the partition"
    REQUEST_TIMED_OUT = 7, True, "the request was not finished in time"
    BROKER_NOT_AVAILABLE = 8, False, "the broker is not available"
    REPLICA_NOT_AVAILABLE = 9, True, "the replica is not available"
    MESSAGE_TOO_LARGE = 10, False, "the batch is larger than the server accepts"
    STALE_CONTROLLER_EPOCH = 11, False, "the controller has changed"
    OFFSET_METADATA_TOO_LARGE = 12, False, "the metadata beside the offset is too long"
    NETWORK_EXCEPTION = 13, True, "the connection ended before the answer came"
    COORDINATOR_LOAD_IN_PROGRESS = 14, True, "the coordinator is still loading"
    COORDINATOR_NOT_AVAILABLE = 15, True, "no coordinator is available"
    NOT_COORDINATOR = 16, True, "this broker is not the coordinator asked for"
    INVALID_TOPIC_EXCEPTION = 17, False, "the topic name is not valid, or the topic may not be used this way"
    RECORD_LIST_TOO_LARGE = 18, False, "the batches are larger than a segment"
    NOT_ENOUGH_REPLICAS = 19, True, "fewer replicas are in sync than required"
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20, True, "written, but by fewer in-sync replicas than required"
    INVALID_REQUIRED_ACKS = 21, False, "acks must be -1, 0 or 1"
    ILLEGAL_GENERATION = 22, False, "the group is at another generation"
    INCONSISTENT_GROUP_PROTOCOL = 23, False, "the member shares no protocol with the group"
    INVALID_GROUP_ID = 24, False, "the group id is not valid"
    UNKNOWN_MEMBER_ID = 25, False, "the group does not know this member"
    INVALID_SESSION_TIMEOUT = 26, False, "the session timeout is outside the permitted range"
    REBALANCE_IN_PROGRESS = 27, False, "the group is rebalancing, join again"
    INVALID_COMMIT_OFFSET_SIZE = 28, False, "the commit is larger than the server accepts"
    TOPIC_AUTHORIZATION_FAILED = 29, False, "not authorized for the topic"
    GROUP_AUTHORIZATION_FAILED = 30, False, "not authorized for the group"
    CLUSTER_AUTHORIZATION_FAILED = 31, False, "not authorized for the cluster"
    INVALID_TIMESTAMP = 32, False, "the timestamp of a record is out of range"
    UNSUPPORTED_SASL_MECHANISM = 33, False, "the SASL mechanism is not enabled"
    ILLEGAL_SASL_STATE = 34, False, "the request does not fit the state of authentication"
    UNSUPPORTED_VERSION = 35, False, "this version of the API is not supported"
    TOPIC_ALREADY_EXISTS = 36, False, "the topic exists already"
    INVALID_PARTITIONS = 37, False, "the number of partitions is not valid"
    INVALID_REPLICATION_FACTOR = 38, False, "the replication factor is below 1 or above the number of brokers"
    INVALID_REPLICA_ASSIGNMENT = 39, False, "the replica assignment is not valid"
    INVALID_CONFIG = 40, False, "the configuration is not valid"
    NOT_CONTROLLER = 41, True, "this broker is not the controller"
    INVALID_REQUEST = 42, False, "the request contradicts itself or cannot be read"
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43, False, "the log's message format does not support the request"
    POLICY_VIOLATION = 44, False, "a policy refused the request"
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45, False, "a sequence number of this producer is missing"
    DUPLICATE_SEQUENCE_NUMBER = 46, False, "this sequence number was written before"
    INVALID_PRODUCER_EPOCH = 47, False, "a newer producer has taken over this producer id"
    INVALID_TXN_STATE = 48, False, "the transaction is not in a state for this operation"
    INVALID_PRODUCER_ID_MAPPING = 49, False, "the producer id does not belong to this transactional id"
    INVALID_TRANSACTION_TIMEOUT = 50, False, "the transaction timeout is above the broker's maximum"
    CONCURRENT_TRANSACTIONS = 51, True, "an operation on this transaction is under way"
    TRANSACTION_COORDINATOR_FENCED = 52, False, "a newer transaction coordinator has taken over"
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53, False, "not authorized for the transactional id"
    SECURITY_DISABLED = 54, False, "security features are switched off"
    OPERATION_NOT_ATTEMPTED = 55, False, "not attempted, another part of the request failed"
    KAFKA_STORAGE_ERROR = 56, True, "the disk failed"
    LOG_DIR_NOT_FOUND = 57, False, "there is no such log directory"
    SASL_AUTHENTICATION_FAILED = 58, False, "authentication failed"
    UNKNOWN_PRODUCER_ID = 59, False, "nothing is known of this producer id any more"
    REASSIGNMENT_IN_PROGRESS = 60, False, "the partition is being reassigned"
    DELEGATION_TOKEN_AUTH_DISABLED = (
        61,
        False,
        "delegation tokens are switched off: the broker has no delegation.token.secret.key",
    )
    DELEGATION_TOKEN_NOT_FOUND = 62, False, "there is no such delegation token"
    DELEGATION_TOKEN_OWNER_MISMATCH = 63, False, "the delegation token belongs to somebody else"
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = (
        64,
        False,
        "delegation tokens cannot be asked for over this connection",
    )
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65, False, "not authorized for the delegation token"
    DELEGATION_TOKEN_EXPIRED = 66, False, "the delegation token has expired"
    INVALID_PRINCIPAL_TYPE = 67, False, "this type of principal is not supported"
    NON_EMPTY_GROUP = 68, False, "the group has members"
    GROUP_ID_NOT_FOUND = 69, False, "there is no such group"
    FETCH_SESSION_ID_NOT_FOUND = 70, True, "there is no such fetch session"
    INVALID_FETCH_SESSION_EPOCH = 71, True, "the fetch session is at another epoch"
    LISTENER_NOT_FOUND = 72, True, "the leader has no listener of this name"
    TOPIC_DELETION_DISABLED = 73, False, "deleting topics is switched off"
    FENCED_LEADER_EPOCH = 74, True, "the leader epoch asked for is older than the broker's"
    UNKNOWN_LEADER_EPOCH = 75, True, "the leader epoch asked for is newer than the broker's"
    UNSUPPORTED_COMPRESSION_TYPE = 76, False, "this compression is not supported here"
    STALE_BROKER_EPOCH = 77, False, "the broker has registered anew since"
    OFFSET_NOT_AVAILABLE = 78, True, "the high watermark has not caught up with the new leader yet"
    MEMBER_ID_REQUIRED = 79, False, "join again with the member id given here"
    PREFERRED_LEADER_NOT_AVAILABLE = 80, True, "the preferred leader is not available"
    GROUP_MAX_SIZE_REACHED = 81, False, "the group has as many members as it may"
    FENCED_INSTANCE_ID = 82, False, "another member uses this group instance id"
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83, True, "no replica is eligible as leader"
    ELECTION_NOT_NEEDED = 84, True, "the partition needs no election"
    NO_REASSIGNMENT_IN_PROGRESS = 85, False, "the partition is not being reassigned"
    GROUP_SUBSCRIBED_TO_TOPIC = 86, False, "the group still subscribes to the topic"
    INVALID_RECORD = 87, False, "the broker refused a record"
    UNSTABLE_OFFSET_COMMIT = 88, True, "an open transaction may still change the offset"
    THROTTLING_QUOTA_EXCEEDED = 89, True, "a quota is exhausted"
    PRODUCER_FENCED = 90, False, "a newer producer uses this transactional id"
    RESOURCE_NOT_FOUND = 91, False, "there is no such resource"
    DUPLICATE_RESOURCE = 92, False, "the resource is named twice"
    UNACCEPTABLE_CREDENTIAL = 93, False, "the credential does not meet the requirements"
    INCONSISTENT_VOTER_SET = 94, False, "sender and receiver do not agree on the voters"
    INVALID_UPDATE_VERSION = 95, False, "the update carries a version that is not valid"
    FEATURE_UPDATE_FAILED = 96, False, "the feature could not be updated"
    PRINCIPAL_DESERIALIZATION_FAILURE = 97, False, "the forwarded principal cannot be read"
    SNAPSHOT_NOT_FOUND = 98, False, "there is no such snapshot"
    POSITION_OUT_OF_RANGE = 99, False, "the position is negative or past the snapshot's end"
    UNKNOWN_TOPIC_ID = 100, True, "this broker has no topic of this id"
    DUPLICATE_BROKER_REGISTRATION = 101, False, "another broker is registered under this id"
    BROKER_ID_NOT_REGISTERED = 102, False, "no broker is registered under this id"
    INCONSISTENT_TOPIC_ID = 103, True, "the log holds another topic id"
    INCONSISTENT_CLUSTER_ID = 104, False, "the request is meant for another cluster"
    TRANSACTIONAL_ID_NOT_FOUND = 105, False, "there is no such transactional id"
    FETCH_SESSION_TOPIC_ID_ERROR = 106, True, "the fetch session does not agree on using topic ids"
    INELIGIBLE_REPLICA = 107, False, "a replica may not join the in-sync set"
    NEW_LEADER_ELECTED = 108, False, "the change has made another replica the leader"
    OFFSET_MOVED_TO_TIERED_STORAGE = 109, False, "the offset is in tiered storage now"
    FENCED_MEMBER_EPOCH = 110, False, "the member's epoch is not the group's, join again"
    UNRELEASED_INSTANCE_ID = 111, False, "another member still holds this group instance id"
    UNSUPPORTED_ASSIGNOR = 112, False, "the group does not support the assignor"
    STALE_MEMBER_EPOCH = 113, False, "the member's epoch is old, retry after a heartbeat"
    MISMATCHED_ENDPOINT_TYPE = 114, False, "the request went to the wrong type of endpoint"
    UNSUPPORTED_ENDPOINT_TYPE = 115, False, "this type of endpoint is not supported yet"
    UNKNOWN_CONTROLLER_ID = 116, False, "there is no such controller"
    UNKNOWN_SUBSCRIPTION_ID = 117, False, "the telemetry subscription is not the current one"
    TELEMETRY_TOO_LARGE = 118, False, "the telemetry is larger than the server accepts"
    INVALID_REGISTRATION = 119, False, "the controller refused the registration"
    TRANSACTION_ABORTABLE = 120, False, "the transaction failed and can be aborted"
    INVALID_RECORD_STATE = 121, False, "the record is not in a state for this acknowledgement"
    SHARE_SESSION_NOT_FOUND = 122, True, "there is no such share session"
    INVALID_SHARE_SESSION_EPOCH = 123, True, "the share session is at another epoch"
    FENCED_STATE_EPOCH = 124, False, "the share coordinator has a newer state epoch"
    INVALID_VOTER_KEY = 125, False, "the voter's key is not the receiver's"
    DUPLICATE_VOTER = 126, False, "the voter is in the set already"
    VOTER_NOT_FOUND = 127, False, "the voter is not in the set"
    INVALID_REGULAR_EXPRESSION = 128, False, "the regular expression is not valid"
    REBOOTSTRAP_REQUIRED = 129, False, "the client must start anew from its bootstrap servers"
    STREAMS_INVALID_TOPOLOGY = 130, False, "the topology is not valid"
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131, False, "the topology's epoch is not valid"
    STREAMS_TOPOLOGY_FENCED = 132, False, "the topology's epoch is old"
    SHARE_SESSION_LIMIT_REACHED = 133, True, "there are as many share sessions as there may be"


class ProtocolError(KlammError):
    """Anything that is wrong with bytes or values of the wire protocol; `code` is what a server answers."""

    code: ClassVar[ErrorCode] = ErrorCode.INVALID_REQUEST


class MalformedMessage(ProtocolError):
    """Bytes that are not the expected message; says which message, field and offset."""

    def __init__(self, message: str, field: str, offset: int, reason: str) -> None:
        super().__init__(f"{message}: field {field} at offset {offset}: {reason}")
        self.message = message
        self.field = field
        self.offset = offset
        self.reason = reason


class TruncatedMessage(MalformedMessage):
    """The bytes end within a field, or a length points past their end."""


class UnsupportedVersion(ProtocolError):
    """A message has no such version, or the version cannot express a value."""

    code = ErrorCode.UNSUPPORTED_VERSION


class UnencodableValue(ProtocolError):
    """A value of ours that the field cannot carry (wrong type, out of range, a forbidden null)."""

    code = ErrorCode.UNKNOWN_SERVER_ERROR

    def __init__(self, message: str, field: str, reason: str) -> None:
        super().__init__(f"{message}: field {field}: {reason}")
        self.message = message
        self.field = field
        self.reason = reason


class CorruptRecord(ProtocolError):
    """A batch whose checksum, lengths or magic are wrong."""

    code = ErrorCode.CORRUPT_MESSAGE


class UnpackedTooLarge(CorruptRecord):
    """Records that are more than a limit when they are decompressed."""


class InvalidRecord(ProtocolError):
    """A complete batch whose content breaks a rule."""

    code = ErrorCode.INVALID_RECORD


class UnsupportedCompression(ProtocolError):
    """A compression type that does not exist, or that this side cannot read."""

    code = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
