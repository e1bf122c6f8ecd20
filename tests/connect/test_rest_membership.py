"""Who owns a group: decided by its leader, and never two at a time."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest
from support.connect_worker import WorkerProcess, wait_for, worker_properties

from klamm.connect.membership import Member, choose_owner


def member(name: str, *, running: bool = False) -> Member:
    return Member(id=name, worker_id=f"{name}:1", url=f"http://{name}:1", running=running)


@pytest.mark.parametrize(
    ("members", "leader", "owner"),
    [
        ([member("a")], member("a"), "a"),
        ([member("a"), member("b")], member("b"), "b"),
        ([member("a", running=True), member("b")], member("b"), "a"),
        ([member("a", running=True), member("b", running=True)], member("b", running=True), "b"),
    ],
)
def test_rest_membership_owner(members: list[Member], leader: Member, owner: str) -> None:
    assert choose_owner(members, leader).id == owner


def test_rest_membership_metadata_crosses_the_wire() -> None:
    assert Member.decode(member("ü", running=True).encode()) == member("ü", running=True)


def test_rest_membership_of_two_that_start_at_once_goes_to_one(bootstrap: str, tmp_path: Path) -> None:
    properties = worker_properties(
        bootstrap, f"twins-{uuid.uuid4().hex[:8]}", **{"heartbeat.interval.ms": "200"}
    )
    twins = [WorkerProcess(properties, tmp_path) for _ in range(2)]
    try:
        wait_for(lambda: any(t.process.poll() is not None for t in twins), lambda: [t.log for t in twins])
        (loser,) = [t for t in twins if t.process.poll() is not None]
        (winner,) = [t for t in twins if t is not loser]
        assert loser.process.returncode == 1
        winner.wait_ready()
        assert f"worker 127.0.0.1:{winner.port} already runs in group" in loser.log
        assert winner.stop() == 0, winner.log
    finally:
        for twin in twins:
            twin.end()
