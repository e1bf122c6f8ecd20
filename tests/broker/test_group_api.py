"""The group APIs over the wire: every version of each, and what only shows between requests."""

from __future__ import annotations

import asyncio

import pytest
from support.broker import new_name, new_topic
from support.inprocess import connect, serving

from klamm_broker.api import registry
from klamm_broker.coordinator.administration import Administration
from klamm_kafka.client.connection import Connection
from klamm_kafka.client.errors import ConnectionLost
from klamm_kafka.wire.api_keys import ApiKey
from klamm_kafka.wire.errors import ErrorCode as E
from klamm_kafka.wire.messages import (
    delete_groups,
    describe_groups,
    find_coordinator,
    heartbeat,
    init_producer_id,
    join_group,
    leave_group,
    list_groups,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    sync_group,
)


def versions(key: ApiKey) -> range:
    api = registry.load()[key]
    return range(api.min_version, api.max_version + 1)


@pytest.fixture
async def conn(broker):
    async with await Connection.open("127.0.0.1", broker.port, client_id="me") as connection:
        yield connection


@pytest.fixture
async def topic(broker, conn):
    """Returns name and id of a topic with two partitions."""
    name = new_topic(broker, 2)
    asked = metadata.MetadataRequest(topics=[metadata.MetadataRequestTopic(name=name)])
    answer = await conn.request(asked)
    return name, answer.topics[0].topic_id


async def join(conn, group, *, member="", version=9, instance=None, protocols=(("range", b"m"),)):
    request = join_group.JoinGroupRequest(
        group_id=group,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000 if version else -1,
        member_id=member,
        group_instance_id=instance,
        protocol_type="consumer",
        protocols=[join_group.JoinGroupRequestProtocol(name=n, metadata=m) for n, m in protocols],
    )
    answer = await conn.request(request, version=version)
    if answer.error_code == E.MEMBER_ID_REQUIRED:
        return await join(conn, group, member=answer.member_id, version=version, protocols=protocols)
    return answer


async def sync(conn, group, joined, *, version=5, assignments=None):
    request = sync_group.SyncGroupRequest(
        group_id=group,
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        protocol_type="consumer",
        protocol_name="range",
        assignments=[
            sync_group.SyncGroupRequestAssignment(member_id=m, assignment=a)
            for m, a in (assignments or {}).items()
        ],
    )
    return await conn.request(request, version=version)


async def stable(conn, group, **how):
    """Returns the one member of a Stable group."""
    joined = await join(conn, group, **how)
    assert joined.error_code == E.NONE
    assert (await sync(conn, group, joined, assignments={joined.member_id: b"A"})).error_code == E.NONE
    return joined


@pytest.mark.parametrize("version", versions(ApiKey.FIND_COORDINATOR))
async def test_find_coordinator(broker, conn, version):
    request = find_coordinator.FindCoordinatorRequest(
        key="" if version >= 4 else "g", key_type=0, coordinator_keys=["g", "h"] if version >= 4 else []
    )
    answer = await conn.request(request, version=version)
    found = answer.coordinators if version >= 4 else [answer]
    assert len(found) == (2 if version >= 4 else 1)
    for coordinator in found:
        assert (coordinator.error_code, coordinator.host, coordinator.port) == (
            E.NONE,
            "127.0.0.1",
            broker.port,
        )


@pytest.mark.parametrize("version", range(1, 7))
async def test_coordinators_that_are_not_there(conn, version):
    request = find_coordinator.FindCoordinatorRequest(
        key="" if version >= 4 else "t", key_type=2, coordinator_keys=["t"] if version >= 4 else []
    )
    answer = await conn.request(request, version=version)
    found = answer.coordinators[0] if version >= 4 else answer
    assert (found.error_code, found.node_id, found.port) == (E.INVALID_REQUEST, -1, -1)
    assert found.error_message


@pytest.mark.parametrize("version", versions(ApiKey.JOIN_GROUP))
async def test_join_and_sync(conn, version):
    group = new_name("group")
    first = await conn.request(
        join_group.JoinGroupRequest(
            group_id=group,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000 if version else -1,
            protocol_type="consumer",
            protocols=[join_group.JoinGroupRequestProtocol(name="range", metadata=b"m")],
        ),
        version=version,
    )
    assert first.error_code == (E.MEMBER_ID_REQUIRED if version >= 4 else E.NONE)
    joined = await join(conn, group, member=first.member_id, version=version)
    assert joined.error_code == E.NONE
    assert joined.leader == joined.member_id
    assert joined.protocol_name == "range"
    assert joined.protocol_type == ("consumer" if version >= 7 else None)
    assert [m.metadata for m in joined.members] == [b"m"]
    for sync_version in versions(ApiKey.SYNC_GROUP):
        answer = await sync(conn, group, joined, version=sync_version, assignments={joined.member_id: b"A"})
        assert (answer.error_code, answer.assignment) == (E.NONE, b"A")
        assert answer.protocol_name == ("range" if sync_version >= 5 else None)
    refused = await join(conn, group, member="stranger", version=version)
    assert refused.error_code == E.UNKNOWN_MEMBER_ID
    assert refused.protocol_name == (None if version >= 7 else "")


