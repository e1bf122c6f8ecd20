"""The errors of the API, with the codes and words of Confluent's proxy, because clients decide by them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from klamm.admin.errors import AdminError
from klamm.web.errors import RequestError
from klamm_kafka.wire.errors import ErrorCode

RETRY_S: Final = 1
TOPIC_NOT_FOUND: Final = "Topic not found."
EXCLUSIVE: Final = "Subscription to topics, partitions and pattern are mutually exclusive"


class ProxyError(RequestError):
    """A request that cannot be done; `code` is the body's `error_code`, whose first three digits are the HTTP status."""

    def __init__(self, code: int, message: str, *, retry_s: int | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.status = int(str(code)[:3])
        self.headers: Mapping[str, str] | None = None if retry_s is None else {"Retry-After": str(retry_s)}


def topic_not_found() -> ProxyError:
    return ProxyError(40401, TOPIC_NOT_FOUND)


def partition_not_found() -> ProxyError:
    return ProxyError(40402, "Partition not found.")


def instance_not_found() -> ProxyError:
    return ProxyError(40403, "Consumer instance not found.")


def format_mismatch() -> ProxyError:
    return ProxyError(
        40601,
        "The requested embedded data format does not match the deserializer for this consumer instance",
    )


def instance_exists() -> ProxyError:
    return ProxyError(
        40902, "Consumer with specified consumer ID already exists in the specified consumer group."
    )


def illegal_state(why: str) -> ProxyError:
    return ProxyError(40903, f"Illegal state: {why}")


def schema_missing(what: str) -> ProxyError:
    return ProxyError(
        42201 if what == "key" else 42202, f"Request includes {what}s but does not include {what} schema"
    )


def not_convertible(why: str) -> ProxyError:
    return ProxyError(42203, f"Conversion of JSON to the schema's format failed: {why}")


def invalid_consumer(why: str) -> ProxyError:
    return ProxyError(42204, f"Invalid consumer configuration: {why}")


def invalid_schema(why: str) -> ProxyError:
    return ProxyError(42205, f"Invalid schema: {why}")


def unprocessable(why: str) -> ProxyError:
    """Returns the error of a field that is missing or of the wrong kind."""
    return ProxyError(422, why)


def busy(why: str) -> ProxyError:
    return ProxyError(429, why, retry_s=RETRY_S)


def kafka_error(why: str, *, retriable: bool = False) -> ProxyError:
    return (
        ProxyError(50003, f"Retriable Kafka error: {why}")
        if retriable
        else ProxyError(50002, f"Kafka error: {why}")
    )


_UNKNOWN: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})
_NOT_ALLOWED: Final = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    }
)
_BAD_REQUEST: Final = frozenset(
    {
        ErrorCode.TOPIC_ALREADY_EXISTS,
        ErrorCode.INVALID_PARTITIONS,
        ErrorCode.INVALID_REPLICATION_FACTOR,
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ErrorCode.INVALID_CONFIG,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.POLICY_VIOLATION,
        ErrorCode.SECURITY_DISABLED,
        ErrorCode.TOPIC_DELETION_DISABLED,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.INVALID_GROUP_ID,
    }
)


def of_cluster(error: AdminError) -> ProxyError:
    """Returns the answer for a cluster's refusal."""
    from klamm.admin.client import passing

    if error.code in _UNKNOWN:
        return ProxyError(40403, "This server does not host this topic-partition.")
    if error.code in _NOT_ALLOWED:
        return ProxyError(40301, error.text)
    if error.code in _BAD_REQUEST:
        return ProxyError(40002, error.text)
    if error.code == ErrorCode.GROUP_ID_NOT_FOUND:
        return ProxyError(404, error.text)
    if error.code == ErrorCode.THROTTLING_QUOTA_EXCEEDED:
        return ProxyError(42901, error.text, retry_s=RETRY_S)
    return ProxyError(50003 if passing(error.code) else 50002, error.text)
