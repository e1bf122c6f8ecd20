"""Clients that mean harm, on live connections: memory stays bounded, and nobody else waits for them."""

from __future__ import annotations

import contextlib
import resource
import socket
import struct
import sys
import threading
import time

import psutil
import pytest
from support.broker import new_topic, wait_until
from support.raw import RawClient, batch, fetch_request, produce_request, request_frame

from klamm.testing import EmbeddedBroker
from klamm_broker.server.doors import ACCEPT_PAUSE_S
from klamm_kafka.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from klamm_kafka.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from klamm_kafka.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from klamm_kafka.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from klamm_kafka.wire.messages.metadata import MetadataRequest

METADATA = request_frame(MetadataRequest(topics=[]), 12)
MB = 1 << 20
INT_MAX = (1 << 31) - 1


class Watch:
    """Another client's view while something goes on, and the broker's memory."""

    def __init__(self, broker: EmbeddedBroker) -> None:
        self._broker = broker
        self._process = psutil.Process(broker.pid)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._ask)
        self.rss_before = self.rss_max = self._process.memory_info().rss
        self.latencies: list[float] = []
        self.failure: Exception | None = None

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()  # its client waits a minute at the longest

    def _ask(self) -> None:
        try:
            with RawClient(self._broker.port, timeout_s=60) as client:
                while not self._stop.is_set() or len(self.latencies) < 3:
                    began = time.perf_counter()
                    client.request(MetadataRequest(topics=[]), 12)
                    self.latencies.append(time.perf_counter() - began)
                    self.rss_max = max(self.rss_max, self._process.memory_info().rss)
                    time.sleep(0.01)
        except Exception as e:
            self.failure = e

    def look(self, times: int) -> None:
        """Waits until the broker has answered so often that it has read all that was sent before."""
        wanted = len(self.latencies) + times
        wait_until(lambda: self.failure or len(self.latencies) >= wanted, "the other client to be answered")

    def judge(self, *, grown_mb: float) -> None:
        """Checks that everybody was answered within the client's patience, and memory is bounded. How fast is printed only:
        the machine may be busy."""
        assert self.failure is None, self.failure
        assert len(self.latencies) >= 3
        median = sorted(self.latencies)[len(self.latencies) // 2] * 1000
        grown = (self.rss_max - self.rss_before) / MB
        print(f"others: median {median:.1f} ms, worst {max(self.latencies):.2f} s; grown by {grown:.0f} MB")
        assert grown < grown_mb, f"grown by {grown:.0f} MB"


@pytest.fixture
def filled(broker):
    """Returns a topic with 16 MB."""
    topic = new_topic(broker)
    with RawClient(broker.port) as writer:
        for _ in range(16):
            writer.request(produce_request(topic, batch(bytes(1_000_000))), 9)
    return topic


@pytest.fixture(autouse=True)
def no_defects(broker):
    """Checks at the end that no handler of ours has failed, whatever a client did."""
    before = len(broker.log_text)
    yield
    assert broker.running
    logged = broker.log_text[before:]
    assert "Traceback" not in logged
    assert "failed here" not in logged


def connections(broker: EmbeddedBroker, count: int) -> list[socket.socket]:
    return [socket.create_connection(("127.0.0.1", broker.port), timeout=60) for _ in range(count)]


def close_all(socks: list[socket.socket]) -> None:
    for sock in socks:
        sock.close()


def test_size_fields_cost_no_memory_until_their_bytes_come(broker):
    """A hundred clients announce large requests and send next to nothing of them."""
    with Watch(broker) as watch:
        socks = connections(broker, 100)
        for i, sock in enumerate(socks):
            size = (8 * MB - 100, 90 * MB)[i % 2]
            sock.sendall(struct.pack(">ihhi", size, 0, 9, 1))
        watch.look(5)
        for sock in socks:
            sock.sendall(bytes(5000))
        watch.look(5)
        close_all(socks)
    watch.judge(grown_mb=60)


def test_one_byte_at_a_time_from_many(broker):
    with Watch(broker) as watch:
        socks = connections(broker, 200)
        for byte in METADATA:
            for sock in socks:
                sock.sendall(bytes([byte]))
            time.sleep(0.02)  # a slow client
        for sock in socks:
            assert sock.recv(4)
        close_all(socks)
    watch.judge(grown_mb=30)


def test_two_thousand_connections_that_say_nothing(tmp_path):
    config = {
        "connections.max.idle.ms": "10000"
    }  # the watcher asks more often, wherever the machine stands still
    count = 2000
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < count + 500:
        pytest.skip(f"the limit is {soft} file descriptors: ulimit -n {count + 500}")
    with EmbeddedBroker(tmp_path / "data", config=config) as own:
        with Watch(own) as watch:
            socks = connections(own, count)
            assert all(sock.recv(1) == b"" for sock in socks)
            wait_until(lambda: psutil.Process(own.pid).num_fds() < 200, "idle ones are closed", timeout_s=60)
        watch.judge(grown_mb=100)
        close_all(socks)


@pytest.mark.skipif(sys.platform != "linux", reason="prlimit is Linux's")
def test_out_of_file_descriptors_those_who_are_there_are_served(tmp_path):
    with EmbeddedBroker(tmp_path / "data") as own, RawClient(own.port) as client:
        topic = new_topic(own)
        client.request(produce_request(topic, batch(b"before")), 9)
        used = psutil.Process(own.pid).num_fds()
        resource.prlimit(own.pid, resource.RLIMIT_NOFILE, (used + 20, used + 20))
        socks = connections(own, 40)
        wait_until(lambda: "cannot accept" in own.log_text, "a line about it")
        for _ in range(20):
            answer = client.request(produce_request(topic, batch(b"x")), 9)
            assert answer.responses[0].partition_responses[0].error_code == 0
        lines, since = own.log_text.count("cannot accept"), time.monotonic()
        time.sleep(0.6)  # nothing else says that it does not spin
        more = own.log_text.count("cannot accept") - lines
        assert more <= 1 + (time.monotonic() - since) / ACCEPT_PAUSE_S, "it does not spin"
        close_all(socks)
        with RawClient(own.port) as later:
            later.request(MetadataRequest(topics=[]), 12)


def test_ten_thousand_requests_whose_answers_nobody_takes(broker):
    with Watch(broker) as watch, RawClient(broker.port, receive_buffer=4096) as client:
        client.sock.settimeout(0.5)
        stream = memoryview(METADATA * 10_000)
        sent = 0
        try:
            while sent < len(stream):
                sent += client.sock.send(stream[sent : sent + 65536])
        except TimeoutError:
            pass
        client.sock.settimeout(60)
        whole = sent // len(METADATA)
        for _ in range(whole):
            assert client.receive(MetadataRequest, 12)[1].brokers
    watch.judge(grown_mb=30)


def configs_of_groups():
    """Asks for 3,000 groups, which need not exist: 50 KB whose answer has several megabytes."""
    resources = [
        DescribeConfigsResource(resource_type=32, resource_name=f"g{n}", configuration_keys=None)
        for n in range(3000)
    ]
    return DescribeConfigsRequest(resources=resources, include_synonyms=True, include_documentation=True)


def topics_that_are_only_checked():
    topics = [CreatableTopic(name=f"checked{n}", num_partitions=1, replication_factor=1) for n in range(3000)]
    return CreateTopicsRequest(topics=topics, timeout_ms=60_000, validate_only=True)


@pytest.mark.parametrize("behind_a_poll", [False, True])
@pytest.mark.parametrize(
    ("request_", "version", "megabytes"),
    [(configs_of_groups(), 4, 12), (topics_that_are_only_checked(), 7, 6)],
    ids=["describe configs", "create topics"],
)
def test_large_answers_to_small_requests_that_nobody_takes(
    broker, request_, version, megabytes, behind_a_poll
):
    """The same question many times at once: the broker has an answer or two in memory, not all of them."""
    poll = request_frame(fetch_request(new_topic(broker), max_wait_ms=600_000), 11) if behind_a_poll else b""
    frame = request_frame(request_, version)
    with RawClient(broker.port) as client:
        answer = client.send(request_, version) or client.receive_frame()
        assert len(answer) > megabytes * MB / 2
    with Watch(broker) as watch, RawClient(broker.port, receive_buffer=4096) as client:
        pour(client.sock, poll + frame * 24, 3)
        watch.look(50)
        time.sleep(5)
    watch.judge(grown_mb=6 * megabytes)


def test_a_fetch_of_everything_as_often_as_it_can_be_named(broker, filled):
    """One partition twenty thousand times, without a limit: one answer of `fetch.max.bytes` at most."""
    asked = [FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=INT_MAX) for _ in range(20_000)]
    request = FetchRequest(
        max_wait_ms=0, min_bytes=1, max_bytes=INT_MAX, topics=[FetchTopic(topic=filled, partitions=asked)]
    )
    with Watch(broker) as watch, RawClient(broker.port) as client:
        for _ in range(3):
            client.send(request, 11)
            assert len(client.receive_frame()) < 58 * MB
    watch.judge(grown_mb=60)


