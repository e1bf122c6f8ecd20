"""AlterUserScramCredentials, key 51: version 0.

Behaviour: sets and removes credentials of users, each user once in a request; an error of one user does not stop the
changes of others. The changes are on the disk when they are answered (`server/scram_users.py`).
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from klamm_broker.api.registry import Need, RequestContext, handles
from klamm_broker.server import audit
from klamm_broker.server.slices import drive
from klamm_kafka.wire.acls import AclOperation, ResourceType
from klamm_kafka.wire.api_keys import ApiKey
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)

if TYPE_CHECKING:
    import asyncio

    from klamm_broker.log.steps import Steps
    from klamm_broker.security.sasl.credentials import Credential, Mechanism
    from klamm_broker.server.state import BrokerState

log = logging.getLogger(__name__)

STEP: Final = 64
"""Changes between two looks at the clock."""

Refusal = tuple[ErrorCode, str]
Change = ScramCredentialDeletion | ScramCredentialUpsertion


@handles(
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
    versions=(0, 0),
    needs=[
        Need(AclOperation.ALTER, ResourceType.CLUSTER),
    ],
)
def alter_user_scram_credentials(
    broker: BrokerState, ctx: RequestContext, request: AlterUserScramCredentialsRequest
) -> AlterUserScramCredentialsResponse | asyncio.Future[AlterUserScramCredentialsResponse]:
    asked: list[Change] = [*request.deletions, *request.upsertions]
    if not ctx.may_cluster(AclOperation.ALTER):
        denied = ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED.message
        return _response({change.name: denied for change in asked})
    return drive(broker.loop, _altering(broker, ctx, asked))


def _altering(
    broker: BrokerState, ctx: RequestContext, asked: list[Change]
) -> Steps[AlterUserScramCredentialsResponse]:
    named = Counter(change.name for change in asked)
    results: dict[str, Refusal | None] = {}
    wanted: list[tuple[Change, Credential | None]] = []
    for number, change in enumerate(asked, 1):
        if not number % STEP:
            yield None
        if named[change.name] > 1:
            why = "A user credential cannot be altered twice in the same request"
            results[change.name] = ErrorCode.DUPLICATE_RESOURCE, why
        elif (refusal := _refusal(change)) is not None:
            results[change.name] = refusal
        else:
            results[change.name] = None
            wanted.append((change, _credential(change)))
    # The users are those of now, and nothing yields any more: another request may change them between two steps.
    users = {user: dict(credentials) for user, credentials in broker.scram_users.users.items()}
    for change, credential in wanted:
        results[change.name] = _apply(change, credential, users)
    try:
        if None in results.values():
            broker.scram_users.replace(users)
    except OSError as e:
        log.error("the credentials of users could not be stored: %s", e)  # noqa: TRY400
        failed = ErrorCode.KAFKA_STORAGE_ERROR, str(e)
        results = {name: refusal or failed for name, refusal in results.items()}
    if None in results.values():
        audit.changed(ctx, "users", users=[name for name, refusal in results.items() if refusal is None])
    return _response(results)


def _response(results: Mapping[str, Refusal | None]) -> AlterUserScramCredentialsResponse:
    return AlterUserScramCredentialsResponse(
        results=[
            AlterUserScramCredentialsResult(
                user=name,
                error_code=refusal[0] if refusal else ErrorCode.NONE,
                error_message=refusal[1] if refusal else None,
            )
            for name, refusal in results.items()
        ]
    )


def _refusal(change: Change) -> Refusal | None:
    from klamm_broker.security.sasl.credentials import ITERATIONS, Mechanism

    if not change.name:
        return ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty"
    if change.mechanism not in Mechanism.__members__.values():
        return ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"
    if isinstance(change, ScramCredentialDeletion):
        return None
    fewest, most = ITERATIONS
    if not fewest <= change.iterations <= most:
        why = "Too few iterations" if change.iterations < fewest else "Too many iterations"
        return ErrorCode.UNACCEPTABLE_CREDENTIAL, why
    if not change.salted_password:
        return ErrorCode.UNACCEPTABLE_CREDENTIAL, "The salted password must not be empty"
    return None


def _credential(change: Change) -> Credential | None:
    """Returns the new credential; None for a deletion."""
    from klamm_broker.security.sasl.credentials import Mechanism, derive

    if isinstance(change, ScramCredentialDeletion):
        return None
    return derive(
        Mechanism(change.mechanism),
        salt=change.salt,
        salted_password=change.salted_password,
        iterations=change.iterations,
    )


def _apply(
    change: Change, credential: Credential | None, users: dict[str, dict[Mechanism, Credential]]
) -> Refusal | None:
    from klamm_broker.security.sasl.credentials import Mechanism

    mechanism = Mechanism(change.mechanism)
    if credential is not None:
        users.setdefault(change.name, {})[mechanism] = credential
    elif users.get(change.name, {}).pop(mechanism, None) is None:
        return ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist"
    return None
