"""The groups of a cluster with their members: for whoever watches all of them at once."""

from __future__ import annotations

from typing import Final

from klamm.admin.client import Admin
from klamm.admin.errors import AdminError
from klamm.admin.groups import CLASSIC, CONSUMER, Group, GroupListing, describe_group, list_groups

_DESCRIBED: Final = frozenset({"", CLASSIC, CONSUMER})
"""Types whose members DescribeGroups or ConsumerGroupDescribe tells; a broker before 3.8 names no type."""
_WITHOUT_MEMBERS: Final = frozenset({"Empty", "Dead"})


async def with_members(
    admin: Admin, *, consumers_only: bool
) -> list[tuple[GroupListing, Group | AdminError | None]]:
    """Returns each group with its description: None for one without members or of another type, an AdminError where it failed.

    Raises AdminError, ClientError.
    """
    listed = await list_groups(admin, consumers_only=consumers_only)
    asked = [g for g in listed if g.type in _DESCRIBED and g.state not in _WITHOUT_MEMBERS]
    found = await admin.each(asked, lambda g: describe_group(admin, g.group))
    described = dict(zip((g.group for g in asked), found, strict=True))
    return [(g, described.get(g.group)) for g in listed]
