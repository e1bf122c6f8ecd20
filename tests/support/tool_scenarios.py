"""Command lines of Kafka's tools in an order that makes sense, to be run by Kafka's tools and by ours.

A section starts with an empty cluster (of its topics) and leaves one. `@` stands for the broker's address, `%` for a directory with the
files of `write_files`. A `~` in front: what is said are the broker's own words, which are cut off. What differs from run to run (addresses, topic ids) is taken out by `normal`.
"""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition

LONG = "a.very_long-topic.name-that-is-longer-than-24"
BASE_MS = 1_700_000_000_000

TOPICS = f"""
kafka-topics --bootstrap-server @ --create --topic t1 --partitions 3 --config retention.ms=-1
kafka-topics --bootstrap-server @ --create --topic {LONG} --partitions 2 --replication-factor 1
kafka-topics --bootstrap-server @ --list --exclude-internal
kafka-topics --bootstrap-server @ --describe --exclude-internal
kafka-topics --bootstrap-server=@ --describe --topic t1
kafka-topics --bootstrap-server @ --describe --topic t1,a.*
kafka-topics --bootstrap-server @ --describe --topic nope
kafka-topics --bootstrap-server @ --describe --topic nope --if-exists
kafka-topics --bootstrap-server @ --describe --if-exists
kafka-topics --bootstrap-server @ --describe --topic-id AAAAAAAAAAAAAAAAAAAAAQ
kafka-topics --bootstrap-server @ --describe --topics-with-overrides --topic t1
kafka-topics --bootstrap-server @ --describe --under-replicated-partitions
kafka-topics --bootstrap-server @ --describe --at-min-isr-partitions --topic t1
kafka-topics --bootstrap-server @ --describe --unavailable-partitions
kafka-topics --bootstrap-server @ --describe --topic t1 --partition-size-limit-per-response 1
~kafka-topics --bootstrap-server @ --create --topic t1
kafka-topics --bootstrap-server @ --create --topic t1 --if-not-exists
kafka-topics --bootstrap-server @ --create --topic t2 --partitions 0
kafka-topics --bootstrap-server @ --create --topic t2 --partitions x
~kafka-topics --bootstrap-server @ --create --topic t2 --replication-factor 0
~kafka-topics --bootstrap-server @ --create --topic t2 --config foo=bar
~kafka-topics --bootstrap-server @ --create --topic t2 --config retention.ms=abc
kafka-topics --bootstrap-server @ --create --topic t2 --config retention.ms
~kafka-topics --bootstrap-server @ --create --topic "a b"
kafka-topics --bootstrap-server @ --create --topic t2 --replica-assignment 1,1:2
kafka-topics --bootstrap-server @ --create --topic t2 --replica-assignment 1:1
kafka-topics --bootstrap-server @ --create --topic t2 --replica-assignment 1 --partitions 2
kafka-topics --bootstrap-server @ --create
~kafka-topics --bootstrap-server @ --alter --topic t1 --partitions 2
~kafka-topics --bootstrap-server @ --alter --topic t1 --partitions 3
kafka-topics --bootstrap-server @ --alter --topic t1 --partitions 4
kafka-topics --bootstrap-server @ --alter --topic t1 --config a=b
kafka-topics --bootstrap-server @ --alter --topic t1
kafka-topics --bootstrap-server @ --alter --topic nope --partitions 3
kafka-topics --bootstrap-server @ --describe --topic t1
kafka-topics --bootstrap-server @ --list --create
kafka-topics --bootstrap-server @
kafka-topics --bootstrap-server @ --list --partitions 3
kafka-topics --list
kafka-topics --bootstrap-server @ --list --bogus
kafka-topics --bootstrap-server @ --list --topic
kafka-topics --bootstrap-server @ --describe --topic t1 --topic t2
kafka-topics --bootstrap-server @ --list --zookeeper x
kafka-topics --help
kafka-topics
kafka-topics --bootstrap-server @ --delete --topic nope
kafka-topics --bootstrap-server @ --delete --topic nope --if-exists
kafka-topics --bootstrap-server @ --delete --topic t1
kafka-topics --bootstrap-server @ --delete --topic a.*
kafka-topics --bootstrap-server @ --list --exclude-internal
"""

