"""DeleteGroups, key 42: versions 0 to 2.

Behaviour: deletes groups without members and their offsets; answers once the tombstones are written. NON_EMPTY_GROUP
and GROUP_ID_NOT_FOUND are per group.
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable
from typing import TYPE_CHECKING

from klamm_broker.api.registry import Need, RequestContext, handles
from klamm_broker.coordinator.effects import Effect, Now, Token
from klamm_broker.server import audit
from klamm_kafka.wire.acls import AclOperation, ResourceType
from klamm_kafka.wire.api_keys import ApiKey
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)

if TYPE_CHECKING:
    from klamm_broker.server.state import BrokerState


@handles(
    ApiKey.DELETE_GROUPS,
    versions=(0, 2),
    needs=[
        Need(AclOperation.DELETE, ResourceType.GROUP),
    ],
)
def delete_groups(
    broker: BrokerState, ctx: RequestContext, request: DeleteGroupsRequest
) -> Future[DeleteGroupsResponse]:
    def deletion(group_id: str) -> Callable[[Token, Now], list[Effect]]:
        return lambda token, now: broker.groups.coordinator.delete_group(group_id, token, now)

    async def answer() -> DeleteGroupsResponse:
        names = request.groups_names
        allowed = [name for name in names if ctx.may(AclOperation.DELETE, ResourceType.GROUP, name)]
        outcomes = await broker.groups.ask_all(deletion(group_id) for group_id in allowed)
        errors = dict(zip(allowed, outcomes, strict=True))
        deleted = [name for name, error in errors.items() if error is ErrorCode.NONE]
        if deleted:
            audit.changed(ctx, "groups", deleted=deleted)
        return DeleteGroupsResponse(
            results=[
                DeletableGroupResult(
                    group_id=name, error_code=errors.get(name, ErrorCode.GROUP_AUTHORIZATION_FAILED)
                )
                for name in names
            ]
        )

    return broker.loop.create_task(answer())
