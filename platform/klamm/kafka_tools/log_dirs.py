"""`kafka-log-dirs`: the contents of brokers' log directories, as JSON."""

from __future__ import annotations

import json
import sys
from typing import Any

from klamm.admin.client import Admin
from klamm.admin.records import LogDir, describe_log_dirs
from klamm.kafka_tools.failures import with_class
from klamm.kafka_tools.options import COMMAND_CONFIG, Option, Options, UsageError
from klamm.kafka_tools.run import with_admin
from klamm_base.errors import KlammError

SUMMARY = "ask brokers what their log directories hold."
OPTIONS = (
    Option("bootstrap-server", "REQUIRED: The brokers to connect to.", "HOST:PORT,..."),
    COMMAND_CONFIG,
    Option("describe", "Describe the log directories."),
    Option("topic-list", "Only these topics; all if there is none.", "TOPIC,..."),
    Option("broker-list", "Only these brokers; all if there is none.", "ID,..."),
)


def run(options: Options) -> int:
    options.require("bootstrap-server", "describe")
    topics = {t for t in (options.get("topic-list") or "").split(",") if t}
    numbers = [b for b in (options.get("broker-list") or "").split(",") if b]
    if not all(n.isdecimal() for n in numbers):
        bad = next(n for n in numbers if not n.isdecimal())
        raise UsageError(f'For input string: "{bad}"')

    async def act(admin: Admin) -> None:
        live = await admin.brokers()
        wanted = [int(n) for n in dict.fromkeys(numbers)] or list(live)
        strangers = [b for b in wanted if b not in live]
        if strangers:
            said = ",".join(map(str, strangers))
            raise KlammError(
                f"ERROR: The given brokers do not exist from --broker-list: {said}. Current existent brokers: "
                + ",".join(map(str, live))
            )
        sys.stdout.write("Querying brokers for log directories information\n")
        found = await describe_log_dirs(admin, wanted)
        said = ",".join(map(str, wanted))
        sys.stdout.write(f"Received log directory information from brokers {said}\n")
        sys.stdout.write(as_json(wanted, found, topics) + "\n")

    with_admin(options, act)
    return 0


def as_json(brokers: list[int], found: list[LogDir], topics: set[str]) -> str:
    """Return Kafka's document of version 1, with partitions of these topics (none given: of all topics)."""
    rows: list[dict[str, Any]] = []
    for broker in brokers:
        directories = [
            {
                "partitions": [
                    {
                        "partition": str(r.partition),
                        "size": r.size,
                        "offsetLag": r.lag,
                        "isFuture": r.future,
                    }
                    for r in d.replicas
                    if not topics or r.partition.topic in topics
                ],
                "error": with_class(d.error).partition(":")[0] if d.error else None,
                "logDir": d.path,
            }
            for d in found
            if d.broker == broker
        ]
        rows.append({"broker": broker, "logDirs": directories})
    return json.dumps({"brokers": rows, "version": 1}, separators=(",", ":"))