OFFSETS = f"""
kafka-topics --bootstrap-server @ --create --topic t1 --partitions 3 --config retention.ms=-1
kafka-topics --bootstrap-server @ --create --topic {LONG} --partitions 2 --config retention.ms=-1
RECORDS
kafka-get-offsets --bootstrap-server @ --exclude-internal-topics
kafka-get-offsets --bootstrap-server @ --topic t1
kafka-get-offsets --bootstrap-server @ --topic t1 --time -2
kafka-get-offsets --bootstrap-server @ --topic t1 --time -3
kafka-get-offsets --bootstrap-server @ --topic t1 --time max-timestamp
kafka-get-offsets --bootstrap-server @ --topic t1 --time -4
kafka-get-offsets --bootstrap-server @ --topic t1 --time -5
kafka-get-offsets --bootstrap-server @ --topic t1 --time 9
kafka-get-offsets --bootstrap-server @ --topic t1 --time {BASE_MS + 1500}
kafka-get-offsets --bootstrap-server @ --topic t1 --time 99999999999999
kafka-get-offsets --bootstrap-server @ --topic t1 --time earliest
kafka-get-offsets --bootstrap-server @ --topic t1 --time foo
kafka-get-offsets --bootstrap-server @ --topic nope
kafka-get-offsets --bootstrap-server @ --topic t1,nope --partitions 0,2
kafka-get-offsets --bootstrap-server @ --partitions 0,x
kafka-get-offsets --bootstrap-server @ --topic-partitions t1:1-,a.*:-1
kafka-get-offsets --bootstrap-server @ --topic-partitions t1:1 --topic t1
kafka-get-offsets --topic t1
kafka-get-offsets --bootstrap-server @ --topic "t("
kafka-delete-records --bootstrap-server @ --offset-json-file %/good.json
kafka-delete-records --bootstrap-server @ --offset-json-file %/double.json
kafka-delete-records --bootstrap-server @ --offset-json-file %/beyond.json
kafka-delete-records --bootstrap-server @ --offset-json-file %/bad.json
kafka-delete-records --bootstrap-server @ --offset-json-file %/none.json
kafka-delete-records --bootstrap-server @
kafka-get-offsets --bootstrap-server @ --topic t1 --time -2
kafka-log-dirs --bootstrap-server @ --describe --broker-list 7
kafka-log-dirs --bootstrap-server @ --broker-list 7
kafka-consumer-groups --bootstrap-server @ --delete --group g1
kafka-consumer-groups --bootstrap-server @ --delete --group "my group"
kafka-topics --bootstrap-server @ --delete --topic t1
kafka-topics --bootstrap-server @ --delete --topic a.*
"""

