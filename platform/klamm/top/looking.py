"""Looks at a cluster for `klamm top`: a few requests, however many topics and groups there are."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from klamm.admin import metrics_page
from klamm.admin.client import Admin
from klamm.admin.errors import AdminError
from klamm.admin.groups import Group, committed
from klamm.admin.members import with_members
from klamm.admin.model import TopicPartition
from klamm.admin.offsets import log_ends
from klamm.admin.topics import list_topics
from klamm.top.figures import GroupLook, Look
from klamm_base.errors import KlammError

_METRIC: Final = re.compile(
    r"^kafka_server_brokertopicmetrics_(bytesin|bytesout)_total(?:\{\})? ([\d.e+]+)$", re.MULTILINE
)


async def look(
    admin: Admin,
    *,
    internal: bool,
    connectors: Callable[[], Mapping[str, Any]] | None,
    metrics_url: str | None,
) -> Look:
    """Looks once. Raises KlammError where no broker answers; other parts that fail are said in the look."""
    said: list[str] = []
    brokers = await admin.brokers()
    topics = [t for t in await list_topics(admin) if internal or not t.internal]
    groups = await _groups(admin, said)
    partitions = {TopicPartition(t.name, p.number) for t in topics for p in t.partitions}
    read = {tp for g in groups.values() for tp in g.offsets}
    ends = await log_ends(admin, partitions | read)
    return Look(
        at=time.monotonic(),
        brokers=len(brokers),
        ends={tp: end for tp, end in ends.items() if end is not None},
        groups=groups,
        connectors=_or_said(connectors, said),
        metrics=_or_said(lambda: _metrics(metrics_url), said) or {} if metrics_url else {},
        said=tuple(said),
    )


async def _groups(admin: Admin, said: list[str]) -> dict[str, GroupLook]:
    found = await with_members(admin, consumers_only=True)
    offsets = await admin.each(found, lambda each: committed(admin, each[0].group))
    groups = {}
    for (listing, described), read in zip(found, offsets, strict=True):
        failed = [each for each in (read, described) if isinstance(each, AdminError)]
        if failed or isinstance(read, AdminError):
            said.append(f"group {listing.group}: {failed[0]}")
            continue
        groups[listing.group] = GroupLook(
            state=listing.state,
            members=len(described.members) if isinstance(described, Group) else 0,
            offsets={tp: c.offset for tp, c in read.items() if c.offset >= 0},
        )
    return groups


def _or_said(ask: Callable[[], Any] | None, said: list[str]) -> Any:
    if ask is None:
        return None
    try:
        return ask()
    except (KlammError, OSError) as e:
        said.append(str(e))
        return None


def _metrics(url: str) -> dict[str, float]:
    return {name: float(value) for name, value in _METRIC.findall(metrics_page.fetch(url))}
