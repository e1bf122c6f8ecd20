"""Draws `klamm mirror status`: a few lines for each flow, then its partitions, the worst first."""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final

from klamm.cli.output import table
from klamm.cli.words import ago, amount, bar, duration, size

if TYPE_CHECKING:
    from klamm.mirror.shapes import FlowStatus, MirrorStatus, PartitionStatus, UpkeepStatus

WORST: Final = 10
"""Partitions of a flow that are shown unless somebody asks for more."""
BAR: Final = 10
WIDE: Final = 100
"""From so many columns on, bytes are shown, too."""
NOTABLE_S: Final = 2.0
"""Records that came later are on their way, and need no bar."""


def filtered(status: MirrorStatus, topics: Collection[str]) -> MirrorStatus:
    """Returns the status with the partitions of these topics alone: names, or patterns such as `orders*`."""
    if not topics:
        return status
    flows = [
        {**flow, "partitions": [p for p in flow["partitions"] if _matches(p, topics)]}
        for flow in status["flows"]
    ]
    return {**status, "flows": flows}  # type: ignore[typeddict-item]


def _matches(partition: PartitionStatus, topics: Collection[str]) -> bool:
    names = (partition["topic"], partition["remote_topic"])
    return any(fnmatchcase(name, wanted) for name in names for wanted in topics)


def drawn(status: MirrorStatus, *, room: int, everything: bool, unicode: bool = True) -> list[str]:
    """Returns the lines, none wider than `room` where that is possible. `everything`: all partitions that are there."""
    found: list[str] = []
    for flow in status["flows"]:
        found += ["", *_flow(flow, room, unicode=unicode)] if found else _flow(flow, room, unicode=unicode)
        shown = flow["partitions"] if everything else _worst(flow["partitions"])
        if shown:
            found += ["", *_partitions(shown, room, unicode=unicode)]
        if left := len(flow["partitions"]) - len(shown):
            behind = sum(not _even(p) for p in flow["partitions"][len(shown) :])
            said = f"{behind:,} behind, {left - behind:,} caught up" if behind else "all caught up"
            found += _wrapped(f"{left:,} more partitions: {said} (--all, --topic NAME)", room)
    return found


def _worst(partitions: Sequence[PartitionStatus]) -> list[PartitionStatus]:
    return [p for p in partitions[:WORST] if not _even(p) or p["gap_records"]]


def _even(partition: PartitionStatus) -> bool:
    return partition["lag"] == 0 and not partition["lag_seconds"] and partition["state"] == "RUNNING"


# ---- a flow


def _flow(flow: FlowStatus, room: int, *, unicode: bool) -> list[str]:
    head = f"{flow['flow']}  {flow['state']}"
    if flow["lag"] is not None:
        head += "  " + _lag(flow)
    lines = _wrapped(head, room, first="")
    if flow["why"]:
        lines += _wrapped(flow["why"], room)
    if _notable(flow["lag"], flow["lag_seconds"]):
        lines.append(_way_to_go(flow, min(40, room - 40), unicode=unicode))
    for facts in (_counts(flow), _ages(flow)):
        if facts:
            lines += _wrapped("; ".join(facts), room)
    for name, part in (flow.get("upkeep") or {}).items():  # older mirrors tell of none
        lines += [line for said in _upkeep(name, part) for line in _wrapped(said, room)]
    for group, why in (flow.get("groups_left_out") or {}).items():
        lines += _wrapped(f"group {group} is {why}", room)
    return lines


def _notable(lag: int | None, lag_seconds: float | None) -> bool:
    """Returns True for a lag that has lasted: records that have just arrived are on their way."""
    return bool(lag) and (lag_seconds is None or lag_seconds > NOTABLE_S)


def _upkeep(name: str, part: UpkeepStatus) -> list[str]:
    """Returns a sentence on schemas, quotas or users, and one for each conflict."""
    facts = [f"{count:,} {what}" for what, count in part["figures"].items() if count or what != "conflicts"]
    if part["age_seconds"] is not None:
        facts.append(f"as of {whole(ago(part['age_seconds']))}")
    found = [f"{name}: {', '.join(facts)}" + (f"; {part['why']}" if part["why"] else "")]
    if part["examples"]:
        found.append(f"  {', '.join(part['examples'])}")
    return found + [f"  {what}: {why}" for what, why in part["conflicts"].items()]