GROUPS = f"""
kafka-topics --bootstrap-server @ --create --topic t1 --partitions 3 --config retention.ms=-1
kafka-topics --bootstrap-server @ --create --topic {LONG} --partitions 2 --config retention.ms=-1
kafka-consumer-groups --bootstrap-server @ --list
RECORDS
kafka-consumer-groups --bootstrap-server @ --list
kafka-consumer-groups --bootstrap-server @ --list --state
kafka-consumer-groups --bootstrap-server @ --list --type --state
kafka-consumer-groups --bootstrap-server @ --list --type classic --state empty,stable
kafka-consumer-groups --bootstrap-server @ --list --state bad
kafka-consumer-groups --bootstrap-server @ --describe --group g1
kafka-consumer-groups --bootstrap-server @ --describe --group g1 --offsets --verbose
kafka-consumer-groups --bootstrap-server @ --describe --group g1 --state
kafka-consumer-groups --bootstrap-server @ --describe --group g1 --state --verbose
kafka-consumer-groups --bootstrap-server @ --describe --group g1 --members
kafka-consumer-groups --bootstrap-server @ --describe --group g1 --members --verbose
kafka-consumer-groups --bootstrap-server @ --describe --group g1 --members --offsets
kafka-consumer-groups --bootstrap-server @ --describe --group nope
kafka-consumer-groups --bootstrap-server @ --describe --group nope --members
kafka-consumer-groups --bootstrap-server @ --describe --all-groups
kafka-consumer-groups --bootstrap-server @ --reset-offsets --group g1 --topic t1 --to-earliest
kafka-consumer-groups --bootstrap-server @ --reset-offsets --group g1 --topic t1 --to-latest --dry-run
kafka-consumer-groups --bootstrap-server @ --reset-offsets --group g1 --topic t1:0,1 --to-offset 100
kafka-consumer-groups --bootstrap-server @ --reset-offsets --group g1 --topic t1:x --to-offset 100
kafka-consumer-groups --bootstrap-server @ --reset-offsets --group g1 --all-topics --shift-by -1
kafka-consumer-groups --bootstrap-server @ --reset-offsets --group g1 --topic t1:2 --shift-by -1
kafka-consumer-groups --bootstrap-server @ --reset-offsets --group g1 --all-topics --to-current --export
kafka-consumer-groups --bootstrap-server @ --reset-offsets --all-groups --all-topics --to-current --export
kafka-consumer-groups --bootstrap-server @ --reset-offsets --group nope --topic t1 --to-earliest
kafka-consumer-groups --bootstrap-server @ --reset-offsets --group g1 --topic nope --to-earliest
kafka-consumer-groups --bootstrap-server @ --reset-offsets --group g1 --topic t1:9 --to-earliest
kafka-consumer-groups --bootstrap-server @ --reset-offsets --group g1 --topic t1 --to-datetime 2023-11-14T22:13:21.500
kafka-consumer-groups --bootstrap-server @ --reset-offsets --group g1 --topic t1 --to-datetime 2023-11-15T00:13:21.500+02:00
kafka-consumer-groups --bootstrap-server @ --reset-offsets --group g1 --topic t1 --by-duration PT0S
kafka-consumer-groups --bootstrap-server @ --reset-offsets --group g1 --topic t1 --by-duration P10000DT1H
kafka-consumer-groups --bootstrap-server @ --reset-offsets --group g1 --from-file %/plan.csv
kafka-consumer-groups --bootstrap-server @ --reset-offsets --group g2 --from-file %/groups.csv
kafka-consumer-groups --bootstrap-server @ --reset-offsets --group g1 --group g2 --from-file %/groups.csv
kafka-consumer-groups --bootstrap-server @ --reset-offsets --group g1 --to-earliest --to-latest --topic t1
kafka-consumer-groups --bootstrap-server @ --reset-offsets --group g1 --execute --dry-run --to-latest --topic t1
kafka-consumer-groups --bootstrap-server @ --reset-offsets --to-latest --topic t1
kafka-consumer-groups --bootstrap-server @ --reset-offsets --group g1 --topic t1 --to-earliest --execute
kafka-consumer-groups --bootstrap-server @ --describe --group g1
kafka-consumer-groups --bootstrap-server @ --reset-offsets --group fresh --topic t1:1 --to-offset 1 --execute
kafka-consumer-groups --bootstrap-server @ --describe --group fresh
kafka-consumer-groups --bootstrap-server @ --list --describe
kafka-consumer-groups --bootstrap-server @ --describe
kafka-consumer-groups --bootstrap-server @ --list --members
kafka-consumer-groups --bootstrap-server @ --list --group g1
kafka-consumer-groups --bootstrap-server @ --delete --group nope
kafka-consumer-groups --bootstrap-server @ --delete --group g1 --topic t1
kafka-consumer-groups --bootstrap-server @ --delete-offsets --group g1 --topic t1:0
kafka-consumer-groups --bootstrap-server @ --delete-offsets --group g1 --topic t1:9
kafka-consumer-groups --bootstrap-server @ --delete-offsets --group nope --topic t1
kafka-consumer-groups --bootstrap-server @ --delete-offsets --group g1 --topic nope
kafka-consumer-groups --bootstrap-server @ --describe --group g1
kafka-consumer-groups --validate-regex "a.*"
kafka-consumer-groups --list
kafka-consumer-groups --bootstrap-server @ --delete --group g1 --group nope
kafka-consumer-groups --bootstrap-server @ --delete --group fresh
kafka-consumer-groups --bootstrap-server @ --delete --all-groups
kafka-consumer-groups --bootstrap-server @ --list
kafka-topics --bootstrap-server @ --delete --topic t1
kafka-topics --bootstrap-server @ --delete --topic a.*
"""

