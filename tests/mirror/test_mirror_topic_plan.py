"""Topics at the target: what is created, extended and configured follows from both sides, without asking anybody."""

from __future__ import annotations

import pytest

from klamm_base.errors import ConfigError
from klamm_mirror.topics.topic_plan import (
    ConfigChange,
    MorePartitions,
    Origin,
    Setting,
    TopicPlan,
    plan_configs,
    plan_partitions,
    remote_names,
    target_configs,
)

NAMES = {"orders": "A.orders", "users": "A.users", "logs": "A.logs"}


def test_missing_topics_and_missing_partitions():
    missing, grow = plan_partitions({"orders": 3, "users": 2, "logs": 1}, {"A.orders": 1, "A.logs": 4}, NAMES)
    assert missing == {"users": 2}
    assert grow == (MorePartitions(name="A.orders", source="orders", present=1, wanted=3),)


def test_settings_are_set_changed_and_put_back():
    ours = {
        "orders": {"retention.ms": "1", "cleanup.policy": "compact", "segment.ms": None},
        "users": {"a": "1"},
        "logs": {},
    }
    theirs = {
        "A.orders": {"retention.ms": "2", "segment.ms": "9", "only.here": "1", "cleanup.policy": "compact"},
        "A.logs": {},
    }
    assert plan_configs(ours, theirs, NAMES) == (
        ConfigChange(topic="A.orders", name="retention.ms", old="2", new="1"),
        ConfigChange(topic="A.orders", name="segment.ms", old="9", new=None),
    )


def test_two_topics_that_would_become_one_are_refused_by_name():
    with pytest.raises(ConfigError, match="a and b to one"):
        remote_names({"b": 1, "a": 1, "c": 1}, lambda topic: "one" if topic in "ab" else topic)


def test_a_plan_without_changes_is_false():
    assert not TopicPlan()
    assert TopicPlan(configure=(ConfigChange(topic="t", name="n", old=None, new="1"),))


def test_settings_go_to_the_target_by_their_origin():
    settings = [Setting(origin.name, "1", origin) for origin in Origin]
    wanted = {
        "OTHER": "1",
        "TOPIC": "1",
        "DYNAMIC_BROKER": "1",
        "DYNAMIC_DEFAULT_BROKER": "1",
        "DEFAULT": None,
    }
    assert target_configs(settings, lambda _: True, lambda _: False) == wanted
    assert target_configs(settings, lambda _: True, lambda _: True) == {**wanted, "DEFAULT": "1"}
    assert target_configs(settings, "TOPIC".__eq__, lambda _: True) == {"TOPIC": "1"}
    assert Origin(99) is Origin.OTHER
