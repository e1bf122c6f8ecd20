"""Names and addresses that cannot work are told in a sentence: of brokers, and of workers that others cannot reach."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from types import SimpleNamespace

import pytest
from support.connect_worker import worker_properties
from support.hand_children import make
from support.hand_group import HandGroup
from support.runtime import wait_for

from klamm.connect.children.channel import ChannelError
from klamm.connect.children.launcher import Child
from klamm.connect.config import WorkerConfig
from klamm.connect.errors import Conflict
from klamm.connect.herding.addresses import shared, unreachable, unresolved
from klamm.connect.herding.assignment import Assignment
from klamm.connect.worker import Worker
from klamm.web.listeners import is_loopback

URL = "http://127.0.0.1:8083/"


@pytest.mark.parametrize(
    ("host", "loopback"),
    [("localhost", True), ("127.0.0.9", True), ("::1", True), ("[::1]", True), ("db1", False), ("10.0.0.1", False)],
)  # fmt: skip
def test_herd_loopback_is_what_only_this_machine_means_itself_by(host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback


def test_herd_a_worker_on_loopback_whose_broker_is_elsewhere_says_what_to_set() -> None:
    why = unreachable(URL, ["127.0.0.1:9092", "kafka1:9092"])
    assert why is not None
    assert "rest.advertised.host.name" in why
    assert "listeners" in why
    assert unreachable(URL, ["localhost:9092", "[::1]:9092"]) is None
    assert unreachable("http://w1:8083/", ["kafka1:9092"]) is None


def test_herd_members_with_one_url_are_named() -> None:
    why = shared(URL, "g", {"m1": URL, "m2": "http://w2:8083/", "m3": URL})
    assert why is not None
    assert why.startswith(f"2 members of group g advertise the same address {URL}: m1, m3.")
    assert shared(URL, "g", {"m1": URL, "m2": "http://w2:8083/"}) is None


async def test_herd_a_broker_name_without_an_address_is_told_and_the_worker_goes_on_trying(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert await unresolved(["127.0.0.1:1", "[::1]:2"]) == []
    worker = Worker(WorkerConfig.from_properties(worker_properties("nohost.invalid:9092", "unresolved")))
    starting = asyncio.create_task(worker.start())
    try:
        async with asyncio.timeout(60):
            while "cannot be resolved" not in caplog.text:
                await asyncio.sleep(0.05)
                assert not starting.done()
        assert "bootstrap.servers=nohost.invalid:9092: the host name nohost.invalid cannot be" in caplog.text
    finally:
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        await worker.stop()


class Twins(HandGroup):
    asked = 0

    async def members(self) -> Mapping[str, str]:
        self.asked += 1
        return {"m1": self.leader_url, "m2": self.leader_url}


async def test_herd_a_follower_with_the_leaders_url_says_so(
    bootstrap: str, caplog: pytest.LogCaptureFixture
) -> None:
    runtime, _ = make(bootstrap)
    group = runtime.cluster.group = Twins()
    group.is_leader, runtime.cluster.url = False, group.leader_url
    await runtime.start()
    try:
        for generation in (5, 6):
            runtime.assign(Assignment(), generation)
            await wait_for(lambda n=generation - 4: group.asked >= n, lambda: caplog.text)
        with pytest.raises(
            Conflict, match=r"both advertise the address .* set listeners .*rest\.advertised\.host\.name"
        ):
            await runtime.cluster.require_leader()
    finally:
        await runtime.stop()
    said = [r.getMessage() for r in caplog.records if "advertise the same address" in r.getMessage()]
    assert len(said) == 1, "once, not at every rebalance"
    assert "m1, m2" in said[0]


@pytest.mark.parametrize(
    "reason", [ConnectionResetError(104, "Connection reset by peer"), ChannelError("nonsense")]
)
async def test_herd_a_process_that_was_killed_is_no_error_in_the_log(
    reason: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    killed: list[int] = []
    with caplog.at_level(logging.INFO):
        Child(7, "c-0", SimpleNamespace(kill=killed.append)).on_closed(reason)
    assert killed == [7]
    assert ("bad control message" in caplog.text) is isinstance(reason, ChannelError)
