"""DescribeUserScramCredentials, key 50: version 0.

Behaviour: tells mechanisms and iterations of the named users, or of all, but not salts and keys.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from klamm_broker.api.registry import Need, RequestContext, handles
from klamm_kafka.wire.acls import AclOperation, ResourceType
from klamm_kafka.wire.api_keys import ApiKey
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)

if TYPE_CHECKING:
    from klamm_broker.server.state import BrokerState


@handles(
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
    versions=(0, 0),
    needs=[
        Need(AclOperation.DESCRIBE, ResourceType.CLUSTER),
    ],
)
def describe_user_scram_credentials(
    broker: BrokerState, ctx: RequestContext, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    if not ctx.may_cluster(AclOperation.DESCRIBE):
        return _denied(request)
    users = broker.scram_users.users
    named = Counter(user.name for user in request.users or ())
    results = [
        _error(name, ErrorCode.DUPLICATE_RESOURCE, "Cannot describe SCRAM credentials for the same user twice in a single request")
        if named[name] > 1
        else _describe(broker, name)
        for name in (named or users)
    ]  # fmt: skip
    return DescribeUserScramCredentialsResponse(error_code=ErrorCode.NONE, error_message="", results=results)


def _denied(request: DescribeUserScramCredentialsRequest) -> DescribeUserScramCredentialsResponse:
    """Returns the refusal; as in Kafka, it does not repeat the names."""
    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    return DescribeUserScramCredentialsResponse(
        error_code=code,
        error_message=code.message,
        results=[
            DescribeUserScramCredentialsResult(error_code=code, error_message=code.message)
            for _ in request.users or ()
        ],
    )


def _describe(broker: BrokerState, name: str) -> DescribeUserScramCredentialsResult:
    credentials = broker.scram_users.users.get(name)
    if credentials is None:
        why = "Attempt to describe a user credential that does not exist"
        return _error(name, ErrorCode.RESOURCE_NOT_FOUND, why)
    return DescribeUserScramCredentialsResult(
        user=name,
        error_code=ErrorCode.NONE,
        error_message="",
        credential_infos=[
            CredentialInfo(mechanism=mechanism, iterations=credential.iterations)
            for mechanism, credential in sorted(credentials.items())
        ],
    )


def _error(name: str, code: ErrorCode, why: str) -> DescribeUserScramCredentialsResult:
    return DescribeUserScramCredentialsResult(user=name, error_code=code, error_message=f"{why}: {name}")
