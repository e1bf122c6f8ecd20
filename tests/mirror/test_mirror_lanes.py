"""The mirror over a long line: several lanes to a broker, each with partitions and a session of its own."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest
from support.broker import new_topic
from support.connect_worker import free_port
from support.kafka_broker import KafkaBroker
from support.long_line import LongLine
from support.mirroring import Running, produce, props, read, rows

from klamm.testing import EmbeddedBroker
from klamm_kafka.client import Cluster, Connection
from klamm_kafka.wire.messages.fetch import FetchRequest
from klamm_mirror.copy.fetch_lane import BUSY_WAIT_MS, FetchLane
from klamm_mirror.copy.fetch_settings import WAIT_MS, FetchSettings
from klamm_mirror.copy.fetcher import Fetcher
from klamm_mirror.copy.partition import MirrorPartition
from klamm_mirror.copy.source_check import SourceCheck
from klamm_mirror.copy.source_metadata import SourceMetadata
from klamm_mirror.copy.throttle import BURST_S, Throttle

DELAY_S = 0.02
PARTITIONS = 10


@pytest.fixture(
    scope="module", params=["klamm", pytest.param("kafka", marks=pytest.mark.needs("apache_kafka"))]
)
def line(request, processes: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LongLine]:
    """Yields a line to a broker that tells clients the line's port."""
    work, port = tmp_path_factory.mktemp("far"), free_port()
    told = {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}"}
    far: EmbeddedBroker | KafkaBroker
    far = EmbeddedBroker(work / "data", config=told) if request.param == "klamm" else KafkaBroker(work, told)
    with far, LongLine(port, far.port, delay_s=DELAY_S) as found:
        yield found


@pytest.fixture
def sessions(monkeypatch) -> dict[int, set[tuple[bytes, int]]]:
    """Returns the partitions that each fetch session was asked for."""
    found: dict[int, set[tuple[bytes, int]]] = defaultdict(set)
    ask = Connection.request

    async def request(self: Connection, message: Any, *args: Any, **more: Any) -> Any:
        answer = await ask(self, message, *args, **more)
        if isinstance(message, FetchRequest) and not answer.error_code:
            found[answer.session_id] |= {
                (t.topic_id, p.partition) for t in message.topics for p in t.partitions
            }
        return answer

    monkeypatch.setattr(Connection, "request", request)
    return found


def test_each_lane_has_partitions_of_its_own_and_their_order_is_kept(line, target, sessions):
    topic = new_topic(line, PARTITIONS)
    sent = {index: rows(200, f"{index}-") for index in range(PARTITIONS)}
    for index, some in sent.items():
        produce(line.bootstrap, topic, some, partition=index)
    with Running(props(line.bootstrap, target.bootstrap, topics=topic)) as mirror:
        mirror.until(lambda: mirror.records == 200 * PARTITIONS, "copied")
    shares = [share for session_id, share in sessions.items() if session_id]
    assert len(shares) >= 4  # 40 ms and more
    assert max(len(share) for share in shares) <= 3
    assert sum(len(share) for share in shares) == len(set.union(*shares)) == PARTITIONS
    for index, some in sent.items():
        assert read(target.bootstrap, f"A.{topic}", 200, partition=index) == some


def test_a_line_that_breaks_loses_nothing_and_repeats_nothing(line, target):
    topic = new_topic(line, PARTITIONS)
    sent: dict[int, list[Any]] = {index: [] for index in range(PARTITIONS)}
    with Running(props(line.bootstrap, target.bootstrap, topics=topic)) as mirror:
        for turn in range(3):
            for index in sent:
                new = rows(100, f"{turn}-{index}-")
                produce(line.bootstrap, topic, new, partition=index)
                sent[index] += new
            line.cut()
        mirror.until(lambda: mirror.records == 300 * PARTITIONS, "copied")
    for index, some in sent.items():
        assert read(target.bootstrap, f"A.{topic}", None, partition=index) == some


def test_one_partition_alone_gets_one_lane(line, target, sessions):
    topic = new_topic(line, 1)
    produce(line.bootstrap, topic, rows(300))
    with Running(props(line.bootstrap, target.bootstrap, topics=topic)) as mirror:
        mirror.until(lambda: mirror.records == 300, "copied")
    assert len([session_id for session_id in sessions if session_id]) == 1


