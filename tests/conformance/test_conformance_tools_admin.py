"""Apache's admin commands against our broker and against Apache's: the same words, the same exit codes.

What differs by nature (ids, ports, directories, offsets, times) is made equal before; what differs on purpose has a
reason in `INTENDED`.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from support.answers import Side, wait_caught_up
from support.kafka_tools import KafkaTools, ToolResult

pytestmark = pytest.mark.usefixtures("apache_kafka")

NORMALISED = (
    (r"(?<![\w.])[\w-]{22}(?![\w.])", "<id>"),
    (r"\b\d{13}\b", "<time>"),
    (r"^(1\s+<id>\s+)\d+", r"\1<end>"),
    (r"adminclient-\d+", "adminclient"),
    (r'"/[^"]*/(ours|data)"', '"<directory>"'),
    (r"127\.0\.0\.1:\d+", "<address>"),
    (r"(?<=127\.0\.0\.1\s)\d+", "<port>"),
    (r"FinalizedVersionLevel: (\S+)\tEpoch: \d+", r"FinalizedVersionLevel: \1\tEpoch: <epoch>"),
    (r"(LeaderEpoch|HighWatermark|MaxFollowerLag|MaxFollowerLagTimeMs):\s+-?\d+", r"\1: <number>"),
    (r"\[\d{4}-\d\d-\d\d [\d:,]+\] ", ""),
    (r'"port": ?\d+', '"port": <port>'),
    (r"\(org\.apache[^)]*\)", ""),
)


def run(tools: KafkaTools, side: Side, name: str, *args: str) -> ToolResult:
    command = 1 if name == "kafka-cluster" else 0  # its subcommand comes first, other tools want it last
    address = ("--bootstrap-server", f"127.0.0.1:{side.port}")
    return tools.run(name, *args[:command], *address, *args[command:])


def plain(result: ToolResult) -> tuple[int, list[str]]:
    """Exit code and the lines that were said, without stack traces, in an order of their own."""
    text = result.out + "\n" + result.err
    for pattern, put in NORMALISED:
        text = re.sub(pattern, put, text, flags=re.MULTILINE)
    lines = [re.sub(r"\s+", " ", line).strip() for line in text.splitlines()]
    return result.code, sorted(
        line for line in lines if line and not line.startswith(("at ", "... ", "WARN"))
    )


KNOWN = "--entity-type topics --entity-name known"
COMMANDS: list[tuple[str, str]] = [
    ("kafka-features", "describe --feature-not-there"),
    ("kafka-features", "upgrade --feature group.version=1"),
    ("kafka-features", "upgrade --feature group.version=7"),
    ("kafka-features", "upgrade --feature nope=1"),
    ("kafka-features", "downgrade --feature transaction.version=1 --dry-run"),
    ("kafka-features", "downgrade --feature transaction.version=1"),
    ("kafka-features", "upgrade --feature transaction.version=2"),
    ("kafka-features", "downgrade --release-version 4.0"),
    ("kafka-features", "disable --feature group.version --dry-run"),
    ("kafka-configs", f"--alter {KNOWN} --add-config retention.ms=1000,cleanup.policy=[compact,delete]"),
    ("kafka-configs", f"--describe {KNOWN}"),
    ("kafka-configs", f"--alter {KNOWN} --delete-config retention.ms,cleanup.policy"),
    ("kafka-configs", f"--alter {KNOWN} --delete-config retention.ms"),
    ("kafka-configs", "--alter --entity-type brokers --entity-name 1 --add-config log.cleaner.backoff.ms=16000"),
    ("kafka-configs", "--describe --entity-type brokers --entity-name 1"),
    ("kafka-configs", "--alter --entity-type brokers --entity-name 1 --delete-config log.cleaner.backoff.ms"),
    ("kafka-configs", "--alter --entity-type brokers --entity-default --add-config log.retention.bytes=7"),
    ("kafka-configs", "--describe --entity-type brokers --entity-default"),
    ("kafka-configs", "--alter --entity-type brokers --entity-default --delete-config log.retention.bytes"),
    ("kafka-configs", "--alter --entity-type brokers --entity-name 1 --add-config node.id=7"),
    ("kafka-configs", "--alter --entity-type brokers --entity-name 1 --add-config log.retention.ms=soon"),
    ("kafka-configs", "--alter --entity-type groups --entity-name g --add-config consumer.session.timeout.ms=50000"),
    ("kafka-configs", "--describe --entity-type groups --entity-name g"),
    ("kafka-configs", "--alter --entity-type groups --entity-name g --delete-config consumer.session.timeout.ms"),
    ("kafka-configs", "--alter --entity-type groups --entity-name g --add-config consumer.session.timeout.ms=1"),
    ("kafka-configs", "--alter --entity-type broker-loggers --entity-name 1 --add-config root=LOUD"),
    ("kafka-configs", "--alter --entity-type broker-loggers --entity-name 1 --add-config root=WARN"),
    ("kafka-configs", "--alter --entity-type users --entity-name bob --add-config SCRAM-SHA-256=[password=secret]"),
    ("kafka-configs", "--describe --entity-type users --entity-name bob"),
    ("kafka-configs", "--alter --entity-type users --entity-name bob --delete-config SCRAM-SHA-256"),
    ("kafka-configs", "--describe --entity-type users"),
    ("kafka-configs", "--describe --entity-type clients --entity-default"),
    ("kafka-client-metrics", "--alter --name m --metrics org.apache.kafka --interval 1000"),
    ("kafka-client-metrics", "--list"),
    ("kafka-client-metrics", "--describe --name m"),
    ("kafka-client-metrics", "--delete --name m"),
    ("kafka-client-metrics", "--list"),
    ("kafka-leader-election", "--election-type preferred --topic known --partition 0"),
    ("kafka-leader-election", "--election-type unclean --topic known --partition 0"),
    ("kafka-leader-election", "--election-type preferred --topic nope --partition 0"),
    ("kafka-leader-election", "--election-type preferred --all-topic-partitions"),
    ("kafka-metadata-quorum", "describe --replication"),
    ("kafka-cluster", "cluster-id"),
    ("kafka-cluster", "list-endpoints"),
    ("kafka-cluster", "list-endpoints --include-fenced-brokers"),
    ("kafka-cluster", "unregister --id 7"),
    ("kafka-log-dirs", "--describe --topic-list known,empty"),
    ("kafka-acls", "--list"),
    ("kafka-acls", "--add --allow-principal User:x --operation Read --topic known"),
    ("kafka-reassign-partitions", "--list"),
    ("kafka-reassign-partitions", "--generate --topics-to-move-json-file MOVE --broker-list 1"),
    ("kafka-reassign-partitions", "--execute --reassignment-json-file PLAN"),
    ("kafka-reassign-partitions", "--verify --reassignment-json-file PLAN"),
    ("kafka-reassign-partitions", "--execute --reassignment-json-file AWAY"),
]  # fmt: skip
INTENDED: dict[str, str] = {}


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    """Returns the files that kafka-reassign-partitions reads."""
    here = [{"topic": "known", "partition": n, "replicas": [1], "log_dirs": ["any"]} for n in (0, 1)]
    away = [{"topic": "known", "partition": 0, "replicas": [2]}]
    contents = {
        "MOVE": {"version": 1, "topics": [{"topic": "known"}]},
        "PLAN": {"version": 1, "partitions": here},
        "AWAY": {"version": 1, "partitions": away},
    }
    for name, content in contents.items():
        (tmp_path / name).write_text(json.dumps(content))
    return {name: str(tmp_path / name) for name in contents}


def test_admin_commands_say_what_they_say_of_kafka(two_brokers, kafka_tools, files):
    wrong = []
    for name, text in COMMANDS:
        args = [files.get(word, word) for word in text.split()]
        ours = plain(run(kafka_tools, two_brokers.ours, name, *args))
        wait_caught_up(two_brokers.kafka.port)
        kafka = plain(run(kafka_tools, two_brokers.kafka, name, *args))
        if name == "kafka-log-dirs":
            ours, kafka = log_dirs(ours), log_dirs(kafka)
        if ours != kafka and f"{name} {text}" not in INTENDED:
            wrong.append((f"{name} {text}", ours, kafka))
        elif ours == kafka and f"{name} {text}" in INTENDED:
            wrong.append((f"{name} {text}", "no longer differs", kafka))
    lines = [f"{what}\n   Klamm {a}\n   Kafka {b}" for what, a, b in wrong]
    assert not lines, "\n".join(lines)


def log_dirs(said):
    """Returns the JSON of kafka-log-dirs without directories and sizes on the disk."""
    code, lines = said
    found = []
    for line in lines:
        if line.startswith("{"):
            for broker in json.loads(line)["brokers"]:
                for directory in broker["logDirs"]:
                    parts = sorted((p["partition"], p["isFuture"]) for p in directory["partitions"])
                    found.append((broker["broker"], directory["error"], parts))
        else:
            found.append(line)
    return code, found


def test_features_are_described(two_brokers, kafka_tools):
    def described(side):
        lines = run(kafka_tools, side, "kafka-features", "describe").ok().lines
        return {
            m[1]: m[2]
            for line in lines
            if (m := re.match(r"Feature: (\S+)\s+(Supported.*FinalizedVersionLevel: \S+)", line))
        }

    ours, kafkas = described(two_brokers.ours), described(two_brokers.kafka)
    own = ours.pop("klamm.mirror.topics")
    assert re.sub(r"\s+", " ", own).startswith("SupportedMinVersion: 1 SupportedMaxVersion: 1 ")
    assert ours == kafkas


def test_the_quorum_is_described(two_brokers, kafka_tools):
    def described(side):
        result = run(kafka_tools, side, "kafka-metadata-quorum", "describe", "--status")
        lines = [line.split(":", 1) for line in result.ok().lines]
        return {key: value.strip() for key, value in lines}

    ours, kafkas = described(two_brokers.ours), described(two_brokers.kafka)
    assert list(ours) == list(kafkas)
    for key in ("LeaderId", "MaxFollowerLag", "MaxFollowerLagTimeMs", "CurrentObservers"):
        assert ours[key] == kafkas[key], key
    assert re.search(r'"id": 1, "directoryId": "[\w-]{22}"', ours["CurrentVoters"])