CONFIGS = """
kafka-topics --bootstrap-server @ --create --topic t1
kafka-configs --bootstrap-server @ --describe --entity-type topics --entity-name t1
kafka-configs --bootstrap-server @ --alter --topic t1 --add-config max.message.bytes=5000,cleanup.policy=[compact,delete]
kafka-configs --bootstrap-server @ --describe --topic t1
kafka-configs --bootstrap-server @ --describe --entity-type topics --entity-name t1
kafka-configs --bootstrap-server @ --alter --topic t1 --delete-config cleanup.policy
kafka-configs --bootstrap-server @ --describe --topic t1
kafka-configs --bootstrap-server @ --describe --topic nope
kafka-configs --bootstrap-server @ --describe --topic nope --all
kafka-configs --bootstrap-server @ --alter --topic t1 --add-config retention.ms=abc
kafka-configs --bootstrap-server @ --alter --topic t1 --add-config nope=abc
kafka-configs --bootstrap-server @ --alter --topic nope --add-config retention.ms=1
kafka-configs --bootstrap-server @ --alter --topic t1 --add-config retention.ms
kafka-configs --bootstrap-server @ --alter --topic t1 --add-config "a b=1"
kafka-configs --bootstrap-server @ --alter --topic t1
kafka-configs --bootstrap-server @ --alter --entity-type topics --add-config a=b
kafka-configs --bootstrap-server @ --alter --topic t1 --add-config-file %/topic.properties
kafka-configs --bootstrap-server @ --describe --topic t1
kafka-configs --bootstrap-server @ --alter --topic t1 --add-config a=b --add-config-file %/topic.properties
kafka-configs --bootstrap-server @ --describe --broker 7
kafka-configs --bootstrap-server @ --describe --broker x
kafka-configs --bootstrap-server @ --alter --broker 1 --add-config message.max.bytes=2000000
kafka-configs --bootstrap-server @ --alter --broker-defaults --add-config message.max.bytes=3000000
kafka-configs --bootstrap-server @ --describe --entity-type brokers
kafka-configs --bootstrap-server @ --describe --entity-type brokers --entity-default
kafka-configs --bootstrap-server @ --describe --entity-type brokers --entity-name 1
kafka-configs --bootstrap-server @ --alter --broker 1 --delete-config message.max.bytes
kafka-configs --bootstrap-server @ --alter --broker-defaults --delete-config message.max.bytes
kafka-configs --bootstrap-server @ --describe --entity-type broker-loggers
kafka-configs --bootstrap-server @ --alter --broker-logger 1 --add-config foo=INFO
kafka-configs --bootstrap-server @ --alter --group g1 --add-config consumer.session.timeout.ms=50000
kafka-configs --bootstrap-server @ --describe --group g1
kafka-configs --bootstrap-server @ --describe --entity-type groups
kafka-configs --bootstrap-server @ --describe --group nope
kafka-configs --bootstrap-server @ --alter --group g1 --delete-config consumer.session.timeout.ms
kafka-configs --bootstrap-server @ --alter --client-metrics m1 --add-config interval.ms=1000
kafka-configs --bootstrap-server @ --describe --entity-type client-metrics
kafka-configs --bootstrap-server @ --describe --client-metrics nope
kafka-configs --bootstrap-server @ --alter --client-metrics m1 --delete-config interval.ms
kafka-configs --bootstrap-server @ --describe
kafka-configs --bootstrap-server @ --describe --entity-type foo
kafka-configs --describe --entity-type topics
kafka-configs --bootstrap-server @ --describe --alter --topic t1
kafka-configs --bootstrap-server @ --describe --topic t1 --add-config a=b
kafka-configs --bootstrap-server @ --describe --topic t1 --entity-type users
kafka-configs --bootstrap-server @ --zookeeper x --alter --topic t1 --add-config a=b
kafka-topics --bootstrap-server @ --delete --topic t1
"""