def test_a_near_broker_that_was_slow_once_gets_one_lane(source, target, sessions, monkeypatch):
    negotiate = Connection._negotiate

    async def slow(self: Connection) -> None:
        await negotiate(self)
        self.round_trip_s = 0.2

    monkeypatch.setattr(Connection, "_negotiate", slow)
    topic = new_topic(source, PARTITIONS)
    produce(source.bootstrap, topic, rows(100))
    with Running(props(source.bootstrap, target.bootstrap, topics=topic)) as mirror:
        mirror.until(lambda: mirror.records == 100, "copied")
    assert len([session_id for session_id in sessions if session_id]) == 1


def lane_of(
    metadata: SourceMetadata, partitions: list[MirrorPartition], throttle: Throttle | None = None
) -> FetchLane:
    nobody = Cluster("127.0.0.1:1")
    lane = FetchLane(
        1, nobody, FetchSettings(), metadata, check=SourceCheck(nobody, partitions),
        intake=None, throttle=throttle or Throttle({}), may_fetch=bool, fetched=list, room=asyncio.Event(),
    )  # fmt: skip
    lane.size.fit(lanes=1, share=len(partitions), far=False)
    return lane


@pytest.mark.parametrize(
    ("resting_s", "full", "least", "most"),
    [
        ([], 0, WAIT_MS, WAIT_MS),
        ([5.0], 0, WAIT_MS, WAIT_MS),
        ([0.3, 5.0], 0, 200, 300),
        ([0.01], 0, BUSY_WAIT_MS, BUSY_WAIT_MS),
        ([], 1, BUSY_WAIT_MS, BUSY_WAIT_MS),
        ([5.0], 1, BUSY_WAIT_MS, BUSY_WAIT_MS),
    ],
)
def test_a_partition_that_waits_after_a_failure_makes_no_fetch_hurry(resting_s, full, least, most):
    """`resting_s`: the pauses of partitions after failures; `full`: the number of those whose buffer is full."""
    ours = [MirrorPartition(topic="t", partition=n, remote="A.t") for n in range(1 + len(resting_s) + full)]
    for partition, pause in zip(ours[1:], resting_s, strict=False):
        partition.reading.until = time.monotonic() + pause
    lane = lane_of(SourceMetadata(), ours)
    assert least <= lane._patience_ms(ours, ours[:1]) <= most


def test_a_partition_that_is_held_back_may_be_read_in_time():
    throttle = Throttle({"t": 10_000.0})
    throttle.take("t", int(10_000 * (BURST_S + 0.2)), time.monotonic())
    ours = [
        MirrorPartition(topic="free", partition=0, remote="A.free"),
        MirrorPartition(topic="t", partition=0, remote="A.t"),
    ]
    ours[1].held_by = throttle.held_by("t", time.monotonic())
    assert ours[1].held_by
    assert BUSY_WAIT_MS < lane_of(SourceMetadata(), ours, throttle)._patience_ms(ours, ours[:1]) < WAIT_MS


async def test_lanes_that_end_are_closed_together():
    """Each may take a second at a broker that is away; meanwhile no leader is asked for."""
    fetcher = Fetcher(
        lambda: Cluster("127.0.0.1:1"), Cluster("127.0.0.1:1"), [], FetchSettings(), fetched=list, room=asyncio.Event(),
        adopted=None, check_source=None, rewriter=None, throttle=Throttle({}),
    )  # fmt: skip
    everyone = asyncio.Barrier(3)

    class Lane:
        partitions = ()

        async def run(self) -> None:
            return

        async def close(self, _: Cluster) -> None:
            await everyone.wait()

    for lane in [Lane() for _ in range(3)]:
        fetcher._running[lane] = running = asyncio.create_task(lane.run())
        await running
    async with asyncio.timeout(10):
        await fetcher._look_after()
    assert not fetcher._running


def test_an_answer_from_before_a_move_is_not_taken():
    metadata, partition = SourceMetadata(), MirrorPartition(topic="t", partition=0, remote="A.t")
    partition.topic_id = b"1" * 16
    partition.begin(100)
    lane = lane_of(metadata, [partition])
    metadata.ids, metadata.epochs = {"t": b"1" * 16}, {("t", 0): 0}
    lane._session.build(lane._asked([partition], 0.0), uses_ids=True)
    assert lane._is_due(partition)
    partition.topic_id = b"2" * 16
    assert not lane._is_due(partition)
    partition.topic_id = b"1" * 16
    partition.move(50, (7, 0))
    assert not lane._is_due(partition)
