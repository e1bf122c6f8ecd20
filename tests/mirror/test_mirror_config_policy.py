"""Settings that differ at the target are overwritten, kept until they change at the source, or only named."""

from __future__ import annotations

import pytest
from confluent_kafka.admin import AdminClient
from support.broker import new_topic, wait_until
from support.mirroring import Running, change, props, setting

from klamm_mirror.topics.config_policy import ConfigPolicy
from klamm_mirror.topics.topic_plan import plan_configs

NAMES = {"t": "A.t"}


def look(policy: ConfigPolicy, ours: dict[str, str | None], theirs: dict[str, str | None]) -> list[str]:
    """Returns the settings that a look changes; they are changed then."""
    mine = {"t": ours}
    chosen = policy.chosen(mine, NAMES, plan_configs(mine, {"A.t": theirs}, NAMES))
    for each in chosen:
        theirs[each.name] = each.new
    policy.carried_out()
    return [each.name for each in chosen]


def test_overwritten_settings_are_those_of_the_source():
    policy, theirs = ConfigPolicy("overwrite"), {"a": "1"}
    assert look(policy, {"a": "2"}, theirs) == ["a"]
    assert theirs == {"a": "2"}


def test_kept_settings_follow_later_changes_of_the_source_alone(caplog):
    policy, theirs = ConfigPolicy("keep"), {"a": "1", "b": "5"}
    assert look(policy, {"a": "2", "b": "5"}, theirs) == []
    assert "A.t: a is 1 at the target and 2 at the source" in caplog.text
    theirs["b"] = "6"
    assert look(policy, {"a": "2", "b": "5"}, theirs) == []
    assert look(policy, {"a": "3", "b": "5"}, theirs) == ["a"]
    assert theirs == {"a": "3", "b": "6"}
    caplog.clear()
    assert look(policy, {"a": "3", "b": "5"}, theirs) == []
    assert not caplog.records  # a difference is named once


def test_a_change_that_failed_is_tried_again():
    policy, mine = ConfigPolicy("keep"), {"t": {"a": "1"}}
    look(policy, {"a": "1"}, {"a": "1"})
    mine = {"t": {"a": "2"}}
    for _ in range(2):  # it was not carried out
        assert len(policy.chosen(mine, NAMES, plan_configs(mine, {"A.t": {"a": "1"}}, NAMES))) == 1


def test_settings_that_are_only_warned_of_stay():
    policy, theirs = ConfigPolicy("warn"), {"a": "1"}
    assert look(policy, {"a": "2"}, theirs) == look(policy, {"a": "3"}, theirs) == []


@pytest.mark.usefixtures("processes")
def test_a_setting_changed_at_the_target_stays_until_the_source_changes_it(source, target):
    topic = new_topic(source, 1, {"retention.ms": "1000000"})
    config = props(
        source.bootstrap, target.bootstrap, topics=topic, sync__topic__configs__interval__seconds="1",
        sync__topic__configs__policy="keep",
    )  # fmt: skip
    here, there = (AdminClient({"bootstrap.servers": c.bootstrap}) for c in (source, target))
    with Running(config):
        wait_until(lambda: setting(there, f"A.{topic}", "retention.ms") == "1000000", "the copy")
        change(there, f"A.{topic}", "retention.ms", "7000000")
        change(here, topic, "segment.ms", "3000000")
        wait_until(lambda: setting(there, f"A.{topic}", "segment.ms") == "3000000", "another setting")
        assert setting(there, f"A.{topic}", "retention.ms") == "7000000"
        change(here, topic, "retention.ms", "2000000")
        wait_until(lambda: setting(there, f"A.{topic}", "retention.ms") == "2000000", "the source's change")
