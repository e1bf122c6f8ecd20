"""Topic creation rules (KIP-158): which group a topic belongs to, and what the broker then has."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType
from hypothesis import given
from hypothesis import strategies as st
from support.broker import new_name
from support.connect_worker import STRING, WorkerProcess, wait_for, worker_properties

from klamm.connect.child.topic_creator import TopicCreator
from klamm.connect.validation.topic_creation import group_keys, group_names, rules
from klamm_base.errors import ConfigError

DEFAULT = {"topic.creation.default.partitions": "3", "topic.creation.default.replication.factor": "1"}
GROUPS = DEFAULT | {
    "topic.creation.groups": "compacted, logs",
    "topic.creation.compacted.include": "db\\..*,table-.*",
    "topic.creation.compacted.exclude": ".*-raw",
    "topic.creation.compacted.cleanup.policy": "compact",
    "topic.creation.logs.include": "log-.*|db\\..*",
    "topic.creation.logs.partitions": "7",
    "topic.creation.logs.retention.ms": "1000",
}


@pytest.mark.parametrize(
    ("topic", "group"),
    [
        ("db.users", "compacted"),
        ("table-1", "compacted"),
        ("db.users-raw", "logs"),
        ("log-x", "logs"),
        ("my-log-x", "default"),
        ("table-raw", "default"),
        ("other", "default"),
    ],
)
def test_the_first_group_that_matches_the_whole_name_is_taken(topic: str, group: str) -> None:
    found = rules(GROUPS)
    assert found is not None
    assert found.group_of(topic).name == group


def test_groups_have_the_defaults_numbers_and_their_own_configs() -> None:
    found = rules(GROUPS)
    assert found is not None
    compacted, logs = found.groups
    assert (compacted.partitions, compacted.replication_factor) == (3, 1)
    assert compacted.configs == {"cleanup.policy": "compact"}
    assert (logs.partitions, logs.configs) == (7, {"retention.ms": "1000"})
    assert found.default.configs == {}


def test_without_any_of_the_keys_there_are_no_rules() -> None:
    assert rules({"topic": "t"}) is None
    assert group_keys({"topic": "t"}).names == []


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ({"topic.creation.groups": "a"}, "topic.creation.default.replication.factor"),
        (DEFAULT | {"topic.creation.default.partitions": "0"}, "Number of partitions must be positive"),
        (
            DEFAULT | {"topic.creation.default.replication.factor": "-2"},
            "Replication factor must be positive",
        ),
        (GROUPS | {"topic.creation.logs.include": "("}, "Syntax error in regular expression"),
    ],
)
def test_rules_that_cannot_be_used_are_refused(config: dict[str, str], why: str) -> None:
    with pytest.raises(ConfigError, match=why.replace(".", r"\.")):
        rules(config)


@given(st.lists(st.sampled_from(["a", "b", "default", " c ", ""]), max_size=6))
def test_names_of_groups_come_once_and_in_order(names: list[str]) -> None:
    found = group_names({"topic.creation.groups": ",".join(names)})
    expected = [n.strip() for n in names if n.strip() not in {"", "default"}]
    assert found == list(dict.fromkeys(expected))


def test_a_sources_topics_are_made_by_its_rules(bootstrap: str, tmp_path: Path) -> None:
    properties = worker_properties(bootstrap, new_name("topics"))
    worker = WorkerProcess(properties, tmp_path)
    (tmp_path / "in.txt").write_text("a\n")
    topic = f"log-{new_name()}"
    try:
        worker.wait_ready()
        config = {
            "connector.class": "FileStreamSource",
            "file": str(tmp_path / "in.txt"),
            "topic": topic,
            "value.converter": STRING,
            **GROUPS,
        }
        assert worker.request("POST", "/connectors", {"name": "made", "config": config}).status == 201
        admin = AdminClient({"bootstrap.servers": bootstrap})
        wait_for(lambda: topic in admin.list_topics(timeout=60).topics, lambda: worker.log[-3000:])
        assert len(admin.list_topics(timeout=60).topics[topic].partitions) == 7
        resource = ConfigResource(ResourceType.TOPIC, topic)
        assert admin.describe_configs([resource])[resource].result(60)["retention.ms"].value == "1000"

        bad = config | {"topic": f"log-{new_name()}", "topic.creation.logs.retention.ms": "soon"}
        assert worker.request("POST", "/connectors", {"name": "bad", "config": bad}).status == 201
        worker.wait_state("bad", "RUNNING", "FAILED")
        trace = worker.get("/connectors/bad/status")["tasks"][0]["trace"]
        assert "Task failed to create new topic" in trace
        assert "topic creation group logs" in trace
    finally:
        worker.end()


def test_topics_that_are_there_are_asked_for_together() -> None:
    """A source may write to thousands: a look at the cluster for each would be a burden to it."""
    asked = []

    class Admin:
        def list_topics(self, timeout: float) -> SimpleNamespace:
            asked.append(timeout)
            return SimpleNamespace(topics=dict.fromkeys("abc"))

    found = rules(
        {"topic.creation.default.partitions": "1", "topic.creation.default.replication.factor": "1"}
    )
    assert found is not None
    ensure = TopicCreator(found, Admin(), lambda: pytest.fail("there is nothing to wait for"))  # type: ignore[arg-type]
    for topic in "abcab":
        ensure(topic)
    assert len(asked) == 1
