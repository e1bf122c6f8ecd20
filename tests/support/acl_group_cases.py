"""Requests of share groups (KIP-932) and Streams groups (KIP-1071) that each user of acl_cases.py sends."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from support import share_groups
from support.acl_cases import NAMES, UNKNOWN_ID, Case, ask
from support.broker import wait_until
from support.raw import RawClient

from klamm_kafka.wire.api_keys import ApiKey as K

SHARE: Final = "g-share"
"""A share group with a member that reads payments, orders and public."""
STREAMS: Final = "g-streams"
"""A Streams group whose topology reads payments."""
CONFIG: Final = share_groups.BROKER | {
    "group.share.max.session.timeout.ms": "600000",
    "group.share.session.timeout.ms": "600000",
    "group.streams.max.session.timeout.ms": "600000",
    "group.streams.session.timeout.ms": "600000",
}
"""The members of these groups stay until the last user has asked."""
_MEMBER: Final = "AAAAAAAAAAAAAAAAAAAAAQ"


def prepare(client: RawClient) -> None:
    """Lets a member into both groups."""
    told = [0]

    def assigned() -> bool:
        joined = client.request(_share(SHARE, ["payments", "orders", "public"], epoch=told[-1])[1], 1)
        told.append(joined.member_epoch if not joined.error_code else told[-1])
        return joined.assignment is not None and len(joined.assignment.topic_partitions) == 3

    wait_until(assigned, "a share group")
    joining = _streams(STREAMS, ["payments"])[1]
    wait_until(lambda: not client.request(joining, 0).error_code, "a Streams group")


def requests_of(user: str, ids: Mapping[str, bytes]) -> Iterator[Case]:
    yield from _share_members(user)
    yield from _share_readers(ids)
    yield from _share_offsets(user)
    yield from _streams_groups(user)


def _share(group: str, topics: list[str] | None, what: str = "", *, epoch: int = 0) -> Case:
    return ask(K.SHARE_GROUP_HEARTBEAT, 1, f"{what or group} {topics}", group_id=group, member_id=_MEMBER, member_epoch=epoch,
               subscribed_topic_names=topics)  # fmt: skip


def _share_members(user: str) -> Iterator[Case]:
    for topics in (["public"], ["public", "orders"], ["missing"], ["payments"]):
        yield _share(f"share-{user}", topics, "its own group")
    for group in (SHARE, "g-orders", "other"):
        yield _share(group, None, epoch=77)
    yield ask(K.SHARE_GROUP_DESCRIBE, 1, group_ids=[SHARE, f"share-{user}", "g-orders", "other", ""], include_authorized_operations=True)  # fmt: skip


def _share_readers(ids: Mapping[str, bytes]) -> Iterator[Case]:
    asked = [{"topic_id": i, "partitions": [{"partition_index": 0}]} for i in (ids["orders"], ids["public"], UNKNOWN_ID)]  # fmt: skip
    done = [{"topic_id": t["topic_id"], "partitions": [{"partition_index": 0, "acknowledgement_batches": [{"last_offset": 0, "acknowledge_types": [1]}]}]}
            for t in asked]  # fmt: skip
    for group in (SHARE, "other"):
        reader: dict[str, Any] = {"group_id": group, "member_id": _MEMBER}
        for what, topics in (("orders", asked[:1]), ("orders, public", asked[:2]), ("public", asked[1:2])):
            yield ask(K.SHARE_FETCH, 2, f"{group} opened, {what}", **reader, max_wait_ms=50, min_bytes=1, max_bytes=1 << 20, max_records=1, batch_size=1, topics=topics)  # fmt: skip
        yield ask(K.SHARE_FETCH, 2, f"{group} known", **reader, share_session_epoch=5, max_bytes=1 << 20, topics=asked)  # fmt: skip
        yield ask(K.SHARE_ACKNOWLEDGE, 2, f"{group} opened", **reader, topics=done)
        yield ask(K.SHARE_ACKNOWLEDGE, 2, f"{group} known", **reader, share_session_epoch=5, topics=done)


def unknown_share_fetch() -> Case:
    """A share fetch of a topic that nobody knows."""
    topics = [{"topic_id": UNKNOWN_ID, "partitions": [{"partition_index": 0}]}]
    return ask(K.SHARE_FETCH, 2, "unknown", group_id=SHARE, member_id=_MEMBER, max_bytes=1 << 20, max_records=1, batch_size=1, topics=topics)  # fmt: skip


def _share_offsets(user: str) -> Iterator[Case]:
    named = [{"topic_name": n, "partitions": [0]} for n in NAMES]
    groups = (SHARE, f"share-{user}", "g-orders", "other")
    for topics in (None, named):
        wanted = [{"group_id": g, "topics": topics} for g in groups]
        yield ask(K.DESCRIBE_SHARE_GROUP_OFFSETS, 1, "all" if topics is None else "named", groups=wanted)
    starts = [{"topic_name": n, "partitions": [{"partition_index": 0, "start_offset": 0}]} for n in NAMES]
    for what, group in (("a group of its own", f"share-{user}-set"), (SHARE, SHARE), ("other", "other")):
        yield ask(K.ALTER_SHARE_GROUP_OFFSETS, 0, what, group_id=group, topics=starts)
        yield ask(K.ALTER_SHARE_GROUP_OFFSETS, 0, f"{what}, none", group_id=group, topics=[])
        yield ask(K.DELETE_SHARE_GROUP_OFFSETS, 0, what, group_id=group, topics=[{"topic_name": n} for n in NAMES])  # fmt: skip
    wanted = [{"group_id": f"share-{user}-set", "topics": None}]
    yield ask(K.DESCRIBE_SHARE_GROUP_OFFSETS, 0, "what was set", groups=wanted)


def _streams(group: str, sources: list[str], what: str = "", *, logs: tuple[str, ...] = (), repartition: tuple[str, ...] = ()) -> Case:  # fmt: skip
    one = {
        "subtopology_id": "0", "source_topics": sources, "repartition_sink_topics": list(repartition),
        "state_changelog_topics": [{"name": n, "replication_factor": 1} for n in logs],
    }  # fmt: skip
    two = {"subtopology_id": "1", "repartition_source_topics": [{"name": n, "partitions": 1, "replication_factor": 1} for n in repartition]}  # fmt: skip
    topology = {"epoch": 0, "subtopologies": [one, two] if repartition else [one]}
    return ask(K.STREAMS_GROUP_HEARTBEAT, 0, f"{what or group} {sources}", group_id=group, member_id="m", member_epoch=0,
               rebalance_timeout_ms=60_000, active_tasks=[], standby_tasks=[], warmup_tasks=[], process_id="p", client_tags=[],
               topology=topology)  # fmt: skip


def _streams_groups(user: str) -> Iterator[Case]:
    group = f"streams-{user}"
    for sources in (["public"], ["orders", "public"], ["missing"]):
        yield _streams(f"{group}-{sources[0]}", sources, "sources")
    for number, (start, log) in enumerate(
        (("new", "new"), ("app", "app"), ("new", "other"), ("inner", "inner"))
    ):
        yield _streams(f"{group}-{number}", ["public"], f"internal topics {start}, {log}",
                       logs=(f"{log}-{user}-{number}-changelog",), repartition=(f"{start}-{user}-{number}-repartition",))  # fmt: skip
    yield _streams(f"{group}-known", ["public"], "an internal topic that is there", logs=("payments",))
    yield _streams("other", ["public"])
    for name in (STREAMS, "g-orders", "other"):
        yield ask(K.STREAMS_GROUP_HEARTBEAT, 0, f"{name}, a member", group_id=name, member_id="n", member_epoch=3)  # fmt: skip
    described = [STREAMS, f"{group}-public", f"{group}-0", "g-orders", "other", ""]
    yield ask(K.STREAMS_GROUP_DESCRIBE, 0, group_ids=described, include_authorized_operations=True)
