"""The owner of a flow: its leader decides, and two never own it at a time."""

from __future__ import annotations

import pytest

from klamm.mirror.owner import Member, choose_owner


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
def test_mirror_owner_owner(members: list[Member], leader: Member, owner: str) -> None:
    assert choose_owner(members, leader).id == owner


def test_mirror_owner_metadata_crosses_the_wire() -> None:
    assert Member.decode(member("ü", running=True).encode()) == member("ü", running=True)
