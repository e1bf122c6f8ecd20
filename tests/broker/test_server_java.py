"""Apache Kafka's own tools against the broker: they speak the newest versions and check the most."""

from __future__ import annotations

import json

import pytest
from support import kafka_oracle
from support.broker import new_name, new_topic

TOPICS = "org.apache.kafka.tools.TopicCommand"
CONFIGS = "kafka.admin.ConfigCommand"
OFFSETS = "org.apache.kafka.tools.GetOffsetShell"
LOG_DIRS = "org.apache.kafka.tools.LogDirsCommand"
DELETE_RECORDS = "org.apache.kafka.tools.DeleteRecordsCommand"
PRODUCER = "org.apache.kafka.tools.ConsoleProducer"
CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
API_VERSIONS = "org.apache.kafka.tools.BrokerApiVersionsCommand"
VERIFIABLE_PRODUCER = "org.apache.kafka.tools.VerifiableProducer"

pytestmark = pytest.mark.usefixtures("apache_kafka")


@pytest.fixture
def run(broker):
    oracle = kafka_oracle.require()

    def run(tool, *args, stdin=None, option="--bootstrap-server"):
        done = oracle.run(tool, option, broker.bootstrap, *args, stdin=stdin)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


def test_topics_and_configs(run):
    name = new_name()
    run(TOPICS, "--create", "--topic", name, "--partitions", "2", "--config", "retention.ms=1234567")
    described = run(TOPICS, "--describe", "--topic", name)
    assert (
        "PartitionCount: 2\tReplicationFactor: 1\tConfigs: min.insync.replicas=1,retention.ms=1234567"
        in described
    )
    assert f"Topic: {name}\tPartition: 1\tLeader: 1\tReplicas: 1\tIsr: 1" in described
    run(
        CONFIGS,
        "--alter",
        "--topic",
        name,
        "--add-config",
        "segment.bytes=2000000",
        "--delete-config",
        "retention.ms",
    )
    changed = run(CONFIGS, "--describe", "--topic", name)
    assert (
        "segment.bytes=2000000 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:segment.bytes=2000000, DEFAULT_CONFIG:log.segment.bytes=1073741824}"
        in changed
    )
    assert "retention.ms" not in changed
    run(TOPICS, "--alter", "--topic", name, "--partitions", "3")
    assert "PartitionCount: 3" in run(TOPICS, "--describe", "--topic", name)
    run(TOPICS, "--delete", "--topic", name)
    assert name not in run(TOPICS, "--list").split()


def test_console_producer_and_consumer(run, broker):
    name = new_topic(broker)
    lines = [f"line {i} {'x' * (i % 50)}" for i in range(500)]
    run(PRODUCER, "--topic", name, "--compression-codec", "zstd", stdin="\n".join(lines) + "\n")
    read = run(
        CONSUMER, "--topic", name, "--from-beginning", "--max-messages", "500", "--timeout-ms", "20000"
    )
    assert read.splitlines() == lines


def test_idempotent_producer_offsets_and_deletion(run, broker):
    name = new_topic(broker)
    out = run(VERIFIABLE_PRODUCER, "--topic", name, "--max-messages", "1000", "--acks", "-1")
    assert json.loads(out.splitlines()[-1])["sent"] == 1000
    assert run(OFFSETS, "--topic", name, "--time", "latest") == f"{name}:0:1000\n"
    assert run(OFFSETS, "--topic", name, "--time", "max-timestamp").startswith(f"{name}:0:")
    document = {"partitions": [{"topic": name, "partition": 0, "offset": 400}], "version": 1}
    path = broker.data_dir.parent / "delete.json"
    path.write_text(json.dumps(document))
    assert "low_watermark: 400" in run(DELETE_RECORDS, "--offset-json-file", str(path))
    assert run(OFFSETS, "--topic", name, "--time", "earliest") == f"{name}:0:400\n"


def test_log_dirs_and_api_versions(run, broker):
    name = new_topic(broker)
    dirs = json.loads(run(LOG_DIRS, "--describe", "--topic-list", name).splitlines()[-1])
    assert dirs["brokers"][0]["logDirs"][0]["partitions"][0]["partition"] == f"{name}-0"
    versions = run(API_VERSIONS)
    assert "Produce(0): 0 to 13 [usable: 13]" in versions
    assert "Fetch(1): 4 to 18 [usable: 18]" in versions
