"""Frames on a socket: whole, cut, pipelined, malformed; and peers that do not read.

A bad request closes its own connection with one log line and harms nobody else.
"""

from __future__ import annotations

import contextlib
import re
import socket
import struct
from functools import partial

import psutil
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.broker import new_topic, wait_until
from support.raw import RawClient, batch, fetch_request, framed, produce_request, request_frame

from klamm.testing import EmbeddedBroker
from klamm_broker.api.registry import REQUEST_MAX
from klamm_kafka.wire.messages.api_versions import ApiVersionsRequest
from klamm_kafka.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from klamm_kafka.wire.messages.describe_groups import DescribeGroupsRequest
from klamm_kafka.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from klamm_kafka.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from klamm_kafka.wire.messages.produce import ProduceRequest

METADATA = request_frame(MetadataRequest(topics=[]), 12)


@pytest.fixture
def bystander(broker):
    """Yields another client's connection, which must not notice anything."""
    with RawClient(broker.port) as client:
        client.request(MetadataRequest(topics=[]), 12)
        yield client
        assert client.request(MetadataRequest(topics=[]), 12).brokers[0].node_id == 1


@pytest.fixture(scope="module")
def cut_topic(broker):
    return new_topic(broker)


def head(key, version, correlation_id=1, client=b"\xff\xff"):
    return struct.pack(">hhi", key, version, correlation_id) + client


