"""ACLs of mirrored topics: the rights to read a topic at the source become rights to read its copy.

`mirrored` decides, and is pure. As MirrorMaker 4.3.1, it takes over bindings of single topics (LITERAL, no
prefixes) that are mirrored; leaves out ALLOW WRITE, because only the mirror writes to a remote topic; and turns
ALLOW ALL into ALLOW READ. Nothing is removed at the target: a binding that the source loses stays there.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Final

from klamm_kafka.client import ClientError, Cluster, broker_error
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from klamm_kafka.wire.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse

log = logging.getLogger(__name__)

TOPIC: Final = 2
"""The resource type of a topic in requests about ACLs."""
_ANY: Final = 1
_LITERAL: Final = 3


class Permission(IntEnum):
    """The wire's codes of permission types."""

    DENY = 2
    ALLOW = 3


class Operation(IntEnum):
    """The wire's codes of the operations that the mirror looks at."""

    ALL = 2
    READ = 3
    WRITE = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class AclBinding:
    """A binding of one topic. `operation` and `permission` are the wire's codes."""

    topic: str
    principal: str
    host: str
    operation: int
    permission: int


def mirrored(
    bindings: Iterable[AclBinding], wants: Callable[[str], bool], rename: Callable[[str], str]
) -> list[AclBinding]:
    """Returns the bindings for the target."""
    return [
        replace(_readable(b), topic=rename(b.topic))
        for b in bindings
        if (b.permission, b.operation) != (Permission.ALLOW, Operation.WRITE) and wants(b.topic)
    ]


def _readable(binding: AclBinding) -> AclBinding:
    """Returns the binding with READ in place of ALL, if it allows."""
    if (binding.permission, binding.operation) == (Permission.ALLOW, Operation.ALL):
        return replace(binding, operation=Operation.READ)
    return binding


async def list_bindings(cluster: Cluster) -> list[AclBinding] | None:
    """Returns all bindings of single topics; None without an authorizer. Raises ClientError."""
    request = DescribeAclsRequest(
        resource_type_filter=TOPIC, resource_name_filter=None, pattern_type_filter=_ANY, principal_filter=None,
        host_filter=None, operation=_ANY, permission_type=_ANY,
    )  # fmt: skip
    answer: DescribeAclsResponse = await cluster.request(request)
    if answer.error_code == ErrorCode.SECURITY_DISABLED:
        return None
    if answer.error_code:
        raise broker_error(answer.error_code, f"reading the source's ACLs{_said(answer.error_message)}")
    return [
        AclBinding(
            topic=resource.resource_name, principal=acl.principal, host=acl.host, operation=acl.operation,
            permission=acl.permission_type,
        )
        for resource in answer.resources
        if (resource.resource_type, resource.pattern_type) == (TOPIC, _LITERAL)
        for acl in resource.acls
    ]  # fmt: skip


async def create_bindings(cluster: Cluster, bindings: Sequence[AclBinding]) -> dict[str, str]:
    """Creates bindings; one that exists already counts as created. Returns the reasons of refusals by topic."""
    creations = [
        AclCreation(
            resource_type=TOPIC, resource_name=b.topic, resource_pattern_type=_LITERAL, principal=b.principal,
            host=b.host, operation=b.operation, permission_type=b.permission,
        )
        for b in bindings
    ]  # fmt: skip
    answer: CreateAclsResponse = await cluster.request(CreateAclsRequest(creations=creations))
    refused: dict[str, str] = {}
    for binding, result in zip(bindings, answer.results, strict=True):
        if result.error_code:
            error = broker_error(result.error_code, "creating the ACL")
            if error.retriable:
                raise error
            refused[binding.topic] = f"{error}{_said(result.error_message)}"
    return refused


def _said(message: str | None) -> str:
    return f" ({message})" if message else ""


class AclSync:
    """Copies the ACLs of one flow, pass by pass. Says each trouble once, until it changes or ends."""

    def __init__(self) -> None:
        self._trouble: str | None = None

    async def sync(
        self, source: Cluster, target: Cluster, *, wants: Callable[[str], bool], rename: Callable[[str], str]
    ) -> None:
        """Does one pass. `wants` selects topics, `rename` returns their names at the target. Raises ClientError."""
        try:
            found = await list_bindings(source)
        except ClientError as e:
            if e.retriable:
                raise
            self._say(logging.WARNING, f"no ACLs are mirrored: {e}")
            return
        if found is None:
            self._say(
                logging.INFO,
                "no ACLs are mirrored: the source has no authorizer. sync.topic.acls.enabled=false ends the question",
            )
            return
        bindings = mirrored(found, wants, rename)
        refused = await create_bindings(target, bindings) if bindings else {}
        if not refused:
            self._trouble = None
            return
        topic, why = next(iter(refused.items()))
        self._say(
            logging.WARNING, f"the target refuses ACLs of {len(refused)} topics, such as {topic}: {why}"
        )

    def _say(self, level: int, trouble: str) -> None:
        log.log(logging.DEBUG if trouble == self._trouble else level, "%s", trouble)
        self._trouble = trouble
