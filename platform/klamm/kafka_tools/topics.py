"""`kafka-topics`: list, create, describe, alter and delete topics."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from klamm.admin import topics as api
from klamm.admin.client import Admin
from klamm.admin.configs import DEFAULT, Resource, describe_config
from klamm.admin.errors import AdminError
from klamm.admin.filters import topic_pattern
from klamm.admin.model import TopicPartition
from klamm.kafka_tools.failures import reason
from klamm.kafka_tools.options import COMMAND_CONFIG, Option, Options, UsageError, say
from klamm.kafka_tools.run import with_admin
from klamm_base.errors import KlammError
from klamm_broker.coordinator import java_order
from klamm_kafka.wire.errors import ErrorCode

SUMMARY = "create, delete, describe, or change a topic."
OPTIONS = (
    Option("bootstrap-server", "REQUIRED: The broker to connect to.", "HOST:PORT,..."),
    COMMAND_CONFIG,
    Option("list", "List all topics."),
    Option("create", "Create a topic."),
    Option("delete", "Delete topics."),
    Option("alter", "Give topics more partitions. (kafka-configs alters settings.)"),
    Option("describe", "Describe topics and their partitions."),
    Option("topic", "The topic; except for --create a regular expression.", "TOPIC"),
    Option("topic-id", "The id of a topic to describe.", "ID"),
    Option("config", "A setting of the topic that is created.", "NAME=VALUE"),
    Option("delete-config", "No longer supported by Kafka since 4.0: use kafka-configs.", "NAME"),
    Option("partitions", "How many partitions; --create: by default the cluster's default.", "N"),
    Option("replication-factor", "Replicas of each partition; by default the cluster's.", "N"),
    Option("replica-assignment", "Brokers of each partition's replicas.", "ID:ID,ID:ID,..."),
    Option("under-replicated-partitions", "--describe: only partitions with a replica out of sync."),
    Option("unavailable-partitions", "--describe: only partitions without a live leader."),
    Option("under-min-isr-partitions", "--describe: only partitions below min.insync.replicas."),
    Option("at-min-isr-partitions", "--describe: only partitions just at min.insync.replicas."),
    Option("topics-with-overrides", "--describe: only topics with settings of their own."),
    Option("if-exists", "--alter, --delete, --describe: a topic that does not exist is no error."),
    Option("if-not-exists", "--create: a topic that exists is no error."),
    Option("exclude-internal", "--list, --describe: without internal topics."),
    Option(
        "partition-size-limit-per-response", "Partitions to ask for at a time.", "N"
    ),
)  # fmt: skip
_ACTIONS: Final = ("create", "list", "alter", "describe", "delete")
_REPORTS: Final = (
    "under-replicated-partitions", "under-min-isr-partitions", "at-min-isr-partitions", "unavailable-partitions",
)  # fmt: skip
_HINT: Final = " (To alter topic configurations, the kafka-configs tool can be used.)"
_COLLISION: Final = (
    "WARNING: Due to limitations in metric names, topics with a period ('.') or underscore ('_') could collide."
    " To avoid issues it is best to use either, but not both."
)


def run(options: Options) -> int:
    """Check the command line as Kafka does, then act."""
    actions = [a for a in _ACTIONS if options.has(a)]
    if len(actions) != 1:
        raise UsageError(
            "Command must include exactly one action: --list, --describe, --create, --alter or --delete"
        )
    if options.has("delete-config"):
        say(
            "delete-config option is no longer supported and deprecated since version 4.0."
            " The config will be fully removed in future releases."
        )
    _check(options)
    act = {"create": _create, "list": _list, "alter": _alter, "describe": _describe, "delete": _delete}
    try:
        with_admin(options, lambda admin: act[actions[0]](admin, options))
    except (KlammError, UsageError) as e:
        said = reason(e) if isinstance(e, AdminError) else str(e)
        sys.stdout.write(f"Error while executing topic command : {said}\n")
        return 1
    return 0


def _check(options: Options) -> None:
    if not options.has("bootstrap-server"):
        raise UsageError("--bootstrap-server must be specified")
    if options.has("describe") and options.has("if-exists"):
        if not options.has("topic") and not options.has("topic-id"):
            raise UsageError("--topic or --topic-id is required to describe a topic")
        if options.has("topic") and options.has("topic-id"):
            sys.stdout.write(
                "Only topic id will be used when both --topic and --topic-id are specified and topicId is not"
                " Uuid.ZERO_UUID\n"
            )
    if not options.has("list") and not options.has("describe"):
        options.require("topic")
    if options.has("alter"):
        if options.has("config"):
            raise UsageError(
                f'Option combination "[bootstrap-server],[config]" can\'t be used with option "[alter]"{_HINT}'
            )
        options.require("partitions")
    rules: list[tuple[str, tuple[str, ...]]] = [
        ("config", ("alter", "create")),
        ("partitions", ("alter", "create")),
        ("replication-factor", ("create",)),
        ("replica-assignment", ("alter", "create")),
        ("if-exists", ("alter", "delete", "describe")),
        ("if-not-exists", ("create",)),
        ("exclude-internal", ("list", "describe")),
    ]
    for name, allowed in rules:
        options.exclude(name, [a for a in _ACTIONS if a not in allowed])
    if options.has("create"):
        options.exclude("replica-assignment", ["partitions", "replication-factor"])
    for name in _REPORTS:
        options.exclude(name, [a for a in _ACTIONS if a != "describe"] + ["topics-with-overrides"])
    options.exclude("topics-with-overrides", [a for a in _ACTIONS if a != "describe"] + list(_REPORTS))


# ---- actions


async def _list(admin: Admin, options: Options) -> None:
    sys.stdout.write("\n".join(t.name for t in await _chosen(admin, options)) + "\n")


async def _chosen(admin: Admin, options: Options) -> list[api.Topic]:
    """Return the topics that --topic means, without internal ones if told so."""
    pattern = topic_pattern(options.text("topic")) if options.has("topic") else None
    return [
        t
        for t in await api.list_topics(admin)
        if (pattern is None or pattern.fullmatch(t.name))
        and not (t.internal and options.has("exclude-internal"))
    ]


async def _existing(admin: Admin, options: Options) -> list[api.Topic]:
    found = await _chosen(admin, options)
    if not found and options.get("topic") and not options.has("if-exists"):
        raise KlammError(f"Topic '{options.get('topic')}' does not exist as expected")
    return found


async def _create(admin: Admin, options: Options) -> None:
    name = options.text("topic")
    configs = _configs(options.all("config"))
    assignment = parse_assignment(options.get("replica-assignment") or "")
    if "." in name or "_" in name:
        sys.stdout.write(_COLLISION + "\n")
    factor, count = options.number("replication-factor"), options.number("partitions")
    if factor is not None and not 1 <= factor <= 32767:
        raise KlammError("The replication factor must be between 1 and 32767 inclusive")
    if count is not None and count < 1:
        raise KlammError("The partitions must be greater than 0")
    try:
        await api.create_topic(
            admin,
            name,
            partitions=-1 if count is None else count,
            replication_factor=-1 if factor is None else factor,
            assignment=assignment,
            configs=configs,
        )
    except AdminError as e:
        if e.code == ErrorCode.TOPIC_ALREADY_EXISTS and options.has("if-not-exists"):
            return
        raise
    sys.stdout.write(f"Created topic {name}.\n")


def _configs(words: Sequence[str]) -> dict[str, str]:
    pairs = [re.split(r"\s*=\s*", w) for w in words]
    if any(len(p) != 2 or not p[1] for p in pairs):
        raise KlammError(
            'requirement failed: Invalid topic config: all configs to be added must be in the format "key=val".'
        )
    return {k.strip(): v.strip() for k, v in pairs}


def parse_assignment(text: str) -> dict[int, list[int]]:
    """Return `1:2,2:1` as replicas by partition. Raises KlammError."""
    result: dict[int, list[int]] = {}
    for number, word in enumerate(text.split(",") if text else ()):
        parts = [p.strip() for p in word.split(":")]
        if not all(p.isdecimal() for p in parts):
            bad = next(p for p in parts if not p.isdecimal())
            raise KlammError(f'For input string: "{bad}"')
        ids = [int(p) for p in parts]
        doubles = [i for i in dict.fromkeys(ids) if ids.count(i) > 1]
        if doubles:
            said = ",".join(map(str, doubles))
            raise KlammError(f"Partition replica lists may not contain duplicate entries: {said}")
        result[number] = ids
        if len(ids) != len(result[0]):
            raise KlammError(f"Partition {number} has different replication factor: {ids}")
    return result


async def _alter(admin: Admin, options: Options) -> None:
    topics = await _existing(admin, options)
    count = options.number("partitions") or 0
    assignment = list(parse_assignment(options.get("replica-assignment") or "").values())
    if topics:
        new = {t.name: assignment[len(t.partitions) :] for t in topics} if assignment else None
        await api.create_partitions(admin, {t.name: count for t in topics}, new)


async def _delete(admin: Admin, options: Options) -> None:
    topics = await _existing(admin, options)
    if topics:
        await api.delete_topics(admin, [t.name for t in topics])


# ---- describe


@dataclass(frozen=True, slots=True, kw_only=True)
class _Described:
    topic: api.Topic
    configs: str
    min_isr: int


async def _describe(admin: Admin, options: Options) -> None:
    topics = await _to_describe(admin, options)
    live = set(await admin.brokers())
    moving = await api.reassignments(admin, topics) if topics else {}
    for topic in topics:
        partitions = tuple(
            replace(p, adding=tuple(moved[0]), removing=tuple(moved[1])) if moved else p
            for p in topic.partitions
            for moved in [moving.get(TopicPartition(topic.name, p.number))]
        )
        entries = await describe_config(admin, Resource.TOPIC, topic.name)
        named = {e.name: e for e in entries}
        ordered = [named[n] for n in java_order.strings(named)]  # this line is not sorted in Kafka's output
        own = ",".join(f"{e.name}={_shown(e.value)}" for e in ordered if e.source != DEFAULT)
        min_isr = next((int(e.value or 1) for e in entries if e.name == "min.insync.replicas"), 1)
        described = _Described(topic=replace(topic, partitions=partitions), configs=own, min_isr=min_isr)
        _print_topic(described, options, live)


def _shown(value: str | None) -> str:
    return "null" if value is None else value


async def _to_describe(admin: Admin, options: Options) -> list[api.Topic]:
    limit = options.number("partition-size-limit-per-response")
    wanted = _topic_id(options)
    if wanted is None:
        return await api.describe_topics(
            admin, [t.name for t in await _existing(admin, options)], limit=limit
        )
    found = [
        t
        for t in await api.list_topics(admin)
        if t.id == wanted and not (t.internal and options.has("exclude-internal"))
    ]
    if not found and not options.has("if-exists"):
        raise KlammError(f"TopicId '{options.get('topic-id')}' does not exist as expected")
    # Kafka asks Metadata for topics by id; Metadata has no eligible leader replicas
    return found


def _topic_id(options: Options) -> bytes | None:
    text = options.get("topic-id")
    if text is None:
        return None
    try:
        raw = api.parse_id(text)
    except ValueError as e:
        raise KlammError(f"Input string `{text}` cannot be used as a topic id: {e}") from None
    return raw if any(raw) else None


def _print_topic(described: _Described, options: Options, live: set[int]) -> None:
    topic = described.topic
    reports = [r for r in _REPORTS if options.has(r)]
    with_overrides = options.has("topics-with-overrides")
    if not reports and (not with_overrides or described.configs):
        head = [
            f"Topic: {topic.name}",
            *([f"TopicId: {api.id_text(topic.id)}"] if any(topic.id) else []),
            f"PartitionCount: {len(topic.partitions)}",
            f"ReplicationFactor: {topic.partitions[0].replication_factor}",
            f"Configs: {described.configs}",
        ]
        sys.stdout.write("\t".join(head) + "\n")
    if with_overrides:
        return
    for p in topic.partitions:
        if not reports or any(_reported(r, p, described.min_isr, live) for r in reports):
            sys.stdout.write(_partition_line(topic.name, p) + "\n")


def _reported(report: str, p: api.Partition, min_isr: int, live: set[int]) -> bool:
    match report:
        case "under-replicated-partitions":
            return len(p.isr) < p.replication_factor
        case "under-min-isr-partitions":
            return p.leader is None or len(p.isr) < min_isr
        case "at-min-isr-partitions":
            return len(p.isr) == min_isr
        case _:
            return p.leader is None or p.leader not in live


def _partition_line(topic: str, p: api.Partition) -> str:
    def ids(numbers: tuple[int, ...] | None) -> str:
        return "N/A" if numbers is None else ",".join(map(str, numbers))

    cells = [
        f"\tTopic: {topic}",
        f"Partition: {p.number}",
        f"Leader: {'none' if p.leader is None else p.leader}",
        f"Replicas: {ids(p.replicas)}",
        f"Isr: {ids(p.isr)}",
    ]
    if p.adding is not None:
        cells += [f"Adding Replicas: {ids(p.adding)}", f"Removing Replicas: {ids(p.removing)}"]
    return "\t".join([*cells, f"Elr: {ids(p.elr)}", f"LastKnownElr: {ids(p.last_known_elr)}"])