async def test_sync_must_name_its_protocol(conn):
    request = sync_group.SyncGroupRequest(group_id="g", generation_id=1, member_id="m")
    assert (await conn.request(request, version=5)).error_code == E.INCONSISTENT_GROUP_PROTOCOL
    assert (await conn.request(request, version=4)).error_code == E.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("version", versions(ApiKey.HEARTBEAT))
async def test_heartbeat(conn, version):
    group = new_name("group")
    joined = await stable(conn, group)
    for generation, error in ((1, E.NONE), (2, E.ILLEGAL_GENERATION)):
        request = heartbeat.HeartbeatRequest(
            group_id=group, generation_id=generation, member_id=joined.member_id
        )
        assert (await conn.request(request, version=version)).error_code == error


@pytest.mark.parametrize("version", versions(ApiKey.LEAVE_GROUP))
async def test_leave(conn, version):
    group = new_name("group")
    joined = await stable(conn, group)
    for member, error in (("stranger", E.UNKNOWN_MEMBER_ID), (joined.member_id, E.NONE)):
        if version >= 3:
            request = leave_group.LeaveGroupRequest(
                group_id=group, members=[leave_group.MemberIdentity(member_id=member)]
            )
        else:
            request = leave_group.LeaveGroupRequest(group_id=group, member_id=member)
        answer = await conn.request(request, version=version)
        assert (answer.members[0].error_code if version >= 3 else answer.error_code) == error


@pytest.mark.parametrize("version", versions(ApiKey.OFFSET_COMMIT))
async def test_commit_and_fetch(conn, topic, version):
    name, topic_id = topic
    group = new_name("group")
    request = offset_commit.OffsetCommitRequest(
        group_id=group,
        topics=[
            offset_commit.OffsetCommitRequestTopic(
                name="" if version >= 10 else n,
                topic_id=i if version >= 10 else bytes(16),
                partitions=[
                    offset_commit.OffsetCommitRequestPartition(
                        partition_index=p,
                        committed_offset=40 + p,
                        committed_leader_epoch=3 if version >= 6 else -1,
                        committed_metadata="note",
                    )
                    for p in (0, 1, 2)
                ],
            )
            for n, i in ((name, topic_id), ("none", b"x" * 16))
        ],
    )
    answer = await conn.request(request, version=version)
    unknown = E.UNKNOWN_TOPIC_ID if version >= 10 else E.UNKNOWN_TOPIC_OR_PARTITION
    errors = {
        (t.topic_id if version >= 10 else t.name, p.partition_index): p.error_code
        for t in answer.topics
        for p in t.partitions
    }
    here, nowhere = (topic_id, b"x" * 16) if version >= 10 else (name, "none")
    assert errors == {
        (here, 0): E.NONE,
        (here, 1): E.NONE,
        (here, 2): E.UNKNOWN_TOPIC_OR_PARTITION,
        **{(nowhere, p): unknown for p in (0, 1, 2)},
    }
    for fetch_version in versions(ApiKey.OFFSET_FETCH):
        await _check_fetch(conn, group, topic, fetch_version, epoch=3 if version >= 6 else -1)


