"""Command lines of Kafka's tools for brokers, replicas, leaders and features, to be run by Kafka's tools and by ours.

As in `tool_scenarios`: `@` stands for the broker's address, `%` for a directory with the files of `write_plans`. A `!` in front: Kafka's tool ends
its JVM, so that only ours is run, which must end with 1 as well.
"""

from __future__ import annotations

import json
import re
import shlex
import time
from collections.abc import Callable, Sequence
from pathlib import Path

CLUSTER = """
kafka-cluster cluster-id --bootstrap-server @
kafka-cluster cluster-id -b @
kafka-cluster list-endpoints --bootstrap-server @
kafka-cluster list-endpoints --bootstrap-server @ --include-fenced-brokers
kafka-cluster unregister --bootstrap-server @ --id 99
!kafka-cluster unregister --bootstrap-server @
!kafka-cluster unregister --bootstrap-server @ --id x
!kafka-cluster cluster-id
!kafka-cluster bogus
!kafka-cluster
!kafka-cluster cluster-id --help
kafka-broker-api-versions --bootstrap-server @
kafka-broker-api-versions
kafka-broker-api-versions --bootstrap-server @ --bogus
"""

FEATURES = """
kafka-features --bootstrap-server @ describe
kafka-features --bootstrap-server @ version-mapping
kafka-features --bootstrap-server @ version-mapping --release-version 3.9-IV0
kafka-features --bootstrap-server @ version-mapping --release-version 3.3-IV3
kafka-features --bootstrap-server @ version-mapping --release-version 4.0
kafka-features --bootstrap-server @ version-mapping --release-version 9.9
kafka-features --bootstrap-server @ feature-dependencies --feature metadata.version=25 --feature transaction.version=2
kafka-features --bootstrap-server @ feature-dependencies --feature kraft.version=1
kafka-features --bootstrap-server @ feature-dependencies --feature eligible.leader.replicas.version=1
kafka-features --bootstrap-server @ feature-dependencies --feature share.version=1
kafka-features --bootstrap-server @ feature-dependencies --feature bogus=1
kafka-features --bootstrap-server @ feature-dependencies --feature bogus
kafka-features --bootstrap-server @ feature-dependencies --feature metadata.version=99
kafka-features --bootstrap-server @ feature-dependencies --feature group.version=9
kafka-features --bootstrap-server @ feature-dependencies
kafka-features --bootstrap-server @ upgrade
kafka-features --bootstrap-server @ upgrade --feature bogus=1
kafka-features --bootstrap-server @ upgrade --feature group.version=1 --dry-run
kafka-features --bootstrap-server @ upgrade --feature group.version=9 --dry-run
kafka-features --bootstrap-server @ upgrade --release-version 4.3 --dry-run
kafka-features --bootstrap-server @ upgrade --release-version 9.9
kafka-features --bootstrap-server @ upgrade --release-version 4.3 --feature group.version=1
kafka-features --bootstrap-server @ upgrade --metadata 4.3-IV0 --dry-run
kafka-features --bootstrap-server @ downgrade --feature bogus=1 --dry-run
kafka-features --bootstrap-server @ disable --feature bogus
kafka-features --bootstrap-server @ disable
kafka-features --bootstrap-server @ bogus
kafka-features --bootstrap-server @
kafka-features describe
"""

LEADERS = """
kafka-topics --bootstrap-server @ --create --topic t1 --partitions 2
kafka-topics --bootstrap-server @ --create --topic t2 --partitions 1
kafka-leader-election --bootstrap-server @ --election-type preferred --topic t1 --partition 0
kafka-leader-election --bootstrap-server @ --election-type PREFERRED --topic t1 --partition 1
kafka-leader-election --bootstrap-server @ --election-type unclean --topic t1 --partition 0
kafka-leader-election --bootstrap-server @ --election-type preferred --path-to-json-file %/election.json
kafka-leader-election --bootstrap-server @ --election-type preferred --path-to-json-file %/twice.json
kafka-leader-election --bootstrap-server @ --election-type preferred --path-to-json-file %/bad.json
kafka-leader-election --bootstrap-server @ --election-type preferred --path-to-json-file %/other.json
kafka-leader-election --bootstrap-server @ --election-type preferred --path-to-json-file %/none.json
kafka-leader-election --bootstrap-server @ --election-type preferred --topic nope --partition 0
kafka-leader-election --bootstrap-server @ --election-type preferred --topic t1 --partition 9
kafka-leader-election --bootstrap-server @ --election-type preferred --topic t1
kafka-leader-election --bootstrap-server @ --election-type preferred --partition 0 --all-topic-partitions
kafka-leader-election --bootstrap-server @ --election-type preferred
kafka-leader-election --bootstrap-server @ --election-type bogus --topic t1 --partition 0
kafka-leader-election --bootstrap-server @ --topic t1 --partition 0
kafka-leader-election --election-type preferred --topic t1 --partition 0
kafka-leader-election --bootstrap-server @ --election-type preferred --topic t1 --partition x
kafka-leader-election
kafka-topics --bootstrap-server @ --delete --topic t1
kafka-topics --bootstrap-server @ --delete --topic t2
"""

