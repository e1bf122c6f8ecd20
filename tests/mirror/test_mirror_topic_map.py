"""`topic.map`: names at the target that the file gives, for records, groups and everything else that derives names."""

from __future__ import annotations

import json

import pytest
from confluent_kafka import Consumer, TopicPartition
from support.broker import new_name, new_topic, wait_until
from support.klamm import Server, klamm
from support.mirror import committed, mirror_file, produce, read_all, read_as, topics
from support.mirroring import Running, props

from klamm_base.errors import ConfigError
from klamm_mirror.provenance.loops import Route, refuse_loops
from klamm_mirror.settings.filters import topic_filter
from klamm_mirror.settings.policy import DefaultReplicationPolicy
from klamm_mirror.settings.topic_map import check_named_once, parse_map
from klamm_mirror.source.config import config_def


def named(*rules: str) -> DefaultReplicationPolicy:
    policy = DefaultReplicationPolicy(source_alias="A")
    policy.topic_map = parse_map(rules)
    return policy


def test_the_first_pattern_that_matches_the_whole_name_decides():
    policy = named("orders=sales.orders", "(.*)_raw=raw.$1", "(a+)(b+)=$2-$1", "orders.*=others")
    names = {t: policy.remote_topic(t) for t in ("orders", "x_raw", "aabbb", "orders2", "else", "heartbeats")}
    assert names == {
        "orders": "sales.orders", "x_raw": "raw.x", "aabbb": "bbb-aa", "orders2": "others", "else": "A.else",
        "heartbeats": "A.heartbeats",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ("orders", "Must be PATTERN=NAME"), ("=x", "Must be PATTERN=NAME"), ("x=", "Must be PATTERN=NAME"),
        ("(=x", "regular expression"), ("a=$1", "has no group 1"), ("(a)=$2", "has no group 2"),
        ("a=b c", "must be the name of a topic"), ("a=../x", "must be the name of a topic"),
    ],
)  # fmt: skip
def test_a_rule_that_cannot_be_used_is_named(rule, said):
    with pytest.raises(ConfigError, match=r"topic\.map") as found:
        parse_map([rule])
    assert said in str(found.value)


def test_a_name_that_no_topic_can_have_is_refused_with_its_source():
    with pytest.raises(ConfigError, match="x would become '', which is no name"):
        named("(y)?x=$1").remote_topic("x")


def route(source: str, target: str, **more: str) -> Route:
    given = {"source.cluster.alias": source, "target.cluster.alias": target, **more}
    for side in ("source", "target"):
        given[f"{side}.cluster.bootstrap.servers"] = "a:1"
    return Route.of(config_def().parse(given))


def test_flows_in_a_circle_need_marks_when_one_gives_other_names():
    there, back = {"topic.map": "orders=sales"}, {"topic.map": "sales=orders"}
    refuse_loops([route("A", "B", **there), route("B", "A", **back)])  # marks are the default
    refuse_loops([route("A", "B", **there, **{"mirror.provenance": "false"})])
    with pytest.raises(ConfigError, match=r"A->B gives topics other names .*Set mirror\.provenance=true"):
        refuse_loops([route("A", "B", **there, **{"mirror.provenance": "false"}), route("B", "A", **back)])


@pytest.mark.parametrize(
    ("topics", "rules", "said"),
    [
        (".*", ["t1=zz", "t2=zz"], "t1 and t2 would both be copied to zz"),
        ("a,b", [".*=zz"], "a and b would both be copied to zz"),
        ("t1", ["t1=zz", "t2=zz"], None),
        (".*", ["t1=zz", "t2=zz", ".*=x"], "t1 and t2"),
        (".*", ["t.*=zz", "t2=yy"], None),
    ],
)
def test_names_that_are_given_twice_are_known_from_the_file(topics, rules, said):
    wants = topic_filter({"topics": topics.split(","), "topics.exclude": []}).wants
    parsed = {"topics": topics.split(","), "topic.map": rules}
    if said is None:
        check_named_once(parsed, wants)
    else:
        with pytest.raises(ConfigError, match=said):
            check_named_once(parsed, wants)


def test_two_topics_that_would_become_one_are_refused_with_their_names(source, target):
    prefix = new_name("twice")
    for name in ("a", "b"):
        new_topic(source, name=f"{prefix}-{name}")
    mirror = Running(
        props(source.bootstrap, target.bootstrap, topics=f"{prefix}.*", topic__map=f"{prefix}-.*={prefix}")
    )
    with pytest.raises(ConfigError, match=f"{prefix}-a and {prefix}-b to {prefix}"):
        mirror.start()
    mirror.stop()