async def _check_fetch(conn, group, topic, version, *, epoch):
    name, topic_id = topic
    for everything in (False, True):
        if everything and version < 2:
            continue
        if version >= 8:
            topics = [
                offset_fetch.OffsetFetchRequestTopics(
                    name=name if version < 10 else "",
                    topic_id=topic_id if version >= 10 else bytes(16),
                    partition_indexes=[0, 1, 7],
                )
            ]
            asked = offset_fetch.OffsetFetchRequestGroup(
                group_id=group, topics=None if everything else topics
            )
            none = offset_fetch.OffsetFetchRequestGroup(
                group_id="none", topics=None if everything else topics
            )
            answer = await conn.request(
                offset_fetch.OffsetFetchRequest(groups=[asked, none]), version=version
            )
            assert [g.error_code for g in answer.groups] == [E.NONE, E.NONE]
            found, nothing = (g.topics for g in answer.groups)
            assert [p.committed_offset for t in nothing for p in t.partitions] == (
                [] if everything else [-1] * 3
            )
        else:
            topics = [offset_fetch.OffsetFetchRequestTopic(name=name, partition_indexes=[0, 1, 7])]
            request = offset_fetch.OffsetFetchRequest(group_id=group, topics=None if everything else topics)
            answer = await conn.request(request, version=version)
            assert answer.error_code == E.NONE
            found = answer.topics
        (one,) = found
        if version >= 10:
            assert one.topic_id == topic_id
        else:
            assert one.name == name
        expected = [(0, 40, "note", E.NONE), (1, 41, "note", E.NONE), (7, -1, "", E.NONE)]
        offsets = [(p.partition_index, p.committed_offset, p.metadata, p.error_code) for p in one.partitions]
        assert sorted(offsets) == (expected[:2] if everything else expected)
        if version >= 5:
            assert {p.committed_leader_epoch for p in one.partitions} == (
                {epoch} if everything else {epoch, -1}
            )


async def test_fetch_by_unknown_topic_id(conn):
    asked = offset_fetch.OffsetFetchRequestTopics(topic_id=b"x" * 16, partition_indexes=[0])
    request = offset_fetch.OffsetFetchRequest(
        groups=[offset_fetch.OffsetFetchRequestGroup(group_id="none", topics=[asked])]
    )
    answer = await conn.request(request, version=10)
    (partition,) = answer.groups[0].topics[0].partitions
    assert (partition.error_code, partition.committed_offset) == (E.UNKNOWN_TOPIC_ID, -1)


@pytest.mark.parametrize("version", versions(ApiKey.DESCRIBE_GROUPS))
async def test_describe(conn, version):
    group = new_name("group")
    joined = await stable(conn, group, instance="i")
    answer = await conn.request(
        describe_groups.DescribeGroupsRequest(groups=[group, "none"]), version=version
    )
    found, missing = answer.groups
    assert (found.error_code, found.group_state, found.protocol_type, found.protocol_data) == (
        E.NONE,
        "Stable",
        "consumer",
        "range",
    )
    (member,) = found.members
    assert (member.member_id, member.client_id, member.client_host) == (joined.member_id, "me", "/127.0.0.1")
    assert member.group_instance_id == ("i" if version >= 4 else None)
    assert (member.member_metadata, member.member_assignment) == (b"m", b"A")
    assert missing.group_state == "Dead"
    assert missing.error_code == (E.GROUP_ID_NOT_FOUND if version >= 6 else E.NONE)
    assert missing.error_message == ("Group none not found." if version >= 6 else None)


@pytest.mark.parametrize("version", versions(ApiKey.LIST_GROUPS))
async def test_list(conn, version):
    group = new_name("group")
    await stable(conn, group)
    request = list_groups.ListGroupsRequest(
        states_filter=["stable"] if version >= 4 else [], types_filter=["classic"] if version >= 5 else []
    )
    answer = await conn.request(request, version=version)
    (found,) = [g for g in answer.groups if g.group_id == group]
    assert found.protocol_type == "consumer"
    assert found.group_state == ("Stable" if version >= 4 else "")
    assert found.group_type == ("classic" if version >= 5 else "")
    if version >= 4:
        empty = await conn.request(list_groups.ListGroupsRequest(states_filter=["Empty"]), version=version)
        assert group not in {g.group_id for g in empty.groups}


@pytest.mark.parametrize("version", versions(ApiKey.DELETE_GROUPS))
async def test_delete_groups(conn, topic, version):
    busy, idle = new_name("group"), new_name("group")
    await stable(conn, busy)
    await _commit(conn, idle, topic[0])
    answer = await conn.request(
        delete_groups.DeleteGroupsRequest(groups_names=[busy, idle, "none"]), version=version
    )
    assert {r.group_id: r.error_code for r in answer.results} == {
        busy: E.NON_EMPTY_GROUP,
        idle: E.NONE,
        "none": E.GROUP_ID_NOT_FOUND,
    }


async def _commit(conn, group, name, partition=0, offset=5):
    part = offset_commit.OffsetCommitRequestPartition(
        partition_index=partition, committed_offset=offset, committed_metadata=""
    )
    topic = offset_commit.OffsetCommitRequestTopic(name=name, partitions=[part])
    request = offset_commit.OffsetCommitRequest(group_id=group, topics=[topic])
    answer = await conn.request(request, version=9)
    assert answer.topics[0].partitions[0].error_code == E.NONE


