"""Kinds of groups, pure: which is which, what is left out and said once, and what an undo of a share group may forget."""

from __future__ import annotations

import logging

import pytest

from klamm.cli.mirror_move_words import step_line
from klamm_kafka.client import broker_error
from klamm_kafka.wire.errors import ErrorCode
from klamm_mirror.checkpoint.groups import Group, Kind, kind_of
from klamm_mirror.checkpoint.left_out import LeftOut
from klamm_mirror.checkpoint.share_groups import SHARE_MARK, NoShareGroups
from klamm_mirror.move.group_offsets import Verdict, bar, in_whole_topics
from klamm_mirror.topics.formats import Checkpoint


def test_a_checkpoint_knows_the_kind_of_its_group_over_a_restart():
    share = Checkpoint("g", "t", 0, 5, 4, SHARE_MARK)
    assert kind_of(Checkpoint.decode(*share.encode())) is Kind.SHARE
    assert kind_of(Checkpoint("g", "t", 0, 5, 4, "of a consumer")) is Kind.CONSUMER


@pytest.mark.parametrize(
    ("kind", "listed", "verdict"),
    [
        (Kind.SHARE, None, None),
        (Kind.SHARE, Group(Kind.SHARE, "Empty"), None),
        (Kind.SHARE, Group(Kind.SHARE, "Stable"), Verdict.ACTIVE),
        (Kind.SHARE, Group(Kind.CONSUMER, "Empty"), Verdict.TAKEN),
        (Kind.CONSUMER, Group(Kind.SHARE, "Stable"), Verdict.TAKEN),
        (Kind.CONSUMER, Group(Kind.CONSUMER, "Dead"), None),
    ],
)
def test_a_group_is_set_where_its_name_is_free_or_idle(kind, listed, verdict):
    assert bar(kind, listed) is verdict


def test_a_group_is_left_out_by_itself_and_said_once(caplog):
    left_out = LeftOut()
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            with left_out.unless_refused("g", "at the target"):
                raise NoShareGroups("the cluster does not know share groups")
    assert caplog.text.count("group g is left out at the target") == 1
    with left_out.unless_refused("h", "at the source"):
        raise broker_error(ErrorCode.GROUP_AUTHORIZATION_FAILED, "offsets of group h")
    assert left_out.told() == {
        "g": "left out at the target: the cluster does not know share groups",
        "h": "left out at the source: offsets of group h: GROUP_AUTHORIZATION_FAILED (30)",
    }
    with pytest.raises(Exception, match="NOT_COORDINATOR"), left_out.unless_refused("h", "at the source"):
        raise broker_error(ErrorCode.NOT_COORDINATOR, "offsets of group h")
    with left_out.unless_refused("g", "at the target"):
        pass
    assert list(left_out.told()) == ["h"]
    left_out.keep(["g"])
    assert left_out.told() == {}


def test_an_undo_forgets_no_start_offset_that_was_there_before():
    there = [("t", 0), ("t", 1), ("u", 0)]
    assert in_whole_topics([("t", 0), ("u", 0)], there) == [("u", 0)]
    assert in_whole_topics([("t", 0), ("t", 1)], there) == [("t", 0), ("t", 1)]


def test_records_that_come_again_are_counted_by_group():
    def place(group: str, again: int | None, verdict: str = "set") -> dict[str, object]:
        return {"group": group, "kind": "share", "again": again, "exact": True, "verdict": verdict}

    places = [
        place("g", 3),
        place("g", 4),
        place("h", None),
        place("i", 9, "unserved"),
        place("k", 0, "unread"),
    ]
    said = step_line("groups", {"places": places})
    assert "share group g gets up to 7 records again" in said
    assert "share group h gets what it acknowledged behind its start offsets again" in said
    assert "share group i" not in said
    assert "1 of share groups, which the target does not know" in said
    assert "1 of share groups without a start offset yet" in said
