"""The cost of share fetches has bounds: quotas of bytes, batch headers that are looked at; sessions end with connections."""

from __future__ import annotations

import time
import types
import uuid
from unittest import mock

import pytest
from support.broker import new_name, new_topic
from support.quotas import put
from support.raw import batch
from support.secure_broker import LoginClient, SecureBroker
from support.share_client import Reader

from klamm.testing import EmbeddedBroker
from klamm_broker.coordinator.share import sessions as share_sessions
from klamm_broker.coordinator.share.delivery import Acquired
from klamm_broker.coordinator.share.model import DeliverySettings
from klamm_broker.coordinator.share.share_partition import SharePartition
from klamm_broker.log.answers import FileSlice
from klamm_broker.server import share_fetching
from klamm_kafka.wire.errors import ErrorCode as E
from klamm_kafka.wire.messages.share_fetch import FetchPartition, FetchTopic, ShareFetchRequest

MOST = (1 << 31) - 1
RATE = "consumer_byte_rate"
QUICK = {"quota.window.num": "2", "group.share.assignment.interval.ms": "0"}


@pytest.mark.usefixtures("processes")
def test_a_share_consumer_over_its_quota_gets_nothing_and_waits(tmp_path):
    with (
        EmbeddedBroker(tmp_path / "data", config=QUICK) as broker,
        Reader(broker, new_name("share"), new_topic(broker)) as reader,
    ):
        reader.join()
        for _ in range(4):
            reader.produce(bytes(40_000))
        assert put(reader, {"user": None}, {RATE: 100_000}) == (0, None)
        got, told, acked, began = [], [], 0, time.monotonic()
        while len(got) < 4:
            acks = [(got[-1], got[-1], [1])] if len(got) > acked else []
            reader.ask(acks=acks, max_bytes=50_000, most=1)
            answer = reader.told()
            assert answer.error_code == E.NONE
            partitions = [p for topic in answer.responses for p in topic.partitions]
            acked += len([p for p in partitions if acks and p.acknowledge_error_code == E.NONE])
            found = [a for p in partitions for a in p.acquired_records]
            assert bool(found) != bool(answer.throttle_time_ms), "records or a delay"
            assert all(a.delivery_count == 1 for a in found), "a delay locks nothing"
            got += [a.first_offset for a in found]
            told.append(answer.throttle_time_ms)
        assert got == [0, 1, 2, 3]
        assert acked == 3, "reports are taken and answered also with a delay"
        assert any(told)
        assert sum(told) / 1000 <= time.monotonic() - began + 0.05


class Login(LoginClient):
    def __init__(self, port: int) -> None:
        super().__init__(port)
        assert self.plain().error_code == E.NONE


class LoggedIn(Reader, Login):
    """A member of a share group that has logged in."""


@pytest.mark.usefixtures("processes")
def test_records_come_back_when_a_member_is_gone_that_has_renewed_its_login(tmp_path):
    times = {"connections.max.reauth.ms": "60000", "group.share.assignment.interval.ms": "0"}
    with SecureBroker(tmp_path, times) as broker:
        group, topic = new_name("share"), new_topic(broker)
        with LoggedIn(types.SimpleNamespace(port=broker.sasl_port), group, topic) as gone:
            gone.join().produce(b"a")
            assert gone.fetch()[0] == [(0, 0, 1)]
            assert gone.plain().error_code == E.NONE
            assert gone.fetch() == ([], {})
        with Reader(broker, group, topic) as other:
            assert other.join().fetch(wait_ms=10_000)[0] == [(0, 0, 2)], "a lock would last 30 s"


def large_fetch(reader, epoch, **more):
    """Asks for all of a topic with many partitions, and for many topics that do not exist."""
    named = [reader.topic_id] if epoch == 0 else []
    topics = [
        FetchTopic(topic_id=topic_id, partitions=[FetchPartition(partition_index=n) for n in range(600)])
        for topic_id in named
    ]
    if epoch == 0:
        topics += [
            FetchTopic(topic_id=uuid.uuid4().bytes, partitions=[FetchPartition(partition_index=0)])
            for _ in range(1000)
        ]
    reader.send(
        ShareFetchRequest(
            group_id=reader.group, member_id=reader.member, share_session_epoch=epoch, min_bytes=1,
            max_bytes=1 << 20, max_records=500, batch_size=500, topics=topics, **more,
        ), 2,
    )  # fmt: skip


def told(reader):
    """Returns how many partitions the next answer names with an error, and the acquired records of the others."""
    _, answer = reader.receive(ShareFetchRequest, 2)
    assert answer.error_code == E.NONE
    found = [p for topic in answer.responses for p in topic.partitions]
    acquired = [
        (p.partition_index, a.first_offset, a.delivery_count) for p in found for a in p.acquired_records
    ]
    return len([p for p in found if p.error_code == E.UNKNOWN_TOPIC_ID]), acquired