QUOTAS = """
kafka-configs --bootstrap-server @ --alter --entity-type users --entity-name u1 --entity-type clients --entity-name c1 --add-config producer_byte_rate=1024
kafka-configs --bootstrap-server @ --alter --entity-type users --entity-default --entity-type clients --entity-name c1 --add-config producer_byte_rate=0.0001
kafka-configs --bootstrap-server @ --alter --user u1 --add-config producer_byte_rate=12345678,consumer_byte_rate=0.5
kafka-configs --bootstrap-server @ --alter --client-defaults --add-config request_percentage=200
kafka-configs --bootstrap-server @ --alter --ip 127.0.0.1 --add-config connection_creation_rate=100
kafka-configs --bootstrap-server @ --describe --entity-type users
kafka-configs --bootstrap-server @ --describe --entity-type users --entity-type clients
kafka-configs --bootstrap-server @ --describe --entity-type users --entity-name u1 --entity-type clients --entity-name c1
kafka-configs --bootstrap-server @ --describe --entity-type clients
kafka-configs --bootstrap-server @ --describe --client-defaults
kafka-configs --bootstrap-server @ --describe --entity-type ips
kafka-configs --bootstrap-server @ --alter --user u1 --add-config producer_byte_rate=abc
kafka-configs --bootstrap-server @ --alter --user u1 --delete-config request_percentage
kafka-configs --bootstrap-server @ --alter --user u1 --delete-config producer_byte_rate,consumer_byte_rate
kafka-configs --bootstrap-server @ --alter --client-defaults --delete-config request_percentage
kafka-configs --bootstrap-server @ --alter --ip 127.0.0.1 --delete-config connection_creation_rate
kafka-configs --bootstrap-server @ --alter --entity-type users --entity-name u1 --entity-type clients --entity-name c1 --delete-config producer_byte_rate
kafka-configs --bootstrap-server @ --alter --entity-type users --entity-default --entity-type clients --entity-name c1 --delete-config producer_byte_rate
kafka-configs --bootstrap-server @ --describe --entity-type users
"""

USERS = """
kafka-configs --bootstrap-server @ --alter --user u1 --add-config SCRAM-SHA-256=[iterations=8192,password=secret]
kafka-configs --bootstrap-server @ --describe --user u1
kafka-configs --bootstrap-server @ --describe --user u9
kafka-configs --bootstrap-server @ --alter --user u1 --add-config SCRAM-SHA-256=[iterations=1,password=secret]
kafka-configs --bootstrap-server @ --alter --user u1 --add-config foo=1
kafka-configs --bootstrap-server @ --alter --client c1 --add-config SCRAM-SHA-256=[password=secret]
kafka-configs --bootstrap-server @ --alter --user u1 --delete-config SCRAM-SHA-256
"""

TRANSACTIONS = """
kafka-transactions --bootstrap-server @ list
kafka-transactions --bootstrap-server @ list --transactional-id-pattern tx(
kafka-transactions --bootstrap-server @ describe --transactional-id nope
kafka-transactions --bootstrap-server @ describe
kafka-transactions --bootstrap-server @ find-hanging
kafka-transactions --bootstrap-server @ find-hanging --topic nope
kafka-transactions --bootstrap-server @ find-hanging --partition 0 --broker-id 1
kafka-transactions --bootstrap-server @ find-hanging --broker-id 1 --max-transaction-timeout 0
kafka-transactions --bootstrap-server @ abort --topic t1 --partition 0
kafka-transactions --bootstrap-server @ abort --topic t1 --partition 0 --producer-id 77
kafka-transactions --bootstrap-server @ bogus
kafka-transactions --bootstrap-server @
kafka-transactions list
kafka-transactions --bootstrap-server @ --zookeeper x list
"""

