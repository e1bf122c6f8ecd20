"""Apache Kafka's own MirrorMaker client and formatters read what our connectors write."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from support import kafka_oracle
from support.broker import new_name, new_topic
from support.kafka_tools import KafkaTools
from support.mirroring import run_until

from klamm_kafka.client import Cluster
from klamm_kafka.wire.batch import Record
from klamm_mirror.checkpoint import groups
from klamm_mirror.checkpoint.connector import MirrorCheckpointConnector
from klamm_mirror.checkpoint.coordinators import Committed
from klamm_mirror.heartbeat.connector import MirrorHeartbeatConnector
from klamm_mirror.topics import internal_topics
from klamm_mirror.topics.formats import OffsetSync

TOOL = Path(__file__).parents[1] / "support" / "MirrorTool.java"
FORMATTERS = "org.apache.kafka.connect.mirror.formatters."


def written(broker, topic: str) -> int:
    """Records in a topic of one partition."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": new_name("group")})
    try:
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=60)
    finally:
        consumer.close()
    return high - low


def connector_config(source, target, alias: str, **more: str) -> dict[str, str]:
    return {
        "name": "mirror",
        "source.cluster.alias": alias,
        "target.cluster.alias": "here",
        "source.cluster.bootstrap.servers": source.bootstrap,
        "target.cluster.bootstrap.servers": target.bootstrap,
        "checkpoints.topic.replication.factor": "1",
        "heartbeats.topic.replication.factor": "1",
        "offset-syncs.topic.replication.factor": "1",
        **more,
    }


async def prepare(source, target, alias: str, topic: str, group: str) -> None:
    async with Cluster(source.bootstrap) as cluster:
        syncs = "mm2-offset-syncs.here.internal"
        await internal_topics.create(cluster, syncs, 1)
        pairs = [OffsetSync(topic, 0, up, up - 10).encode() for up in (100, 200)]
        await internal_topics.produce(cluster, syncs, [Record(key=k, value=v) for k, v in pairs])
        await groups.commit_offsets(cluster, group, {(topic, 0): Committed(200, "noted")})


@pytest.mark.usefixtures("processes")
async def test_the_tasks_write_where_mirrormaker_writes(source, target):
    alias, topic, group = new_name("dc"), new_topic(source), new_name("group")
    await prepare(source, target, alias, topic, group)
    props = connector_config(source, target, alias, topics=topic, groups=group)
    context = run_until(MirrorCheckpointConnector, props, lambda c: bool(c.commits))
    partition = {"group": group, "topic": f"{alias}.{topic}", "partition": 0}
    assert context.commits == [[(partition, {"offset": 0})]]
    assert context.topics == {f"{alias}.checkpoints.internal"}
    assert context.said[-1]["details"]["checkpoints"] == 1
    context = run_until(MirrorHeartbeatConnector, props, lambda c: bool(c.commits))
    aliases = {"sourceClusterAlias": alias, "targetClusterAlias": "here"}
    beat = [(aliases, {"offset": 0})]
    assert context.commits == [beat] * len(context.commits), "one a second, until it was stopped"


@pytest.mark.usefixtures("apache_kafka")
async def test_apaches_client_and_formatters_read_them(source, target, tmp_path):
    oracle = kafka_oracle.require()
    alias, topic, group = new_name("dc"), new_topic(source), new_name("group")
    new_topic(target, name=f"{alias}.heartbeats")
    await prepare(source, target, alias, topic, group)
    props = connector_config(source, target, alias, topics=topic, groups=group)
    run_until(MirrorCheckpointConnector, props, lambda c: bool(c.commits))
    run_until(MirrorHeartbeatConnector, props, lambda c: bool(c.commits))

    said = oracle.run(str(TOOL), target.bootstrap, alias, group)
    assert said.returncode == 0, said.stderr
    answers = dict(line.split("=", 1) for line in said.stdout.splitlines())
    remote = f"{alias}.{topic}"
    assert answers["offsets"] == f"{{{remote}-0=190/noted}}"
    assert f"{alias}.checkpoints.internal" in answers["checkpoints"]
    assert f"{alias}.heartbeats" in answers["heartbeats"]
    assert alias in answers["upstream"]
    assert answers["hops"] == "1"

    tools = KafkaTools(oracle, tmp_path)
    try:

        def printed(broker, name: str, formatter: str, messages: int = 1) -> list[str]:
            flags = ["--from-beginning", "--max-messages", str(messages), "--timeout-ms", "60000"]
            found = tools.run(
                "kafka-console-consumer", "--bootstrap-server", broker.bootstrap, "--topic", name,
                "--formatter", FORMATTERS + formatter, *flags,
            )  # fmt: skip
            return found.ok().lines

        assert printed(target, f"{alias}.checkpoints.internal", "CheckpointFormatter") == [
            f"Checkpoint{{consumerGroupId={group}, topicPartition={remote}-0, upstreamOffset=200, downstreamOffset=190, metadata=noted}}"
        ]
        # Other mirrors may have written heartbeats to this cluster before.
        heartbeats = printed(target, "heartbeats", "HeartbeatFormatter", written(target, "heartbeats"))
        assert any(
            f"sourceClusterAlias={alias}, targetClusterAlias=here, timestamp=" in h for h in heartbeats
        )
        [sync] = printed(source, "mm2-offset-syncs.here.internal", "OffsetSyncFormatter")
        assert "upstreamOffset=100, downstreamOffset=90" in sync
    finally:
        tools.close()
