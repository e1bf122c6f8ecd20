"""Looks at a cluster for `klamm top`: a few requests, however many topics and groups there are."""

from __future__ import annotations

import re
import time
import urllib.request
from collections.abc import Callable, Mapping
from typing import Any, Final

from klamm.admin.client import Admin
from klamm.admin.errors import AdminError
from klamm.admin.groups import CONSUMER, GroupListing, committed, describe_group, list_groups
from klamm.admin.model import TopicPartition
from klamm.admin.offsets import log_ends
from klamm.admin.topics import list_topics
from klamm.top.figures import GroupLook, Look
from klamm_base.errors import KlammError

METRICS_S: Final = 5.0
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
    listed = await list_groups(admin, consumers_only=True)
    groups = {}
    for listing, found in zip(listed, await admin.each(listed, lambda g: _group(admin, g)), strict=True):
        if isinstance(found, AdminError):
            said.append(f"group {listing.group}: {found}")
        else:
            groups[listing.group] = found
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


async def _group(admin: Admin, listing: GroupListing) -> GroupLook:
    offsets = await committed(admin, listing.group)
    described = (
        await describe_group(admin, listing.group) if listing.type in ("", "Classic", CONSUMER) else None
    )
    return GroupLook(
        state=listing.state,
        members=len(described.members) if described else 0,
        offsets={tp: c.offset for tp, c in offsets.items() if c.offset >= 0},
    )


def _or_said(ask: Callable[[], Any] | None, said: list[str]) -> Any:
    if ask is None:
        return None
    try:
        return ask()
    except (KlammError, OSError) as e:
        said.append(str(e))
        return None


def _metrics(url: str) -> dict[str, float]:
    if not url.startswith(("http://", "https://")):
        raise KlammError(f"--metrics-url {url}: write http://HOST:PORT/metrics")
    with urllib.request.urlopen(url, timeout=METRICS_S) as answer:  # noqa: S310 - checked
        text = answer.read().decode(errors="replace")
    return {name: float(value) for name, value in _METRIC.findall(text)}
