"""`kafka-leader-election`: make the preferred replica, or any that lives, the leader of partitions."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any, Final

from klamm.admin.client import Admin
from klamm.admin.errors import AdminError
from klamm.admin.model import TopicPartition
from klamm.admin.replicas import PREFERRED, UNCLEAN, elect_leaders
from klamm.kafka_tools.failures import with_class
from klamm.kafka_tools.options import COMMAND_CONFIG, Option, Options, UsageError, say
from klamm.kafka_tools.run import connected
from klamm_base.errors import KlammError
from klamm_kafka.wire.errors import ErrorCode

SUMMARY = "elect leaders of partitions."
OPTIONS = (
    Option("bootstrap-server", "REQUIRED: The brokers to connect to.", "HOST:PORT,..."),
    COMMAND_CONFIG,
    Option("admin.config", "The older name of --command-config.", "FILE"),
    Option(
        "election-type",
        "REQUIRED: preferred: the first replica becomes the leader; unclean: any that lives, where there is none.",
        "TYPE",
    ),
    Option("topic", "The topic of one partition; with --partition.", "TOPIC"),
    Option("partition", "Its number.", "N"),
    Option("all-topic-partitions", "All partitions that need it."),
    Option(
        "path-to-json-file", 'A file like {"partitions": [{"topic": "foo", "partition": 1}]}.', "FILE"
    ),
)  # fmt: skip
TYPES: Final = {"PREFERRED": PREFERRED, "UNCLEAN": UNCLEAN}
_TIMEOUT_S: Final = 30.0


def run(options: Options) -> int:
    check(options)
    name = options.text("election-type").upper()
    partitions = chosen(options)
    config = options.get("command-config") or options.get("admin.config")

    async def act(admin: Admin) -> dict[TopicPartition, AdminError | None]:
        return await elect_leaders(admin, TYPES[name], partitions)

    try:
        results = connected(options.text("bootstrap-server"), config, act, timeout_s=_TIMEOUT_S)
    except AdminError as e:
        if e.code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            sys.stdout.write("Not authorized to perform leader election\n")
        elif e.code == ErrorCode.REQUEST_TIMED_OUT:
            sys.stdout.write("Timeout waiting for election results\n")
        raise
    return _told(name, results)


def check(options: Options) -> None:
    """Raise UsageError for a command line that Kafka's tool refuses, in its words."""
    missing = [n for n in ("bootstrap-server", "election-type") if not options.has(n)]
    if missing:
        raise UsageError(f"Missing required option(s): {', '.join(missing)}")
    if options.text("election-type").upper() not in TYPES:
        raise UsageError(f"Cannot parse argument '{options.get('election-type')}' of option election-type")
    ways = ("topic", "all-topic-partitions", "path-to-json-file")
    if sum(map(options.has, ways)) != 1:
        raise UsageError(f"One and only one of the following options is required: {', '.join(ways)}")
    if options.has("topic") and not options.has("partition"):
        raise UsageError("Missing required option(s): partition")
    if options.has("partition") and not options.has("topic"):
        raise UsageError("Option partition is only allowed if topic is used")


def chosen(options: Options) -> set[TopicPartition] | None:
    """Return the partitions that are asked for, None for all. Raises KlammError."""
    if options.has("path-to-json-file"):
        return set(read_partitions(Path(options.text("path-to-json-file"))))
    number = options.number("partition")
    return None if number is None else {TopicPartition(options.text("topic"), number)}


def read_partitions(path: Path) -> list[TopicPartition]:
    """Return the partitions of a JSON file. Raises KlammError naming what is wrong with it."""
    try:
        document: Any = json.loads(path.read_text())
    except OSError:
        raise KlammError(f"java.io.IOException: Unable to read file {path}") from None
    except ValueError:
        raise KlammError("Replica election data is empty") from None
    rows = document.get("partitions") if isinstance(document, dict) else None
    if not isinstance(rows, list):
        raise KlammError('Replica election data is missing "partitions" field')
    found: list[TopicPartition] = []
    for row in rows:
        topic, number = (row.get("topic"), row.get("partition")) if isinstance(row, dict) else (None, None)
        if not isinstance(topic, str) or type(number) is not int:
            raise KlammError(
                f"{path}: {json.dumps(row)[:120]} must have a topic (text) and a partition (number)"
            )
        found.append(TopicPartition(topic, number))
    doubles = sorted(tp for tp, count in Counter(found).items() if count > 1)
    if doubles:
        raise KlammError(
            f"Replica election data contains duplicate partitions: [{', '.join(map(str, doubles))}]"
        )
    return found


def _told(name: str, results: dict[TopicPartition, AdminError | None]) -> int:
    """Print what became of the elections, and return the exit code."""
    done = [tp for tp, error in results.items() if error is None]
    noop = [tp for tp, error in results.items() if error and error.code == ErrorCode.ELECTION_NOT_NEEDED]
    failed = {tp: e for tp, e in results.items() if e and e.code != ErrorCode.ELECTION_NOT_NEEDED}
    if done:
        said = ", ".join(map(str, sorted(done)))
        sys.stdout.write(f"Successfully completed leader election ({name}) for partitions {said}\n")
    if noop:
        said = ", ".join(map(str, sorted(noop)))
        sys.stdout.write(f"Valid replica already elected for partitions {said}\n")
    for tp, error in sorted(failed.items()):
        sys.stdout.write(
            f"Error completing leader election ({name}) for partition: {tp}: {with_class(error)}\n"
        )
    if failed:
        say(f"{len(failed)} replica(s) could not be elected")
    return 1 if failed else 0
