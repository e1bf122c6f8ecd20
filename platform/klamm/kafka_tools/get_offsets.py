"""`kafka-get-offsets`: offsets of partitions at a time."""

from __future__ import annotations

import sys

from klamm.admin.client import Admin
from klamm.admin.errors import AdminError
from klamm.admin.filters import PartitionFilter, by_rules, by_topic_and_numbers
from klamm.admin.offsets import NONE, list_offsets, parse_time
from klamm.admin.topics import partitions_where
from klamm.kafka_tools.failures import with_class
from klamm.kafka_tools.options import COMMAND_CONFIG, Option, Options, UsageError, say
from klamm.kafka_tools.run import with_admin
from klamm_base.errors import KlammError

SUMMARY = "offsets of topics' partitions at a point of time."
OPTIONS = (
    Option("bootstrap-server", "REQUIRED. Brokers to ask first.", "HOST:PORT,..."),
    COMMAND_CONFIG,
    Option("topic", "Only topics that match this regular expression.", "REGEX"),
    Option("partitions", "Only these partitions.", "NUMBER,..."),
    Option(
        "topic-partitions",
        "Only partitions that match one of these: topic regex, number, or range without its upper end.",
        "topic1:1,topic2:0-3,topic3,topic4:5-,topic5:-3",
    ),
    Option(
        "time",
        "A timestamp in ms, or -1 latest, -2 earliest, -3 max-timestamp, -4 earliest-local, -5 latest-tiered,"
        " -6 earliest-pending-upload. There is no line for a partition without a record that late.",
        "TIME",
        default="latest",
    ),
    Option("exclude-internal-topics", "Without __consumer_offsets and its kind."),
)


def run(options: Options) -> int:
    """Print lines `topic:partition:offset`, sorted as text, as Kafka does."""
    options.require("bootstrap-server")
    try:
        wanted, timestamp = _filter(options), parse_time(options.text("time"))
        return with_admin(options, lambda admin: _print(admin, options, wanted, timestamp))
    except UsageError:
        raise
    except KlammError as e:
        say(f"Error occurred: {e}")
        return 1


def _filter(options: Options) -> PartitionFilter:
    if options.has("topic-partitions"):
        if options.has("topic") or options.has("partitions"):
            raise KlammError("--topic-partitions cannot be used with --topic or --partitions")
        return by_rules(options.text("topic-partitions"))
    return by_topic_and_numbers(options.get("topic"), options.get("partitions"))


async def _print(admin: Admin, options: Options, wanted: PartitionFilter, timestamp: int) -> int:
    internal = options.has("exclude-internal-topics")
    partitions = await partitions_where(admin, wanted, exclude_internal=internal)
    if not partitions:
        raise KlammError("Could not match any topic-partitions with the specified filters")
    found = await list_offsets(admin, partitions, timestamp)
    for tp in sorted(found, key=str):
        offset = found[tp]
        if isinstance(offset, AdminError):
            reason = with_class(offset)
            say(f"Skip getting offsets for topic-partition {tp} due to error: {reason}")
        elif offset != NONE:
            sys.stdout.write(f"{tp.topic}:{tp.partition}:{offset}\n")
    return 0