SECTIONS = {
    "topics": TOPICS, "offsets": OFFSETS, "groups": GROUPS, "configs": CONFIGS, "quotas": QUOTAS, "users": USERS,
    "transactions": TRANSACTIONS,
}  # fmt: skip
Runner = Callable[[str, Sequence[str]], tuple[int, str]]
"""Runs a tool with its arguments: exit code and standard output."""


@dataclass(frozen=True, slots=True)
class Said:
    """A command line, its exit code, and the lines of its standard output in sorted order."""

    line: str
    code: int
    out: list[str]


CHANGES = (
    "--create",
    "--alter",
    "--delete",
    "--execute",
    "--add-config",
    "--delete-config",
    "--offset-json-file",
)
KAFKA_SETTLES_S = (
    0.3  # its broker answers questions from a copy of the controller's state that comes a little later
)


def play(section: str, address: str, directory: Path, run: Runner, *, settle_s: float = 0) -> list[Said]:
    """Run a section's command lines one after the other, with a pause after each that changes something."""
    write_files(directory)
    result = []
    for line in SECTIONS[section].strip().splitlines():
        if line == "RECORDS":
            write_records(address)
            continue
        tool, *words = shlex.split(line.removeprefix("~"))
        code, out = run(tool, [w.replace("@", address).replace("%", str(directory)) for w in words])
        if line.startswith("~"):
            out = re.sub(r"(?<= : ).*", "...", out)
        result.append(Said(line, code, normal(out, address, directory)))
        if any(change in words for change in CHANGES):
            time.sleep(settle_s)
    return result


def normal(out: str, address: str, directory: Path) -> list[str]:
    """Returns what must be the same everywhere: Kafka prints rows in the order of hash tables, so they are sorted."""
    text = out.replace(address, "HOST:PORT").replace(str(directory), "DIRECTORY")
    text = re.sub(r"TopicId: [\w-]{22}", "TopicId: ID", text)
    text = re.sub(r"(HOST:PORT {2}\(1\)) +", r"\1 ", text)  # as wide as the port
    return sorted(text.splitlines())


def write_files(directory: Path) -> None:
    """Writes the files that `%` stands before."""
    one = '{"partitions": [{"topic": "t1", "partition": 0, "offset": 1}%s], "version": 1}'
    files = {
        "good.json": one % ', {"topic": "t1", "partition": 2, "offset": -1}',
        "double.json": one % ', {"topic": "t1", "partition": 0, "offset": 1}',
        "beyond.json": one % ', {"topic": "t1", "partition": 1, "offset": 999}',
        "bad.json": "xx",
        "plan.csv": "t1,0,1\nt1,1,99\n",
        "groups.csv": "g1,t1,0,1\ng1,t1,1,99\n",
        "topic.properties": "segment.bytes=2000000\n",
    }
    for name, text in files.items():
        (directory / name).write_text(text)


def write_records(address: str) -> None:
    """Records with known timestamps, and offsets of the groups `g1` and `my group`."""
    producer = Producer({"bootstrap.servers": address, "linger.ms": 0})
    for topic, partition, count in (("t1", 0, 2), ("t1", 1, 2), ("t1", 2, 1), (LONG, 1, 3)):
        for i in range(count):
            producer.produce(topic, f"v{i}", f"k{i}", partition, timestamp=BASE_MS + i * 1000)
    assert producer.flush(60) == 0
    for group, offsets in (
        ("g1", [TopicPartition("t1", 0, 2), TopicPartition("t1", 1, 1, leader_epoch=0)]),
        ("my group", [TopicPartition(LONG, 1, 0)]),
    ):
        consumer = Consumer({"bootstrap.servers": address, "group.id": group})
        try:
            consumer.commit(offsets=offsets, asynchronous=False)
        finally:
            consumer.close()