def _lag(flow: FlowStatus) -> str:
    rates = f"{amount(flow['record_rate'] or 0)} records/s, {whole(size(flow['byte_rate'] or 0))}/s"
    if not flow["lag"]:
        if flow["partitions_stopped"]:
            return f"the other partitions caught up, {rates}"
        silent = flow["lag_seconds"]
        state = f"nothing is known of the last {whole(duration(silent))}" if silent else "caught up"
        return f"{state}, {rates}"
    records = "1 record" if flow["lag"] == 1 else f"{flow['lag']:,} records"
    return f"{records} behind, the oldest {whole(duration(flow['lag_seconds']))}, {rates}"


def _way_to_go(flow: FlowStatus, width: int, *, unicode: bool) -> str:
    share = flow["caught_up"] or 0.0
    end = flow["catch_up_seconds"]
    said = "not catching up" if end is None else f"caught up in {duration(end)}"
    return f"  {bar(share, max(width, BAR), unicode=unicode)} {share:4.0%}  {said}"


def _counts(flow: FlowStatus) -> list[str]:
    if not flow["partitions_total"]:
        return [] if flow["enabled"] else ["heartbeats only"]
    facts = [f"{flow['partitions_total']:,} partitions"]
    if flow["partitions_stopped"]:
        facts.append(f"{flow['partitions_stopped']:,} stopped")
    if flow["partitions_unknown"]:
        facts.append(f"{flow['partitions_unknown']:,} of unknown lag")
    facts.append(f"gaps: {flow['gap_records']:,} records")
    return facts


def _ages(flow: FlowStatus) -> list[str]:
    ages = (
        ("checkpoints", flow["checkpoint_age_seconds"]),
        ("group offsets", flow["group_offset_age_seconds"]),
        ("heartbeat", flow["heartbeat_age_seconds"]),
    )
    return [f"{name} {whole(ago(age))}" for name, age in ages if age is not None]


# ---- partitions


def _partitions(shown: Sequence[PartitionStatus], room: int, *, unicode: bool) -> list[str]:
    columns = ["topic", "part", "state", "lag", "oldest", "records/s", "bytes/s", "catch_up", "gaps"]
    if all(p["state"] == "RUNNING" for p in shown):
        columns.remove("state")
    if not any(p["gap_records"] for p in shown):
        columns.remove("gaps")
    if room < WIDE:
        columns.remove("bytes/s")
    rows = [_row(p, unicode=unicode) for p in shown]
    lines = table(rows, columns, room=room).splitlines()
    found = lines[:1]
    reasons = [*(p["why"] for p in shown[1:]), None]
    for line, partition, next_why in zip(lines[1:], shown, reasons, strict=True):
        found.append(line)
        if partition["why"] and partition["why"] != next_why:  # once for partitions in a row
            found += _wrapped(partition["why"], room)
    return found


def _row(partition: PartitionStatus, *, unicode: bool) -> dict[str, object]:
    lag, end = partition["lag"], partition["catch_up_seconds"]
    way: str | None = None
    if _notable(lag, partition["lag_seconds"]):
        said = duration(end) if end is not None else "never" if partition["state"] == "RUNNING" else "-"
        way = f"{bar(partition['caught_up'] or 0.0, BAR, unicode=unicode)} {said}"
    return {
        "topic": partition["topic"],
        "part": partition["partition"],
        "state": partition["state"],
        "lag": lag,
        "oldest": None if partition["lag_seconds"] is None else duration(partition["lag_seconds"]),
        "records/s": amount(partition["record_rate"]),
        "bytes/s": size(partition["byte_rate"]),
        "catch_up": way,
        "gaps": partition["gap_records"],
    }


def whole(figure: str) -> str:
    """Returns a figure that no line's end parts from its unit."""
    return figure.replace(" ", "\N{NO-BREAK SPACE}")


def _wrapped(text: str, room: int, *, first: str = "  ") -> list[str]:
    lines = textwrap.wrap(
        text, max(room, 20), initial_indent=first, subsequent_indent="  ", break_on_hyphens=False
    )
    return [line.replace("\N{NO-BREAK SPACE}", " ") for line in lines]