def test_records_groups_plan_and_verify_know_the_names_and_nothing_goes_in_circles(source, target, tmp_path):
    a, b, group, topic, given = (new_name(p) for p in ("a", "b", "group", "orders", "sales"))
    new_topic(source, name=topic)
    produce(source.bootstrap, topic, [f"v{i}" for i in range(500)])
    read_as(source.bootstrap, group, topic, lambda values: len(values) >= 500)
    flows = {
        f"{a}->{b}.enabled": "true", f"{b}->{a}.enabled": "true", "groups": group,
        f"{a}->{b}.topics": topic, f"{a}->{b}.topic.map": f"{topic}={given}",
        f"{b}->{a}.topics": given, f"{b}->{a}.topic.map": f"{given}={topic}",
        "emit.heartbeats.enabled": "false", "heartbeats.replication.enabled": "false",
    }  # fmt: skip
    path = mirror_file(tmp_path / "mm2.properties", {a: source.bootstrap, b: target.bootstrap}, flows)
    planned = json.loads(klamm("mirror", "plan", str(path), "--flow", f"{a}->{b}", "-o", "json").stdout)
    assert given in {row["name"] for row in planned if row["kind"] == "topic"}
    with Server("mirror", "start", str(path)):
        assert len(read_all(target.bootstrap, given, lambda values: len(values) >= 500)) == 500
        wait_until(
            lambda: committed(target.bootstrap, group, given) == 500, "the group's offset at the target"
        )
        produce(target.bootstrap, given, ["from-b"])
        read_all(source.bootstrap, topic, lambda values: len(values) >= 501)
        shown = klamm("mirror", "offsets", "list", str(path), f"{b}->{a}", "-o", "json")
        [row] = json.loads(shown.stdout)
        wait_until(
            lambda: len(read_all(source.bootstrap, topic, lambda values: len(values) >= 501)) == 501,
            "no more",
        )
    assert len(read_all(target.bootstrap, given, lambda values: len(values) >= 501)) == 501
    assert f"{a}.{topic}" not in topics(target.bootstrap)
    assert row["topic"] == given


def test_groups_of_mapped_topics_are_translated_back(source, target, tmp_path):
    a, b, group, topic, given = (new_name(p) for p in ("a", "b", "group", "orders", "sales"))
    new_topic(source, name=topic)
    produce(source.bootstrap, topic, [f"v{i}" for i in range(500)])
    flows = {
        f"{a}->{b}.enabled": "true", f"{b}->{a}.enabled": "true", "groups": group, f"{a}->{b}.topics": topic,
        f"{a}->{b}.topic.map": f"{topic}={given}", f"{b}->{a}.topics": topic,
        "emit.heartbeats.enabled": "false", "heartbeats.replication.enabled": "false",
    }  # fmt: skip
    path = mirror_file(tmp_path / "mm2.properties", {a: source.bootstrap, b: target.bootstrap}, flows)
    with Server("mirror", "start", str(path)):
        read_all(target.bootstrap, given, lambda values: len(values) >= 500)
        read_as(target.bootstrap, group, given, lambda values: len(values) >= 200)
        at = committed(target.bootstrap, group, given)
        wait_until(
            lambda: committed(source.bootstrap, group, topic) == at, "the group's offset at the source"
        )


def test_groups_of_topics_that_are_mapped_both_ways_skip_nothing(source, target, tmp_path):
    a, b, group, topic, given = (new_name(p) for p in ("a", "b", "group", "orders", "sales"))
    new_topic(source, name=topic)
    new_topic(target, name=given)
    produce(source.bootstrap, topic, [f"a{i}" for i in range(100)])
    produce(target.bootstrap, given, [f"b{i}" for i in range(100)])
    flows = {
        f"{a}->{b}.enabled": "true", f"{b}->{a}.enabled": "true", "groups": group,
        f"{a}->{b}.topics": topic, f"{a}->{b}.topic.map": f"{topic}={given}",
        f"{b}->{a}.topics": given, f"{b}->{a}.topic.map": f"{given}={topic}",
        "emit.heartbeats.enabled": "false", "heartbeats.replication.enabled": "false",
    }  # fmt: skip
    path = mirror_file(tmp_path / "mm2.properties", {a: source.bootstrap, b: target.bootstrap}, flows)
    with Server("mirror", "start", str(path)):
        at_a = read_all(source.bootstrap, topic, lambda values: len(values) >= 200)
        at_b = read_all(target.bootstrap, given, lambda values: len(values) >= 200)
        consumer = Consumer({"bootstrap.servers": target.bootstrap, "group.id": group})
        consumer.commit(offsets=[TopicPartition(given, 0, 150)], asynchronous=False)
        consumer.close()
        assert at_b[150] == "a50"  # its own records come first, as at A
        assert at_a[50] == "a50"
        wait_until(
            lambda: committed(source.bootstrap, group, topic) == 50, "the first record that it has not read"
        )