@pytest.mark.usefixtures("processes")
def test_a_large_share_fetch_waits_is_woken_and_gives_back(tmp_path):
    with EmbeddedBroker(tmp_path / "data", config=QUICK) as broker:
        topic = new_topic(broker, 600)
        with Reader(broker, new_name("share"), topic) as reader, Reader(broker, "g2", topic) as other:
            other.group = reader.group
            reader.join()
            large_fetch(reader, 0)
            assert told(reader) == (1000, [])
            large_fetch(reader, 1, max_wait_ms=60_000)
            other.produce(b"a")
            assert told(reader) == (1000, [(0, 0, 1)])
            large_fetch(other, 0)
            assert told(other) == (1000, [])
            large_fetch(other, 1, max_wait_ms=60_000)
            reader.sock.close()
            assert told(other) == (1000, [(0, 0, 2)])


def test_partitions_of_all_sessions_have_a_limit(monkeypatch):
    monkeypatch.setattr(share_sessions, "PARTITIONS_MAX", 5)
    sessions = share_sessions.ShareSessions()

    def opened(name, count):
        session = sessions.open(("g", name), count, name, 10)
        for n in range(0 if isinstance(session, E) else count):
            sessions.add(session, (b"t", n), told=True)
        return session

    first = opened("a", 3)
    assert opened("b", 3) is E.SHARE_SESSION_LIMIT_REACHED
    second = opened("b", 2)
    assert sessions.partitions == 5
    assert sessions.advance(second.owner, 1, 1) is E.SHARE_SESSION_LIMIT_REACHED
    assert sessions.advance(second.owner, 1) is second, "the refused request has not used the epoch up"
    sessions.remove(first, (b"t", 0))
    assert sessions.advance(second.owner, 2, 1) is second
    sessions.add(second, (b"t", 7), told=False)
    sessions.add(second, (b"t", 7), told=False)
    assert (sessions.partitions, second.news) == (5, {(b"t", 7)})
    assert opened("a", 2) is not first, "a session's place is free for its successor"
    sessions.add(first, (b"t", 9), told=True)
    assert sessions.partitions == 5, "the one before does not count any more"
    sessions.close(second.owner)
    assert sessions.partitions == 2


def test_no_more_headers_are_looked_at_than_records_may_be_locked(tmp_path):
    """A range of 50 MB has hundreds of thousands of batches; a reader may ask for any number of records."""
    data = b"".join(batch(b"x", base_offset=n) for n in range(3_000))
    path = tmp_path / "log"
    path.write_bytes(data)
    core = SharePartition(lambda: DeliverySettings(lock_ms=1000, delivery_limit=5, max_locks=200))
    core.restore(0, [], log_end=3_000)
    stored = types.SimpleNamespace(high_watermark=3_000)
    metrics = types.SimpleNamespace(note_fetch=lambda *_: None)
    topic = types.SimpleNamespace(metrics=metrics)
    served = types.SimpleNamespace(
        core=core, timer=None, partition=types.SimpleNamespace(log=stored, topic=topic)
    )
    shares = types.SimpleNamespace(setting=lambda *_: None, now_ms=lambda: 0, serves=lambda _: True)
    broker = types.SimpleNamespace(config={"fetch.max.bytes": MOST}, shares=shares)
    request = ShareFetchRequest(
        group_id="g", member_id="m", max_bytes=MOST, max_records=MOST, batch_size=MOST
    )
    fetch = share_fetching.ShareFetch(
        broker, request, 1, rights=mock.Mock(), session=None, partitions=[], acknowledged={}, first=True
    )
    with path.open("rb") as file:
        piece = FileSlice(file.fileno(), 0, len(data), mock.Mock())
        with mock.patch.object(share_fetching, "read_header", wraps=share_fetching.read_header) as read:
            first = fetch._acquired((b"", 0), served, 0, piece, MOST)
            assert first.acquired == [Acquired(0, 199, 1)]
            assert first.records.size == len(data) // 3_000 * 200
            assert fetch._acquired((b"", 0), served, 0, piece, MOST).acquired == ()
            assert read.call_count <= 2 * 202


def test_a_connection_has_a_part_of_the_sessions_only():
    sessions = share_sessions.ShareSessions()
    opened = [sessions.open(("g", f"m{n}"), 0, "greedy", 20) for n in range(4)]
    assert [session is E.SHARE_SESSION_LIMIT_REACHED for session in opened] == [False, False, True, True]
    assert not isinstance(sessions.open(("g", "m1"), 0, "greedy", 20), E), "a member's next session has room"
    assert not isinstance(sessions.open(("g", "other"), 0, "other", 20), E)


def test_sessions_are_found_without_a_look_at_all_others():
    sessions, count = share_sessions.ShareSessions(), 2_000

    class Peer:
        compared = 0

        def __eq__(self, other):
            Peer.compared += 1
            return self is other

        __hash__ = object.__hash__

    peers = [Peer() for _ in range(count)]
    for n, peer in enumerate(peers):
        sessions.open((f"g{n}", "m"), 0, peer, 10 * count)
    assert [session.owner for session in sessions.of_connection(peers[7])] == [("g7", "m")]
    assert Peer.compared < count
    assert sessions.has_members("g7")
    sessions.close(("g7", "m"))
    assert not sessions.has_members("g7")
    assert sessions.of_connection(peers[7]) == []
    assert len(sessions) == count - 1
