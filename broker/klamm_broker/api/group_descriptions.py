"""Descriptions of groups for the APIs that tell of one kind each: rights, missing names, allowed operations."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, TypeVar

from klamm_broker.api import authorized
from klamm_broker.api.registry import RequestContext
from klamm_kafka.wire.acls import AclOperation, ResourceType
from klamm_kafka.wire.errors import ErrorCode


class _Described(Protocol):
    """A group of an answer."""

    error_code: int
    error_message: str | None
    group_id: str
    authorized_operations: int


_G = TypeVar("_G", bound=_Described)


def described(
    ctx: RequestContext,
    group_ids: Sequence[str],
    *,
    make: Callable[..., _G],
    describe: Callable[[str], _G],
    topics: Callable[[_G], Iterable[str]],
    hidden: str,
    with_operations: bool,
) -> list[_G]:
    """Returns what the sender may know of these groups, each once.

    One with a topic among its `topics` that the sender may not describe is told by the sentence `hidden` alone.
    """

    def told(group_id: str) -> _G:
        if not ctx.may(AclOperation.DESCRIBE, ResourceType.GROUP, group_id):
            return make(group_id=group_id, error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
        if not group_id:
            return make(group_id="", error_code=ErrorCode.INVALID_GROUP_ID)
        group = describe(group_id)
        if all(ctx.may(AclOperation.DESCRIBE, ResourceType.TOPIC, topic) for topic in set(topics(group))):
            return group
        return make(group_id=group_id, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, error_message=hidden)

    groups = [told(group_id) for group_id in dict.fromkeys(group_ids)]
    for group in groups if with_operations else ():
        if group.error_code == ErrorCode.NONE:
            group.authorized_operations = authorized.operations(ctx, ResourceType.GROUP, group.group_id)
    return groups