BAD_FRAMES = {
    "size zero": (struct.pack(">i", 0), "request size 0 is not positive"),
    "negative size": (struct.pack(">i", -5), "request size -5 is not positive"),
    "oversized": (struct.pack(">i", 200_000_000), r"request size 200000000 exceeds socket\.request\.max\.bytes=104857600"),
    "http": (b"GET / HTTP/1.1\r\n\r\n", r"exceeds socket\.request\.max\.bytes"),
    "metadata too large": (struct.pack(">ihh", 524_289, 3, 12), "METADATA of 524289 bytes: at most 524288 are taken"),
    "fetch too large": (struct.pack(">ihh", 26_000_000, 1, 11), "FETCH of 26000000 bytes: at most 1048576 are taken"),
    "sync too large": (struct.pack(">ihh", 4_194_305, 14, 5), "SYNC_GROUP of 4194305 bytes: at most 4194304 are taken"),
    "unknown api too large": (struct.pack(">ihh", 600_000, 999, 0), "api key 999 of 600000 bytes: at most 524288"),
    "header cut": (framed(b"\0\3\0"), "truncated request header: 3 bytes, at least 10 are needed"),
    "unknown api": (framed(head(999, 0)), "api key 999 version 0 is not served"),
    "unknown version": (framed(head(3, 77)), "METADATA version 77 is not served, 0 to 13 are"),
    "produce version 0": (framed(head(0, 0)), "PRODUCE version 0 is not served, 3 to 13 are"),
    "client id past the end": (framed(head(3, 4, client=b"\x7f\xff")), "METADATA version 4 .*client_id"),
    "client id of negative length": (framed(head(3, 4, client=b"\xff\xf0")), "METADATA version 4 .*client_id"),
    "client id not UTF-8": (framed(head(3, 4, client=b"\0\1\xff") + b"\0\0\0\0\1"), "client_id.*UTF-8"),
    "header tags cut": (framed(head(3, 12) + b"\5"), "METADATA version 12 .*tags"),
    "array longer than the request": (framed(head(3, 4) + struct.pack(">i", 1 << 30)), r"METADATA version 4 .*topics"),
    "body cut": (framed(METADATA[4:-2]), "METADATA version 12 .*offset"),
    "fetch body cut": (framed(request_frame(fetch_request("t"), 11)[4:-9]), "FETCH version 11 .*offset"),
    "produce body cut": (framed(request_frame(produce_request("t", b"12345"), 9)[4:-4]), "PRODUCE version 9 .*offset"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD_FRAMES)
def test_bad_frame_closes_its_connection_with_one_line(broker, bystander, name):
    frame, expected = BAD_FRAMES[name]
    before = len(broker.log_text)
    with RawClient(broker.port) as client:
        port = client.sock.getsockname()[1]
        client.sock.sendall(frame)
        client.wait_closed()
    lines = wait_until(lambda: broker.log_text[before:].splitlines(), "a log line")  # noqa: PLW0108
    assert len(lines) == 1
    assert f"connection 127.0.0.1:{port} closed: " in lines[0]
    assert re.search(expected, lines[0]), lines[0]


@pytest.mark.parametrize("cut", [1, 4, 5, 6, 7, 100])
def test_a_request_may_be_as_large_as_its_limit(broker, cut):
    """Wherever the first bytes are cut: the api key of a large frame is looked at before the frame is there."""
    name = "x" * 30_000
    one = request_frame(MetadataRequest(topics=[MetadataRequestTopic(name=name)]), 1)
    fill = bytes(REQUEST_MAX + 4 - len(one))  # behind the last field: let pass
    frame = struct.pack(">i", REQUEST_MAX) + one[4:] + fill
    with RawClient(broker.port) as client:
        client.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        client.sock.sendall(METADATA + frame[:cut])
        assert client.receive(MetadataRequest, 12)[1].brokers, "it has read up to the cut"
        client.sock.sendall(frame[cut:])
        answer = client.receive(MetadataRequest, 1)[1]
    assert [topic.name for topic in answer.topics] == [name]


def test_frames_of_a_few_bytes_are_whole_before_their_api_key(broker, bystander):
    for size in (1, 2, 3):
        with RawClient(broker.port) as client:
            client.sock.sendall(framed(bytes(size)))
            client.wait_closed()
        line = f"truncated request header: {size} bytes"
        wait_until(lambda line=line: line in broker.log_text, line)


def test_what_is_named_often_is_answered_once(broker):
    topic = new_topic(broker, partitions=3)
    with RawClient(broker.port) as client:
        answer = client.request(MetadataRequest(topics=[MetadataRequestTopic(name=topic)] * 1000), 12)
        assert [(t.name, len(t.partitions)) for t in answer.topics] == [(topic, 3)]
        resources = [
            DescribeConfigsResource(resource_type=4, resource_name="1", configuration_keys=None)
        ] * 1000
        assert len(client.request(DescribeConfigsRequest(resources=resources), 1).results) == 1
        assert len(client.request(DescribeGroupsRequest(groups=["g"] * 1000), 5).groups) == 1
        groups = [OffsetFetchRequestGroup(group_id="g", topics=None)] * 1000
        assert len(client.request(OffsetFetchRequest(groups=groups), 8).groups) == 1


def test_answers_before_the_bad_frame_still_arrive(broker, bystander):
    with RawClient(broker.port) as client:
        client.sock.sendall(METADATA + METADATA + framed(b"\0\0"))
        for _ in range(2):
            assert client.receive(MetadataRequest, 12)[1].brokers
        client.wait_closed()


@pytest.mark.parametrize("length", [2, 4, 12, len(METADATA) - 1])
def test_peer_that_leaves_in_the_middle_is_named(broker, bystander, length):
    with RawClient(broker.port) as client:
        port = client.sock.getsockname()[1]
        client.sock.sendall(METADATA[:length])
    line = wait_until(
        lambda: next((x for x in broker.log_text.splitlines() if f":{port} closed" in x), None), "a log line"
    )
    assert f"truncated request: the peer left after {length} of " in line


@given(garbage=st.binary(min_size=0, max_size=200), key=st.integers(0, 80), version=st.integers(0, 20))
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_garbage_is_answered_or_ends_its_connection(broker, garbage, key, version):
    with RawClient(broker.port) as client:
        client.sock.sendall(framed(head(key, version) + garbage))
        client.sock.shutdown(socket.SHUT_WR)
        while client.sock.recv(65536):
            pass
    assert broker.running


def test_unknown_api_versions_version_is_answered_in_version_0(broker):
    with RawClient(broker.port) as client:
        client.sock.sendall(framed(head(18, 127, 42, b"\0\1x") + b"\0"))
        correlation_id, answer = client.receive(ApiVersionsRequest, 0)
        assert (correlation_id, answer.error_code) == (42, 35)
        assert [(k.api_key, k.min_version, k.max_version) for k in answer.api_keys] == [(18, 0, 4)]
        assert client.request(ApiVersionsRequest(), 0).error_code == 0, "the connection goes on"


def test_api_versions_comes_from_the_registry_and_advertises_produce_from_0(broker):
    from klamm_broker.api import registry

    with RawClient(broker.port) as client:
        request = ApiVersionsRequest(client_software_name="test", client_software_version="1.0")
        answer = client.request(request, 4)
    served = {k.api_key: (k.min_version, k.max_version) for k in answer.api_keys}
    assert served == {k: (a.advertised_min, a.max_version) for k, a in registry.load().items()}
    assert served[0] == (0, 13)


@pytest.mark.parametrize("name", ["", "-x", "a b", "x" * 3 + "."])
def test_api_versions_refuses_a_bad_software_name(broker, name):
    with RawClient(broker.port) as client:
        request = ApiVersionsRequest(client_software_name=name, client_software_version="1.0")
        assert client.request(request, 3).error_code == 42


def test_request_may_come_byte_by_byte(broker):
    with RawClient(broker.port) as client:
        client.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for i in range(len(METADATA)):
            client.sock.sendall(METADATA[i : i + 1])
        assert client.receive(MetadataRequest, 12)[1].brokers[0].node_id == 1


@given(cuts=st.lists(st.integers(1, 700_000), max_size=12), one_by_one=st.integers(0, 40))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_cut_of_a_stream_gives_the_same_answers(broker, cut_topic, cuts, one_by_one):
    """Small, buffer-sized and larger frames, in pieces that end anywhere."""
    sizes = [10, 400_000, 50, 262_000, 10, 600_000, 5]
    frames = [
        request_frame(produce_request(cut_topic, batch(bytes(size))), 9, i) for i, size in enumerate(sizes)
    ]
    stream = b"".join(frames)
    ends = sorted(
        {min(sum(cuts[: i + 1]), len(stream)) for i in range(len(cuts))}
        | {len(stream)}
        | set(range(1, one_by_one))
    )
    with RawClient(broker.port) as client:
        client.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        begin = 0
        for end in ends:
            client.sock.sendall(stream[begin:end])
            begin = end
        for i in range(len(frames)):
            correlation_id, answer = client.receive(ProduceRequest, 9)
            assert correlation_id == i
            assert answer.responses[0].partition_responses[0].error_code == 0


def test_pipelined_answers_keep_the_order_of_their_requests(broker):
    topic = new_topic(broker)
    with RawClient(broker.port) as client:
        frames = [
            request_frame(fetch_request(topic, max_wait_ms=200), 11, 0),  # parked
            request_frame(MetadataRequest(topics=[]), 12, 1),
            request_frame(fetch_request(topic, max_wait_ms=50), 11, 2),  # due before the first one
            request_frame(produce_request(topic, batch(b"x", b"y")), 9, 3),  # wakes both
            request_frame(fetch_request(topic, max_wait_ms=5000), 11, 4),
            request_frame(ApiVersionsRequest(), 0, 5),
        ]
        client.sock.sendall(b"".join(frames))
        ids = [int.from_bytes(client.receive_frame()[:4]) for _ in frames]
    assert ids == list(range(6))


def test_parked_requests_have_a_bound_and_all_are_answered(broker):
    """Beyond MAX_PARKED the connection is not read; it goes on when the first ones are answered."""
    topic = new_topic(broker)
    count = 700
    with RawClient(broker.port) as client:
        client.sock.sendall(
            b"".join(request_frame(fetch_request(topic, max_wait_ms=300), 11, i) for i in range(count))
        )
        assert [int.from_bytes(client.receive_frame()[:4]) for _ in range(count)] == list(range(count))


def test_many_requests_in_one_write(broker):
    topic = new_topic(broker)
    count = 2000
    with RawClient(broker.port) as client:
        client.sock.sendall(
            b"".join(request_frame(produce_request(topic, batch(b"%d" % i)), 9, i) for i in range(count))
        )
        for i in range(count):
            correlation_id, answer = client.receive(ProduceRequest, 9)
            done = answer.responses[0].partition_responses[0]
            assert (correlation_id, done.error_code, done.base_offset) == (i, 0, i)


def test_frame_larger_than_the_buffer(broker):
    topic = new_topic(broker, config={"max.message.bytes": "50000000"})
    value = bytes(range(256)) * 80_000  # 20 MB
    with RawClient(broker.port) as client:
        for round_trip in range(3):
            answer = client.request(produce_request(topic, batch(value)), 9)
            assert answer.responses[0].partition_responses[0].base_offset == round_trip
            client.request(MetadataRequest(topics=[]), 12)
        answer = client.request(fetch_request(topic, 2), 11)
        assert bytes(answer.responses[0].partitions[0].records).endswith(value[-1000:] + b"\0")


def test_peer_that_does_not_read_costs_little_and_blocks_nobody(broker, bystander):
    """Back pressure: the broker stops reading while its answers are not taken."""
    topic = new_topic(broker)
    with RawClient(broker.port) as writer:
        for _ in range(16):
            writer.request(produce_request(topic, batch(bytes(900_000))), 9)
    before = psutil.Process(broker.pid).memory_info().rss
    request = request_frame(fetch_request(topic, max_bytes=1 << 24), 11)
    with RawClient(broker.port, receive_buffer=65536) as slow:
        slow.sock.settimeout(0.3)
        sent = 0
        try:
            while sent < 50_000_000:
                sent += slow.sock.send(request * 1000)
        except TimeoutError:
            pass
        assert sent < 50_000_000, "the broker went on reading"
        bystander.request(MetadataRequest(topics=[]), 12)
        assert psutil.Process(broker.pid).memory_info().rss - before < 20_000_000
        slow.sock.settimeout(60)
        for _ in range(5):
            assert len(slow.receive_frame()) > 14_000_000


def test_acks_0_has_no_answer_and_an_error_ends_the_connection(broker, bystander):
    topic = new_topic(broker)
    with RawClient(broker.port) as client:
        client.send(produce_request(topic, batch(b"a"), acks=0), 9)
        assert (
            client.request(produce_request(topic, batch(b"b")), 9)
            .responses[0]
            .partition_responses[0]
            .base_offset
            == 1
        )
        client.send(produce_request(topic, batch(b"c"), partition=7, acks=0), 9)
        client.wait_closed()


@pytest.mark.usefixtures("processes")
def test_limits_of_connections(tmp_path):
    own = EmbeddedBroker(tmp_path / "data", config={"max.connections": "2"})
    with own, RawClient(own.port) as one, RawClient(own.port) as two:
        one.request(MetadataRequest(topics=[]), 12)
        two.request(MetadataRequest(topics=[]), 12)
        with RawClient(own.port) as three, RawClient(own.port) as four:
            three.send(MetadataRequest(topics=[]), 12)
            wait_until(lambda: "further ones wait" in own.log_text, "a line about it")
            one.request(MetadataRequest(topics=[]), 12)
            two.sock.close()
            assert three.receive(MetadataRequest, 12)[1].brokers, "it waited for its place"
            three.sock.close()
            assert four.request(MetadataRequest(topics=[]), 12).brokers


def served(broker: EmbeddedBroker) -> bool:
    """Returns whether a new connection is answered."""
    with RawClient(broker.port) as client:
        try:
            client.request(MetadataRequest(topics=[]), 12)
        except ConnectionError:
            return False
        return True


@pytest.mark.usefixtures("processes")
def test_an_idle_connection_is_closed(tmp_path):
    with EmbeddedBroker(tmp_path / "data", config={"connections.max.idle.ms": "400"}) as own:
        with RawClient(own.port) as client:
            with contextlib.suppress(ConnectionError):  # it may have been idle for that long before
                client.request(MetadataRequest(topics=[]), 12)
            client.wait_closed()
        wait_until(partial(served, own), "others are served")


@pytest.mark.usefixtures("processes")
def test_closed_connections_have_a_hundred_lines_in_ten_seconds(tmp_path):
    with EmbeddedBroker(tmp_path / "data") as own:
        for _ in range(130):
            with RawClient(own.port) as client:
                client.sock.sendall(framed(b"\0\3\0"))
                client.wait_closed()
        wait_until(
            lambda: "more connections were closed for what their peers sent" in own.log_text, "a count"
        )
        assert 100 <= own.log_text.count("truncated request header: 3 bytes") < 130