@pytest.mark.parametrize("limit", [INT_MAX, 0, -1, -INT_MAX])
def test_limits_of_a_fetch_may_be_anything(broker, filled, limit):
    with RawClient(broker.port) as client:
        asked = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=limit)
        request = FetchRequest(
            max_wait_ms=0, min_bytes=limit, max_bytes=limit,
            topics=[FetchTopic(topic=filled, partitions=[asked])],
        )  # fmt: skip
        answer = client.request(request, 11).responses[0].partitions[0]
        assert answer.error_code == 0
        assert len(answer.records) >= 1_000_000, "at least one batch"


def test_long_polls_are_hoarded(broker):
    """Twenty clients park as many large fetches as they may."""
    topic = new_topic(broker)
    asked = [FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1) for _ in range(15_000)]
    request = FetchRequest(
        max_wait_ms=600_000, min_bytes=1, max_bytes=1, topics=[FetchTopic(topic=topic, partitions=asked)]
    )
    frame = request_frame(request, 11)
    with Watch(broker) as watch:
        socks = connections(broker, 10)
        senders = [threading.Thread(target=pour, args=(sock, frame * 60, 6)) for sock in socks]
        for sender in senders:
            sender.start()
        for sender in senders:
            sender.join()
        close_all(socks)
    watch.judge(grown_mb=150)


