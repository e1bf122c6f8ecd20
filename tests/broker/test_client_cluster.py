"""The asyncio client against a real broker, and against peers that misbehave."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from contextlib import contextmanager

import pytest
from support.broker import new_name, new_topic

from klamm_base.errors import ConfigError
from klamm_kafka.client import (
    Address,
    BrokerError,
    Cluster,
    Connection,
    ConnectionLost,
    RequestTimedOut,
    UnsupportedApi,
    parse_bootstrap,
)
from klamm_kafka.wire.messages.api_versions import ApiVersionsRequest
from klamm_kafka.wire.messages.describe_cluster import DescribeClusterRequest
from klamm_kafka.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from klamm_kafka.wire.messages.metadata import MetadataRequest
from klamm_kafka.wire.messages.sasl_handshake import SaslHandshakeRequest


async def test_negotiates_versions_and_pipelines(broker):
    async with await Connection.open("127.0.0.1", broker.port) as connection:
        assert connection.version_for(MetadataRequest) == 13
        answers = await asyncio.gather(*[connection.request(MetadataRequest(topics=[])) for _ in range(20)])
        assert all(a.brokers[0].port == broker.port for a in answers)


async def test_unknown_api_is_named(broker):
    async with await Connection.open("127.0.0.1", broker.port) as connection:
        del connection.api_versions[SaslHandshakeRequest.API_KEY]  # as an older broker
        with pytest.raises(UnsupportedApi, match="SASL_HANDSHAKE"):
            connection.version_for(SaslHandshakeRequest)


async def test_cluster_finds_leader_and_coordinator(broker):
    topic = new_topic(broker, partitions=2)
    async with Cluster(broker.bootstrap) as cluster:
        assert await cluster.leader(topic, 1) is await cluster.coordinator("some-group")
        assert (await cluster.request(DescribeClusterRequest())).controller_id == 1


async def test_missing_topic_and_partition_are_errors(broker):
    topic = new_topic(broker)
    async with Cluster(broker.bootstrap) as cluster:
        with pytest.raises(BrokerError, match="UNKNOWN_TOPIC_OR_PARTITION"):
            await cluster.leader(new_name(), 0)
        with pytest.raises(BrokerError, match="UNKNOWN_TOPIC_OR_PARTITION"):
            await cluster.leader(topic, 7)


async def test_cancelled_request_leaves_the_connection_in_order(broker):
    topic = new_topic(broker)
    parked = FetchRequest(
        max_wait_ms=300,
        min_bytes=1,
        topics=[FetchTopic(topic=topic, partitions=[FetchPartition(partition=0, partition_max_bytes=1000)])],
    )
    async with await Connection.open("127.0.0.1", broker.port) as connection:
        fetch = asyncio.create_task(connection.request(parked, 11))
        await asyncio.sleep(0)
        fetch.cancel()
        answer = await connection.request(MetadataRequest(topics=[]))
        assert answer.brokers[0].node_id == 1


async def test_refused_connection_says_where():
    with pytest.raises(ConnectionLost, match=r"127\.0\.0\.1:1"):
        await Connection.open("127.0.0.1", 1)


async def test_silent_peer_times_out():
    listening = socket.create_server(("127.0.0.1", 0))
    with listening, pytest.raises(RequestTimedOut, match="API_VERSIONS"):
        await Connection.open("127.0.0.1", listening.getsockname()[1], timeout_s=0.1)


@contextmanager
def peer(serve):
    """Yields a peer that is no broker: `serve(socket)` runs in a thread for one connection."""

    def run():
        sock, _ = listening.accept()
        with sock:
            serve(sock)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=run)
        thread.start()
        yield listening.getsockname()[1]
        thread.join()


@pytest.mark.parametrize(
    ("answer", "match"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "no broker"),
        (struct.pack(">iih", 6, 99, 0), "answer to request 99"),
        (struct.pack(">iih", 6, 1, 0), "cannot be read"),
        (b"\0\0", "closed the connection"),
    ],
)
async def test_strange_answers_end_the_connection(answer, match):
    def serve(sock):
        sock.recv(1000)
        sock.sendall(answer)

    with peer(serve) as port, pytest.raises(ConnectionLost, match=match):
        await Connection.open("127.0.0.1", port, timeout_s=60)


async def test_old_broker_answers_api_versions_in_version_0():
    asked = []

    def serve(sock):
        stream = sock.makefile("rb")
        while size := stream.read(4):
            frame = stream.read(int.from_bytes(size))
            asked.append(struct.unpack(">hh", frame[:4]))
            body = struct.pack(">hihhh", 35 if asked[-1][1] else 0, 1, 18, 0, 0)
            sock.sendall(struct.pack(">i", 4 + len(body)) + frame[4:8] + body)
        stream.close()

    with peer(serve) as port:
        async with await Connection.open("127.0.0.1", port) as connection:
            assert connection.version_for(ApiVersionsRequest) == 0
        assert asked == [(18, 3), (18, 0)]


@pytest.mark.usefixtures("processes")
async def test_cluster_reconnects_after_a_restart(tmp_path):
    from klamm.testing import EmbeddedBroker

    with EmbeddedBroker(tmp_path / "data") as own:
        async with Cluster(own.bootstrap) as cluster:
            before = (await cluster.refresh()).cluster_id
            own.stop()
            own.start()
            assert (await cluster.refresh()).cluster_id == before


def test_bootstrap_is_parsed_and_checked():
    assert parse_bootstrap("a:1, [::1]:9092") == [Address("a", 1), Address("::1", 9092)]
    for bad in ("a:1 b:2", "a", "a:b", ":9092", "a:99999", ""):
        with pytest.raises(ConfigError, match=r"bootstrap\.servers"):
            parse_bootstrap(bad)
