"""The offsets of groups in Kafka's commands: what to reset them to, from options or a file, and forgetting them."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from klamm.admin import groups as api
from klamm.admin.client import Admin
from klamm.admin.errors import AdminError
from klamm.admin.model import TopicPartition
from klamm.admin.reset import How, Reset, ResetError, parse_datetime, parse_duration, parse_topic, read_csv
from klamm.kafka_tools.failures import reason, with_class
from klamm.kafka_tools.group_tables import missing
from klamm.kafka_tools.options import Options, UsageError
from klamm_base.errors import KlammError
from klamm_kafka.wire.errors import ErrorCode

SCENARIOS: Final = (
    "to-offset", "shift-by", "to-datetime", "by-duration", "to-earliest", "to-latest", "to-current", "from-file",
)  # fmt: skip


class Plain(KlammError):
    """A failure whose text follows `failed due to` unchanged."""


def print_error(text: str) -> None:
    """Print an error as Kafka's commands for groups do."""
    sys.stdout.write(f"\nError: {text}\n")


async def forget(
    admin: Admin,
    group: str,
    wanted: Sequence[TopicPartition],
    results: dict[TopicPartition, AdminError | None],
) -> None:
    """Forget a group's offsets and print the outcome; `results` has what failed before."""
    top: AdminError | None = None
    try:
        results |= await api.delete_offsets(admin, group, wanted)
    except AdminError as e:
        top = e
        results |= dict.fromkeys(wanted, e)
    failed = top or next((e for tp, e in results.items() if e is not None and tp in wanted), None)
    if failed is None:
        sys.stdout.write(f"Request succeeded for deleting offsets from group {group}.\n")
    elif failed.code in (ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
        print_error("Encountered some partition-level error, see the follow-up details.")
    else:
        print_error(reason(failed))
    width = max([15, *(len(tp.topic) for tp in results)])
    lines = [f"{'TOPIC':<{width}} {'PARTITION':<10} {'STATUS':<15}"]
    for tp in sorted(results, key=lambda tp: f"{tp.topic}{tp.partition}"):
        error = results[tp]
        status = "Successful" if error is None else f"Error: {with_class(error)}"
        number = missing(tp.partition if tp.partition >= 0 else None)
        lines.append(f"{tp.topic:<{width}} {number:<10} {status:<15}")
    sys.stdout.write("\n" + "\n".join(lines) + "\n")


async def partitions_to_forget(
    admin: Admin, words: Sequence[str], results: dict[TopicPartition, AdminError | None]
) -> list[TopicPartition]:
    """Return the partitions of these words, `topic` or `topic:0,1`; an unknown topic goes to `results` as partition -1."""
    wanted: set[TopicPartition] = set()
    for word in words:
        try:
            name, numbers = parse_topic(word)
        except ResetError as e:
            raise UsageError(str(e)) from None
        if numbers is not None:
            wanted |= {TopicPartition(name, p) for p in numbers}
            continue
        found = (await admin.metadata([name])).topics[0]
        if found.error_code:
            results[TopicPartition(name, -1)] = AdminError(found.error_code, name)
        wanted |= {TopicPartition(name, p.partition_index) for p in found.partitions}
    return sorted(wanted)


def wanted_reset(options: Options, groups: Sequence[str]) -> Reset:
    """Return the reset that the options ask for. Raises UsageError."""
    given = [s for s in SCENARIOS if options.has(s)]
    if not given:
        said = ", ".join(f"[{s}]" for s in SCENARIOS)
        raise UsageError(f"Option '[reset-offsets]' requires one of the following scenarios: [{said}]")
    match given[0]:
        case "to-offset":
            return Reset(how=How.OFFSET, value=options.number("to-offset") or 0)
        case "shift-by":
            return Reset(how=How.SHIFT, value=options.number("shift-by") or 0)
        case "to-datetime":
            return Reset(how=How.TIME, value=parse_datetime(options.text("to-datetime")))
        case "by-duration":
            duration = parse_duration(options.text("by-duration"))
            return Reset(how=How.TIME, value=int(time.time() * 1000) - duration)
        case "from-file":
            return Reset(how=How.FILE, plan=read_plan(Path(options.text("from-file")), groups))
        case name:
            simple = {"to-earliest": How.EARLIEST, "to-latest": How.LATEST, "to-current": How.CURRENT}
            return Reset(how=simple[name])


def read_plan(path: Path, groups: Sequence[str]) -> dict[str, dict[TopicPartition, int]]:
    """Return the offsets of a file by group."""
    try:
        return read_csv(path.read_text(), groups)
    except (OSError, UnicodeDecodeError) as e:
        raise Plain(f"{path} cannot be read: {getattr(e, 'strerror', None) or e}") from None
    except ResetError as e:
        raise Plain(f"{path}: {e}") from None
