"""ACLs of mirrored topics: the rights to read a topic at the source become rights to read its copy.

`mirrored` decides, and is pure. As MirrorMaker 4.3.1, it takes over bindings of single topics (LITERAL, no
prefixes) that are mirrored; leaves out ALLOW WRITE, because only the mirror writes to a remote topic; and turns
ALLOW ALL into ALLOW READ. Nothing is removed at the target: a binding that the source loses stays there.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final

from klamm_kafka.client import ClientError, Cluster, broker_error
from klamm_kafka.wire.acls import AclOperation, AclPermissionType
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from klamm_mirror.target_admin import LITERAL, TOPIC, Admin, name_of
from klamm_plugins.mirror import AclBinding

log = logging.getLogger(__name__)

_ANY: Final = 1


def mirrored(
    bindings: Iterable[AclBinding], wants: Callable[[str], bool], rename: Callable[[str], str]
) -> list[AclBinding]:
    """Returns the bindings for the target."""
    return [
        replace(_readable(b), topic=rename(b.topic))
        for b in bindings
        if (b.permission, b.operation) != ("ALLOW", "WRITE") and wants(b.topic)
    ]


def _readable(binding: AclBinding) -> AclBinding:
    """Returns the binding with READ in place of ALL, if it allows."""
    if (binding.permission, binding.operation) == ("ALLOW", "ALL"):
        return replace(binding, operation="READ")
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
            topic=resource.resource_name, principal=acl.principal, host=acl.host,
            operation=name_of(AclOperation, acl.operation), permission=name_of(AclPermissionType, acl.permission_type),
        )
        for resource in answer.resources
        if (resource.resource_type, resource.pattern_type) == (TOPIC, LITERAL)
        for acl in resource.acls
    ]  # fmt: skip


def _said(message: str | None) -> str:
    return f" ({message})" if message else ""


class AclSync:
    """Copies the ACLs of one flow, pass by pass. Says each trouble once, until it changes or ends."""

    def __init__(self) -> None:
        self._trouble: str | None = None

    async def sync(
        self, source: Cluster, admin: Admin, *, wants: Callable[[str], bool], rename: Callable[[str], str]
    ) -> None:
        """Does one pass. `admin` creates at the target, `wants` selects topics, `rename` returns their names at the target. Raises ClientError."""
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
        refused = await admin.create_acls(bindings)
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
