"""Listeners that come and go while the broker runs: what their clients are told."""

from __future__ import annotations

import asyncio
import socket
import threading

import pytest

from klamm_broker.server.broker import Broker
from klamm_broker.server.config import BrokerConfig
from klamm_broker.server.listener import Server
from klamm_kafka.client import Connection, ConnectionLost
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.messages.describe_cluster import DescribeClusterRequest
from klamm_kafka.wire.messages.find_coordinator import FindCoordinatorRequest
from klamm_kafka.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from klamm_kafka.wire.messages.metadata import MetadataRequest

TOLD = ("broker.example.org", 19092)


@pytest.fixture
async def server(tmp_path):
    config = BrokerConfig.load(
        {
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "advertised.listeners": f"PLAINTEXT://{TOLD[0]}:{TOLD[1]}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,LATE:PLAINTEXT",
            "log.dirs": str(tmp_path / "data"),
        }
    )
    loop = asyncio.get_running_loop()
    broker = Broker(config, loop)
    server = Server(broker, loop)
    ports = {listener.name: listener.port for listener in server.bind()}
    broker.open()
    server.serve()
    yield server, ports["PLAINTEXT"]
    server.quiesce()
    await server.drain(1)
    await broker.close()


async def change(port: int, listeners: str | None) -> None:
    await set_value(port, "listeners", listeners)


async def set_value(port: int, name: str, value: str | None) -> None:
    config = AlterableConfig(name=name, config_operation=0 if value else 1, value=value)
    resource = AlterConfigsResource(resource_type=4, resource_name="1", configs=[config])
    async with await Connection.open("127.0.0.1", port) as admin:
        (answer,) = (await admin.request(IncrementalAlterConfigsRequest(resources=[resource]))).responses
    assert answer.error_code == 0, answer.error_message


async def refused(port: int, listeners: str) -> str:
    """Returns the words with which these listeners are refused."""
    config = AlterableConfig(name="listeners", config_operation=0, value=listeners)
    resource = AlterConfigsResource(resource_type=4, resource_name="1", configs=[config])
    async with await Connection.open("127.0.0.1", port) as admin:
        (answer,) = (await admin.request(IncrementalAlterConfigsRequest(resources=[resource]))).responses
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    return answer.error_message or ""


async def told(connection: Connection) -> set[tuple[str, int]]:
    """Returns all addresses in the answers that have any."""
    brokers = (await connection.request(MetadataRequest(topics=[]))).brokers
    coordinators = (
        await connection.request(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]))
    ).coordinators
    nodes = (await connection.request(DescribeClusterRequest())).brokers
    return {(each.host, each.port) for each in (*brokers, *coordinators, *nodes)}


async def asked_for_ever(client: Connection) -> None:
    while True:
        await client.request(MetadataRequest(topics=[]))


async def test_a_new_listener_tells_its_own_address_where_no_other_is_advertised(server):
    _, port = server
    await change(port, f"PLAINTEXT://127.0.0.1:{port},LATE://127.0.0.1:0")
    late = server[0].broker.listeners["LATE"].port
    async with await Connection.open("127.0.0.1", late) as client:
        assert await told(client) == {("127.0.0.1", late)}
    async with await Connection.open("127.0.0.1", port) as client:
        assert await told(client) == {TOLD}


async def test_clients_of_a_listener_that_is_removed_are_answered_until_their_connections_end(server, caplog):
    server, port = server
    await change(port, f"PLAINTEXT://127.0.0.1:{port},LATE://127.0.0.1:0")
    late = server.broker.listeners["LATE"].port
    async with await Connection.open("127.0.0.1", late) as client:
        await change(port, f"PLAINTEXT://127.0.0.1:{port}")
        assert await told(client) == {("127.0.0.1", late)}
        with pytest.raises(ConnectionLost):
            await asked_for_ever(client)
    assert "Traceback" not in caplog.text


@pytest.fixture
def taken():
    """Yields a port that something else uses, on the second address of every machine only."""
    if not socket.has_ipv6:
        pytest.skip("this machine has no IPv6")
    with socket.socket(socket.AF_INET6) as other:
        other.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        try:
            other.bind(("::", 0))
        except OSError:
            pytest.skip("this machine has no IPv6")
        other.listen()
        yield other.getsockname()[1]


async def test_a_port_that_is_in_use_on_any_address_of_a_new_listener_is_refused(server, taken):
    server, port = server
    why = await refused(port, f"PLAINTEXT://127.0.0.1:{port},LATE://:{taken}")
    assert f"port {taken} is in use" in why
    assert "LATE" not in server.broker.listeners


async def test_a_listener_that_cannot_be_opened_holds_none_of_its_addresses(server, taken):
    server, _ = server
    props = {"listeners": f"LATE://:{taken}", "listener.security.protocol.map": "LATE:PLAINTEXT"}
    (late,) = BrokerConfig.load(props).listeners
    server._open(late)
    with socket.socket() as free:
        free.bind(("0.0.0.0", taken))
    assert late not in [listener for _, listener in server._sockets]


async def test_the_name_of_the_machine_is_asked_for_once(server, monkeypatch):
    server, port = server
    asked = []
    monkeypatch.setattr(socket, "getfqdn", lambda: asked.append(1) or "this.example.org")
    for rate in ("1000", "2000", "3000"):
        await change(port, f"PLAINTEXT://127.0.0.1:{port},LATE://:0")
        assert server.broker.listeners["LATE"].host == "this.example.org"
        await set_value(port, "max.connections", rate)
    assert len(asked) == 1, "a name server may take seconds, and all clients wait"


async def test_names_of_hosts_are_asked_for_beside_the_event_loop(server, monkeypatch):
    server, port = server
    asked, real = [], socket.getaddrinfo

    def getaddrinfo(host, *more, **options):
        if host not in ("one.example.org", "two.example.org"):
            return real(host, *more, **options)
        asked.append((host, threading.current_thread() is threading.main_thread()))
        return real("127.0.0.1", *more, **options)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    await change(port, f"PLAINTEXT://127.0.0.1:{port},LATE://one.example.org:0")
    assert "LATE" in server.broker.listeners
    await set_value(port, "max.connections.per.ip.overrides", "two.example.org:7")
    assert server.doors.quotas.limits.per_ip_overrides == {"127.0.0.1": 7}
    assert asked == [("one.example.org", False), ("two.example.org", False)], "each once, never by the loop"