REASSIGN = """
kafka-topics --bootstrap-server @ --create --topic t1 --partitions 2
kafka-topics --bootstrap-server @ --create --topic t2 --partitions 1
kafka-reassign-partitions --bootstrap-server @ --list
kafka-reassign-partitions --bootstrap-server @ --generate --topics-to-move-json-file %/move.json --broker-list 1
kafka-reassign-partitions --bootstrap-server @ --generate --topics-to-move-json-file %/move.json --broker-list 1,1
kafka-reassign-partitions --bootstrap-server @ --generate --topics-to-move-json-file %/move.json --broker-list 7
kafka-reassign-partitions --bootstrap-server @ --generate --topics-to-move-json-file %/absent-topic.json --broker-list 1
kafka-reassign-partitions --bootstrap-server @ --generate --topics-to-move-json-file %/move.json
kafka-reassign-partitions --bootstrap-server @ --execute --reassignment-json-file %/stay.json
kafka-reassign-partitions --bootstrap-server @ --verify --reassignment-json-file %/stay.json
kafka-reassign-partitions --bootstrap-server @ --verify --reassignment-json-file %/elsewhere.json --preserve-throttles
kafka-reassign-partitions --bootstrap-server @ --execute --reassignment-json-file %/elsewhere.json
kafka-reassign-partitions --bootstrap-server @ --execute --reassignment-json-file %/stay.json --disallow-replication-factor-change
kafka-reassign-partitions --bootstrap-server @ --execute --reassignment-json-file %/nowhere.json
kafka-reassign-partitions --bootstrap-server @ --verify --reassignment-json-file %/nowhere.json
kafka-reassign-partitions --bootstrap-server @ --execute --reassignment-json-file %/double.json
kafka-reassign-partitions --bootstrap-server @ --execute --reassignment-json-file %/same.json
kafka-reassign-partitions --bootstrap-server @ --execute --reassignment-json-file %/empty.json
kafka-reassign-partitions --bootstrap-server @ --execute --reassignment-json-file %/none.json
kafka-reassign-partitions --bootstrap-server @ --execute --reassignment-json-file %/dirs.json
kafka-reassign-partitions --bootstrap-server @ --cancel --reassignment-json-file %/stay.json
kafka-reassign-partitions --bootstrap-server @ --cancel --reassignment-json-file %/stay.json --preserve-throttles
kafka-reassign-partitions --bootstrap-server @ --execute --reassignment-json-file %/stay.json --throttle 100000
kafka-configs --bootstrap-server @ --describe --broker 1
kafka-reassign-partitions --bootstrap-server @ --verify --reassignment-json-file %/stay.json --preserve-throttles
kafka-reassign-partitions --bootstrap-server @ --verify --reassignment-json-file %/stay.json
kafka-configs --bootstrap-server @ --describe --broker 1
kafka-configs --bootstrap-server @ --describe --topic t1
kafka-reassign-partitions --bootstrap-server @ --execute
kafka-reassign-partitions --bootstrap-server @ --execute --verify --reassignment-json-file %/stay.json
kafka-reassign-partitions --bootstrap-server @
kafka-reassign-partitions --bootstrap-server @ --list --throttle 5
kafka-reassign-partitions --list
kafka-reassign-partitions
kafka-topics --bootstrap-server @ --delete --topic t1
kafka-topics --bootstrap-server @ --delete --topic t2
"""

SECTIONS = {"cluster": CLUSTER, "features": FEATURES, "leaders": LEADERS, "reassign": REASSIGN}


_CHANGES = {"--create", "--delete", "--execute", "--cancel", "--verify"}
Runner = Callable[[str, Sequence[str]], tuple[int, str]]


def play(
    section: str, address: str, directory: Path, run: Runner, *, ours: bool, settle_s: float = 0
) -> list[tuple[str, int, str]]:
    """Runs a section's command lines one after the other: line, exit code and standard output of each."""
    write_plans(directory)
    result = []
    for line in SECTIONS[section].strip().splitlines():
        tool, *words = shlex.split(line.removeprefix("!"))
        if line.startswith("!") and not ours:
            code, out = 1, ""
        else:
            code, out = run(tool, [w.replace("@", address).replace("%", str(directory)) for w in words])
        result.append((line, code, "" if line.startswith("!") else without_traces(out)))
        if _CHANGES & set(words):
            time.sleep(settle_s)
    return result


def without_traces(out: str) -> str:
    """Leaves out Java's stack traces, which ours does not print, and the epoch of features, which goes on."""
    out = re.sub(r"Epoch: \d+", "Epoch: N", out)
    return re.sub(
        r"(?m)^(\t|Caused by: |(org|java)\.[\w.$]+(Exception|Error)\b).*\n?| at \[Source: .*\n", "", out
    ).rstrip("\n")


def write_plans(directory: Path) -> None:
    """Writes the files that `%` stands before."""

    def moved(*rows: dict[str, object]) -> str:
        return json.dumps({"version": 1, "partitions": rows})

    def row(topic: str, partition: int, *replicas: int, **more: object) -> dict[str, object]:
        return {"topic": topic, "partition": partition, "replicas": replicas, **more}

    def elected(*partitions: tuple[str, int]) -> str:
        return json.dumps({"partitions": [{"topic": t, "partition": p} for t, p in partitions]})

    files = {
        "election.json": elected(("t1", 0), ("t2", 0)),
        "twice.json": elected(("t1", 0), ("t1", 0)),
        "other.json": '{"partition": []}',
        "bad.json": "xx",
        "move.json": '{"topics": [{"topic": "t1"}, {"topic": "t2"}], "version": 1}',
        "absent-topic.json": '{"topics": [{"topic": "nope"}], "version": 1}',
        "stay.json": moved(row("t1", 0, 1), row("t1", 1, 1)),
        "elsewhere.json": moved(row("t1", 0, 7)),
        "nowhere.json": moved(row("nope", 0, 1)),
        "double.json": moved(row("t1", 0, 1), row("t1", 0, 1)),
        "same.json": moved(row("t1", 0, 1, 1)),
        "empty.json": moved(row("t1", 0)),
        "dirs.json": moved(row("t1", 0, 1, log_dirs=["/nowhere"])),
    }
    for name, text in files.items():
        (directory / name).write_text(text)
