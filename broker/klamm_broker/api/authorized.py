"""Rights beyond `ctx.may`: the error of each kind of resource, and the operations that a client may do, as the bit fields of answers.

Bit fields: Kafka's AclOperation codes, one bit each, of the operations that apply to the kind of resource.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from klamm_kafka.wire.acls import CLUSTER_NAME, AclOperation, ResourceType
from klamm_kafka.wire.errors import ErrorCode

if TYPE_CHECKING:
    from klamm_broker.api.registry import RequestContext

_O = AclOperation
SUPPORTED: Final[Mapping[ResourceType, Sequence[AclOperation]]] = {
    ResourceType.TOPIC: (
        _O.READ, _O.WRITE, _O.CREATE, _O.DELETE, _O.ALTER, _O.DESCRIBE, _O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (_O.READ, _O.DELETE, _O.DESCRIBE, _O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS),
    ResourceType.CLUSTER: (
        _O.CREATE, _O.ALTER, _O.DESCRIBE, _O.CLUSTER_ACTION, _O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS, _O.IDEMPOTENT_WRITE,
    ),
}  # fmt: skip


def _bits(operations: Iterable[AclOperation]) -> int:
    return sum(1 << operation for operation in operations)


_ALL: Final = {kind: _bits(operations) for kind, operations in SUPPORTED.items()}
NOT_ASKED: Final = -(1 << 31)
DENIED: Final[Mapping[ResourceType, ErrorCode]] = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ResourceType.DELEGATION_TOKEN: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    ResourceType.USER: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
}


def operations(ctx: RequestContext, kind: ResourceType, name: str) -> int:
    """Returns the operations that the sender may do with a resource."""
    if ctx.access is None:
        return _ALL[kind]
    return _bits(op for op in SUPPORTED[kind] if ctx.may(op, kind, name, tell=False))


def cluster_operations(ctx: RequestContext) -> int:
    """Returns the operations that the sender may do with the cluster; 0 for one who may not describe it."""
    if not ctx.may_cluster(AclOperation.DESCRIBE):
        return 0
    return operations(ctx, ResourceType.CLUSTER, CLUSTER_NAME)
