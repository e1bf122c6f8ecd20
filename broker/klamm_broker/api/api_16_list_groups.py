"""ListGroups, key 16: versions 0 to 5.

Behaviour: lists all groups, also those that only hold offsets. While some are loading, it lists the loaded ones with
COORDINATOR_LOAD_IN_PROGRESS.
Versions: 4 filters by state, 5 by type (`classic` and `consumer`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from klamm_broker.api.registry import Need, RequestContext, handles
from klamm_kafka.wire.acls import AclOperation, ResourceType
from klamm_kafka.wire.api_keys import ApiKey
from klamm_kafka.wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse

if TYPE_CHECKING:
    from klamm_broker.server.state import BrokerState


@handles(
    ApiKey.LIST_GROUPS,
    versions=(0, 5),
    needs=[
        Need(
            AclOperation.DESCRIBE,
            ResourceType.CLUSTER,
            "or DESCRIBE of the single groups, which are then the only ones that are listed",
        ),
        Need(AclOperation.DESCRIBE, ResourceType.GROUP),
    ],
)
def list_groups(broker: BrokerState, ctx: RequestContext, request: ListGroupsRequest) -> ListGroupsResponse:
    error, groups = broker.groups.coordinator.list_groups(request.states_filter, request.types_filter)
    all_of_them = ctx.may_cluster(AclOperation.DESCRIBE, tell=False)
    return ListGroupsResponse(
        error_code=error,
        groups=[
            ListedGroup(
                group_id=g.group_id, protocol_type=g.protocol_type, group_state=g.state, group_type=g.type
            )
            for g in groups
            if all_of_them or ctx.may(AclOperation.DESCRIBE, ResourceType.GROUP, g.group_id, tell=False)
        ],
    )
