"""A request for a leader whose machine is gone: nobody refuses the connection, and the next leader gets the request."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from support.connect_worker import free_port
from support.hand_children import make
from support.hand_group import HandGroup
from support.runtime import NO_BROKER

from klamm.connect.errors import NotTheLeader
from klamm.connect.rest.forwarding import forwarding
from klamm.connect.rest.keys import SERVICE
from klamm.connect.service.connectors import ConnectService


@pytest.fixture
def silent() -> Iterator[str]:
    """Yields the address of a host that answers nothing: its queue of connections is full, so the kernel drops what comes."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as server:
        address = server.getsockname()
        filling = [socket.socket() for _ in range(4)]
        for each in filling:
            each.setblocking(False)
            each.connect_ex(address)
        try:
            yield f"http://127.0.0.1:{address[1]}"
        finally:
            for each in filling:
                each.close()


SHORT = {"session.timeout.ms": "800", "heartbeat.interval.ms": "200"}


async def test_herd_a_group_that_meets_late_without_its_leader_is_waited_for() -> None:
    """Its members are told by their heartbeats that the leader's session has ended, and machines may be busy."""
    runtime, _ = make(NO_BROKER, **SHORT)
    group = runtime.cluster.group = HandGroup()
    group.is_leader, group.leader_url = False, f"http://127.0.0.1:{free_port()}"  # nobody listens

    async def create(request: web.Request) -> web.Response:
        if not group.is_leader:
            raise NotTheLeader("Only the leader of the group can do this", group.leader_url)
        return web.json_response({"made": True}, status=201)

    app = web.Application(middlewares=[forwarding])
    app[SERVICE] = ConnectService(runtime)
    app.router.add_post("/connectors", create)
    async with TestClient(TestServer(app)) as client:
        asking = asyncio.ensure_future(client.post("/connectors", data=b'{"name": "a"}'))
        await asyncio.sleep(1.5)  # longer than the session and a heartbeat, which say when a member is gone
        group.is_leader = True
        answer = await asking
        assert (answer.status, await answer.json()) == (201, {"made": True})
    await runtime.cluster.close()
    await runtime.producer.close()


async def test_herd_a_leader_whose_machine_is_gone_is_waited_out(silent: str) -> None:
    runtime, _ = make(NO_BROKER, **SHORT)
    group = runtime.cluster.group = HandGroup()
    group.is_leader, group.leader_url = False, silent
    asked: list[bytes] = []

    async def create(request: web.Request) -> web.Response:
        asked.append(await request.read())
        if len(asked) == 1:
            raise NotTheLeader("Only the leader of the group can do this", silent)
        return web.json_response({"made": True}, status=201)

    app = web.Application(middlewares=[forwarding])
    app[SERVICE] = ConnectService(runtime)
    app.router.add_post("/connectors", create)
    async with TestClient(TestServer(app)) as client:
        # By the time that the connection is given up the group has met: this worker leads.
        group.is_leader = True
        async with asyncio.timeout(60):  # without a limit to the connection it takes 90 s, and fails
            answer = await client.post("/connectors", data=b'{"name": "a"}')
        assert (answer.status, await answer.json()) == (201, {"made": True})
    assert asked == [b'{"name": "a"}'] * 2
    await runtime.cluster.close()
    await runtime.producer.close()