def pour(sock: socket.socket, data: bytes, seconds: float) -> None:
    """Send for as long as the other side takes it, and no longer than this."""
    sock.settimeout(seconds)
    try:
        sock.sendall(data)
    except TimeoutError:
        return


def test_small_long_polls_are_hoarded(broker):
    topic = new_topic(broker)
    frame = request_frame(fetch_request(topic, max_wait_ms=600_000), 11)
    with Watch(broker) as watch:
        socks = connections(broker, 100)
        for sock in socks:
            sock.sendall(frame * 250)
        watch.look(10)
        with RawClient(broker.port) as client:
            client.request(produce_request(topic, batch(b"x")), 9)  # wakes them all
        for sock in socks:
            sock.settimeout(60)
            assert sock.recv(4)
        close_all(socks)
    watch.judge(grown_mb=150)


def test_readers_that_stop_in_the_middle(broker, filled):
    """Fifty clients ask for 16 MB each and take nothing: the segment file is what waits, not memory."""
    frame = request_frame(fetch_request(filled, max_bytes=64 * MB), 11)
    with Watch(broker) as watch:
        socks = connections(broker, 50)
        for sock in socks:
            sock.sendall(frame * 5)
        watch.look(20)
        close_all(socks)
    watch.judge(grown_mb=30)


CUT = {
    "produce": request_frame(produce_request("nothing", batch(b"a", b"b")), 9),
    "fetch": request_frame(fetch_request("nothing", max_wait_ms=10), 12),
    "join group": request_frame(
        JoinGroupRequest(
            group_id="cut", protocol_type="consumer", session_timeout_ms=6000, rebalance_timeout_ms=6000,
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"1234")],
        ), 9,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CUT)
@pytest.mark.parametrize("reset", [False, True], ids=["closed", "reset"])
def test_a_request_cut_at_every_byte(broker, name, reset):
    frame = CUT[name]
    with Watch(broker) as watch:
        for size in range(1, len(frame)):
            with socket.create_connection(("127.0.0.1", broker.port)) as sock:
                sock.sendall(frame[:size])
                if reset:
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        watch.look(3)
    watch.judge(grown_mb=20)


def test_half_open_connections_do_not_stay(tmp_path):
    """A peer that was unplugged sends no FIN: only the idle limit finds it, also in the middle of a request."""
    with EmbeddedBroker(tmp_path / "data", config={"connections.max.idle.ms": "600"}) as own:
        socks = connections(own, 4)
        for sock, frame in zip(socks, (b"", METADATA[:3], METADATA[:-1], METADATA), strict=True):
            sock.sendall(frame)
        for sock in socks:
            with contextlib.suppress(
                ConnectionResetError
            ):  # it may be idle for too long before its bytes come
                while sock.recv(65536):
                    pass
        close_all(socks)