async def test_offset_delete(conn, topic):
    group = new_name("group")
    await _commit(conn, group, topic[0])
    asked = [
        offset_delete.OffsetDeleteRequestTopic(
            name=name, partitions=[offset_delete.OffsetDeleteRequestPartition(partition_index=0)]
        )
        for name in (topic[0], "none")
    ]
    answer = await conn.request(offset_delete.OffsetDeleteRequest(group_id=group, topics=asked), version=0)
    assert answer.error_code == E.NONE
    assert {t.name: t.partitions[0].error_code for t in answer.topics} == {
        topic[0]: E.NONE,
        "none": E.UNKNOWN_TOPIC_OR_PARTITION,
    }
    missing = await conn.request(offset_delete.OffsetDeleteRequest(group_id="none", topics=asked), version=0)
    assert (missing.error_code, missing.topics) == (E.GROUP_ID_NOT_FOUND, [])


@pytest.mark.parametrize("version", versions(ApiKey.INIT_PRODUCER_ID))
async def test_init_producer_id(conn, version):
    ids = set()
    for _ in range(3):
        request = init_producer_id.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        answer = await conn.request(request, version=version)
        assert (answer.error_code, answer.producer_epoch) == (E.NONE, 0)
        ids.add(answer.producer_id)
    assert len(ids) == 3


async def test_two_members_share_a_generation(broker, conn):
    group = new_name("group")
    first = await stable(conn, group)
    async with await Connection.open("127.0.0.1", broker.port) as other:
        joining = asyncio.create_task(join(other, group))
        beat = heartbeat.HeartbeatRequest(group_id=group, generation_id=1, member_id=first.member_id)
        while (await conn.request(beat)).error_code == E.NONE:
            await asyncio.sleep(0.01)
        again, second = await asyncio.gather(join(conn, group, member=first.member_id), joining)
        assert again.generation_id == second.generation_id == 2
        waiting = asyncio.create_task(sync(other, group, second))
        shares = {first.member_id: b"1", second.member_id: b"2"}
        assert (await sync(conn, group, again, assignments=shares)).assignment == b"1"
        assert (await waiting).assignment == b"2"


async def test_a_lost_connection_does_not_disturb_the_group(broker, conn):
    group = new_name("group")
    first = await stable(conn, group)
    other = await Connection.open("127.0.0.1", broker.port)
    parked = asyncio.create_task(join(other, group, instance="static"))
    beat = heartbeat.HeartbeatRequest(group_id=group, generation_id=1, member_id=first.member_id)
    while (await conn.request(beat)).error_code == E.NONE:
        await asyncio.sleep(0.01)
    await other.close()
    with pytest.raises(ConnectionLost):
        await parked
    again = await join(conn, group, member=first.member_id)
    assert again.generation_id == 2
    assert len(again.members) == 2


@pytest.mark.usefixtures("processes")
@pytest.mark.parametrize("version", [7, 9, 10])
async def test_an_offset_of_a_deleted_topic_is_not_that_of_the_new_one_of_its_name(
    tmp_path, monkeypatch, version
):
    """This holds before its tombstone is durable, too: a consumer that starts there would skip records."""
    async with serving(tmp_path) as server, await connect(server) as conn:
        broker = server.broker
        broker.topic_changes.create_topic("t", partitions=1, overrides={})
        old = broker.topics.by_name["t"]
        await _commit(conn, "g", "t", offset=40)
        monkeypatch.setattr(Administration, "forget", lambda *_: None)  # the tombstone is on its way
        assert await broker.topic_changes.delete(old) is None
        broker.topic_changes.create_topic("t", partitions=1, overrides={})
        new = broker.topics.by_name["t"]
        assert new.id != old.id
        for everything in (False, True):
            if version < 8:
                topics = [offset_fetch.OffsetFetchRequestTopic(name="t", partition_indexes=[0])]
                request = offset_fetch.OffsetFetchRequest(group_id="g", topics=None if everything else topics)
                found = (await conn.request(request, version=version)).topics
            else:
                asked = offset_fetch.OffsetFetchRequestTopics(
                    name="t" if version < 10 else "",
                    topic_id=new.id if version >= 10 else bytes(16),
                    partition_indexes=[0],
                )
                group = offset_fetch.OffsetFetchRequestGroup(
                    group_id="g", topics=None if everything else [asked]
                )
                answer = await conn.request(offset_fetch.OffsetFetchRequest(groups=[group]), version=version)
                found = answer.groups[0].topics
            offsets = [p.committed_offset for t in found for p in t.partitions]
            assert offsets == ([] if everything else [-1])
        await _commit(conn, "g", "t", offset=3)
        result = broker.groups.coordinator.fetch("g")
        assert [o.topic_id for o in result.offsets.values()] == [new.id]
