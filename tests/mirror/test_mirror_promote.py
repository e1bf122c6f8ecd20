"""A group moves with its very offsets: a flow that keeps offsets, kills, `klamm mirror promote`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.broker import NO_RETENTION, new_name, new_topic, wait_until
from support.gaps import delete, gaps, make
from support.klamm import Server, klamm
from support.mirror import committed, mirror_file, produce, read_as, status
from support.mirror_topics import end_of, log_bytes, refusal, same_ends, state, transactions, wait_same

from klamm.testing import EmbeddedBroker
from klamm_kafka.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from klamm_mirror import promote
from klamm_mirror.topics import internal_topics

pytestmark = pytest.mark.usefixtures("processes")
KEEPS = {
    "replication.policy.class": "IdentityReplicationPolicy", "A->B.mirror.keep.offsets": "true",
    "A->B.enabled": "true", "heartbeats.replication.enabled": "false",
}  # fmt: skip


@pytest.fixture
def clusters(tmp_path: Path) -> Iterator[tuple[EmbeddedBroker, EmbeddedBroker]]:
    with (
        EmbeddedBroker(tmp_path / "a", config=NO_RETENTION) as source,
        EmbeddedBroker(tmp_path / "b", config=NO_RETENTION) as target,
    ):
        yield source, target


def test_a_group_goes_on_at_its_very_offset_after_the_copy_is_promoted(clusters, tmp_path):
    source, target = clusters
    topic, other, group = new_topic(source), new_topic(source), new_name("group")
    path = mirror_file(
        tmp_path / "mm2.properties",
        {"A": source.bootstrap, "B": target.bootstrap},
        KEEPS | {"topics": f"{topic},{other}"},
    )
    produce(source.bootstrap, topic, [f"a-{i}" for i in range(3000)])
    produce(source.bootstrap, other, ["other"])
    transactions(source.bootstrap, other, new_name("t"), [True, False]).abort_transaction(60)
    with Server("mirror", "start", str(path)) as server:
        wait_until(lambda: end_of(target.bootstrap, topic) > 0, "the first records")
        target.kill()
        target.start()
        produce(source.bootstrap, topic, [f"a-{i}" for i in range(3000, 5000)])
        wait_same(source.bootstrap, target.bootstrap, topic)
        read = read_as(source.bootstrap, group, topic, lambda values: len(values) >= 1777)
        server.process.kill()
        server.stop()
    produce(source.bootstrap, topic, ["last"])
    early = klamm("mirror", "promote", str(path), "A->B", topic)
    assert early.returncode == 1
    assert f"not copied yet: {topic} (1 record)" in early.stderr
    with Server("mirror", "start", str(path)):
        wait_same(source.bootstrap, target.bootstrap, topic)
        wait_same(source.bootstrap, target.bootstrap, other)
        same = klamm("mirror", "verify", str(path), "A->B", "--restart")
        assert same.returncode == 0, same.stdout + same.stderr
        dry = klamm("mirror", "promote", str(path), "A->B", topic, "--dry-run", "-o", "json")
        assert [row["state"] for row in json.loads(dry.stdout)] == ["would be promoted"], dry.stderr
        assert state(target.bootstrap, topic) == "mirror"
        assert refusal(target.bootstrap, topic, [(None, b"x", [], 1)]) is not None
        done = klamm("mirror", "promote", str(path), "A->B", topic)
        assert done.returncode == 0, done.stderr
        assert committed(target.bootstrap, group, topic) == committed(source.bootstrap, group, topic)
        wait_until(
            lambda: (
                {p["topic"]: p["state"] for p in status(path)["A->B"]["partitions"]}.get(topic) == "PROMOTED"
            ),
            "the status",
        )
        assert status(path)["A->B"]["state"] == "RUNNING"
        assert log_bytes(source.bootstrap, topic) == log_bytes(target.bootstrap, topic)
        produce(target.bootstrap, topic, ["own"])
        rest = read_as(target.bootstrap, group, topic, lambda values: values[-1:] == ["own"])
        assert len(read) + len(rest) == 5002
        produce(source.bootstrap, other, ["more"])
        wait_until(lambda: same_ends(source.bootstrap, target.bootstrap, other), "the other topic goes on")
    source.kill()
    away = klamm("mirror", "promote", str(path), "A->B", "--all", timeout_s=120)
    assert away.returncode == 1
    assert "--force" in away.stderr
    forced = klamm("mirror", "promote", str(path), "A->B", "--all", "--force", "-o", "json", timeout_s=120)
    assert {r["topic"]: r["state"] for r in json.loads(forced.stdout)} == {
        topic: "promoted",
        other: "promoted",
    }
    assert refusal(target.bootstrap, other, [(None, b"x", [], 1)]) is None


def test_an_ordinary_topic_at_the_target_is_left_as_it_is(clusters, tmp_path):
    source, target = clusters
    topic = new_topic(source)
    new_topic(target, name=topic)
    produce(target.bootstrap, topic, ["own"])
    produce(source.bootstrap, topic, ["a-1", "a-2"])
    path = mirror_file(
        tmp_path / "mm2.properties", {"A": source.bootstrap, "B": target.bootstrap}, KEEPS | {"topics": topic}
    )
    with Server("mirror", "start", str(path)):
        wait_until(lambda: status(path)["A->B"]["state"] == "DEGRADED", "the stop")
        assert "is no mirror topic" in status(path)["A->B"]["why"]
    assert end_of(target.bootstrap, topic) == 1
    refused = klamm("mirror", "promote", str(path), "A->B", topic)
    assert refused.returncode == 1
    assert "no mirror topic at B" in refused.stderr


def test_a_copy_of_another_topic_is_not_promoted(clusters, tmp_path):
    """Neither while the flow is stopped for it, nor while nobody has noticed it."""
    source, target = clusters
    topic = new_topic(source)
    produce(source.bootstrap, topic, [f"a-{i}" for i in range(10)])
    path = mirror_file(
        tmp_path / "mm2.properties", {"A": source.bootstrap, "B": target.bootstrap}, KEEPS | {"topics": topic}
    )
    with Server("mirror", "start", str(path)):
        wait_same(source.bootstrap, target.bootstrap, topic)
    delete(source.bootstrap, topic)
    make(source.bootstrap, topic)
    produce(source.bootstrap, topic, ["new"])
    unseen = klamm("mirror", "promote", str(path), "A->B", topic)
    assert unseen.returncode == 1
    assert "was deleted at the source and made anew" in unseen.stderr
    with Server("mirror", "start", str(path)):
        wait_until(lambda: gaps(target.bootstrap, topic), "the stop")
        stopped = klamm("mirror", "promote", str(path), "A->B", topic)
    assert stopped.returncode == 1
    assert f"{topic}-0 is stopped" in stopped.stderr
    assert state(target.bootstrap, topic) == "mirror"


async def test_a_partition_that_does_not_tell_its_end_is_named(monkeypatch):
    class Cluster:
        async def refresh(self, names: list[str]) -> MetadataResponse:
            partitions = [MetadataResponsePartition(partition_index=p) for p in (0, 1)]
            return MetadataResponse(topics=[MetadataResponseTopic(name=names[0], partitions=partitions)])

    source, target = Cluster(), Cluster()

    async def offsets_of(cluster: Cluster, *_: object) -> dict[tuple[str, int], int]:
        return {("t", 0): 100} if cluster is source else {("t", 0): 100, ("t", 1): 40}

    async def states_of(*_: object) -> dict[str, str]:
        return {"t": "mirror"}

    monkeypatch.setattr(internal_topics, "offsets_of", offsets_of)
    monkeypatch.setattr(promote, "states_of", states_of)
    [found] = await promote.survey(source, target, {"t": "t"})  # type: ignore[arg-type]
    assert (found.lag, found.why) == (None, "t-1 does not tell its end at the source")
