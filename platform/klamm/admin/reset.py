"""Plans of new offsets for a group, and the CSV that plans travel in. Pure.

A plan never leaves the log: an offset beyond either end moves to that end, with a warning, as in Kafka. Nothing here
asks a broker or a clock; `group_reset` brings the numbers.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum, auto
from typing import Final

from klamm.admin.model import TopicPartition
from klamm_base.errors import KlammError


class ResetError(KlammError):
    """A reset that cannot be planned, or a value in it that cannot be read."""


class How(Enum):
    """The source of the new offsets."""

    EARLIEST = auto()
    LATEST = auto()
    CURRENT = auto()
    OFFSET = auto()
    SHIFT = auto()
    TIME = auto()
    FILE = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Reset:
    """A wanted reset. `value`: the offset, the shift or the timestamp in ms; `plan`: offsets by group, from a file."""

    how: How
    value: int = 0
    plan: Mapping[str, Mapping[TopicPartition, int]] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LogState:
    """The facts that a plan uses, for each of its partitions. `at_time`: -1 where no record is that late."""

    starts: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]
    committed: Mapping[TopicPartition, int]
    at_time: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """New offsets in order of topic and partition, and what the user should know about them.

    `clipped`: offsets that were beyond an end of their log; `fallbacks`: partitions without a record as late as the
    wanted time.
    """

    offsets: Mapping[TopicPartition, int]
    clipped: Sequence[str] = ()
    fallbacks: Sequence[str] = ()


def plan(reset: Reset, group: str, partitions: Collection[TopicPartition], state: LogState) -> Plan:
    """Return new offsets for `partitions` (for `How.FILE`: those of the file). Raises ResetError."""
    wanted = sorted(partitions)
    clipped: list[str] = []
    fallbacks: list[str] = []
    match reset.how:
        case How.EARLIEST:
            offsets = {tp: state.starts[tp] for tp in wanted}
        case How.LATEST:
            offsets = {tp: state.ends[tp] for tp in wanted}
        case How.CURRENT:
            offsets = {tp: state.committed.get(tp, state.ends[tp]) for tp in wanted}
        case How.TIME:
            fallbacks += [
                f"Partition {tp.partition} from topic {tp.topic} is empty. Falling back to latest known offset."
                for tp in wanted
                if state.at_time[tp] < 0
            ]
            offsets = {tp: state.ends[tp] if state.at_time[tp] < 0 else state.at_time[tp] for tp in wanted}
        case How.OFFSET:
            offsets = {tp: _within(tp, reset.value, state, clipped) for tp in wanted}
        case How.SHIFT:
            offsets = {tp: _within(tp, _current(tp, state) + reset.value, state, clipped) for tp in wanted}
        case How.FILE:
            rows = from_file(reset, group)
            offsets = {tp: _within(tp, rows[tp], state, clipped) for tp in sorted(rows)}
    return Plan(offsets=offsets, clipped=clipped, fallbacks=fallbacks)


def from_file(reset: Reset, group: str) -> Mapping[TopicPartition, int]:
    """Return a group's rows of the file. Raises ResetError where it has none."""
    rows = (reset.plan or {}).get(group)
    if rows is None:
        raise ResetError(f"No reset plan for group {group} found")
    return rows


def _current(tp: TopicPartition, state: LogState) -> int:
    offset = state.committed.get(tp)
    if offset is None:
        raise ResetError(f"Cannot shift offset for partition {tp} since there is no current committed offset")
    return offset


def _within(tp: TopicPartition, offset: int, state: LogState, clipped: list[str]) -> int:
    if offset > state.ends[tp]:
        clipped.append(_clipped(tp, offset, "higher than latest", state.ends[tp]))
        return state.ends[tp]
    if offset < state.starts[tp]:
        clipped.append(_clipped(tp, offset, "lower than earliest", state.starts[tp]))
        return state.starts[tp]
    return offset


def _clipped(tp: TopicPartition, offset: int, how: str, limit: int) -> str:
    return f"New offset ({offset}) is {how} offset for topic partition {tp}. Value will be set to {limit}"


# ---- what users write


def parse_topic(text: str) -> tuple[str, tuple[int, ...] | None]:
    """Return the name and the partitions (None: all) of `topic` or `topic:0,1`. Raises ResetError."""
    if ":" not in text:
        return text, None
    parts = text.split(":")
    if len(parts) != 2 or not parts[0] or not parts[1]:
        raise ResetError(f"Invalid topic arg '{text}', expected topic name and partitions")
    numbers = []
    for part in parts[1].split(","):
        if not re.fullmatch(r"[+-]?[0-9]+", part):
            raise ResetError(f"Invalid partition '{part}' specified in topic arg '{text}'")
        numbers.append(int(part))
    return parts[0], tuple(numbers)


_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d([.,]\d{1,9})?)?(Z|[+-]\d\d(:?\d\d)?)?")


def parse_datetime(text: str) -> int:
    """Return `YYYY-MM-DDThh:mm:ss.sss`, with `Z` or `+hh:mm` (default UTC), as ms since 1970. Raises ResetError."""
    message = f"{text!r} is not a time like 2026-01-31T23:59:59.000, with Z or +01:00 where it is not UTC"
    if not _TIME.fullmatch(text):
        raise ResetError(message)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as e:
        raise ResetError(f"{message} ({e})") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


_DURATION: Final = re.compile(
    r"(?P<sign>[+-])?P(?:(?P<d>[+-]?\d+)D)?"
    r"(?P<t>T(?:(?P<h>[+-]?\d+)H)?(?:(?P<m>[+-]?\d+)M)?(?:(?P<s>[+-]?\d+)(?:[.,](?P<f>\d{0,9}))?S)?)?",
    re.IGNORECASE,
)


def parse_duration(text: str) -> int:
    """Return `PnDTnHnMnS` in ms, a part of a ms cut off. Raises ResetError."""
    found = _DURATION.fullmatch(text)
    parts = found.groupdict() if found else {}
    if not found or not any(parts[k] for k in "dhms") or parts["t"] in ("T", "t"):
        raise ResetError(f"{text!r} is not a duration like P7D, PT2H30M or PT0.5S")
    days, hours, minutes, seconds = (int(parts[k] or 0) for k in "dhms")
    fraction = int((parts["f"] or "").ljust(9, "0"))
    if (parts["s"] or "").startswith("-"):
        fraction = -fraction
    nanos = (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1_000_000_000 + fraction
    return (-nanos if parts["sign"] == "-" else nanos) // 1_000_000


# ---- files


def write_csv(plans: Mapping[str, Mapping[TopicPartition, int]], *, with_group: bool) -> str:
    """Return lines `topic,partition,offset`, after the group where there are several. No header, as Kafka's."""
    return "".join(
        ",".join([*([_quoted(group)] if with_group else []), _quoted(tp.topic), f"{tp.partition},{offset}"])
        + "\n"
        for group, offsets in plans.items()
        for tp, offset in offsets.items()
    )


def _quoted(text: str) -> str:
    """Return a text field as Kafka's writer has it: quoted where it is long, or has a character up to the comma."""
    if len(text) > 24 or any(c <= "," for c in text):
        return '"' + text.replace('"', '""') + '"'
    return text


def read_csv(text: str, groups: Sequence[str]) -> dict[str, dict[TopicPartition, int]]:
    """Return offsets by group.

    A line without a group belongs to the only group in `groups`. Raises ResetError with the line.
    """
    result: dict[str, dict[TopicPartition, int]] = {}
    for number, words in enumerate(csv.reader(io.StringIO(text)), 1):
        if not words:
            continue
        if len(words) == 3 and len(groups) != 1:
            raise ResetError(f"line {number}: without a group, and more than one group is asked for")
        row = [groups[0], *words] if len(words) == 3 else words
        if len(row) != 4:
            raise ResetError(
                f"line {number}: {','.join(row)!r} is neither topic,partition,offset nor group,topic,partition,offset"
            )
        group, topic, partition, offset = row
        try:
            key, value = TopicPartition(topic, int(partition)), int(offset)
        except ValueError:
            raise ResetError(
                f"line {number}: partition {partition!r} and offset {offset!r} must be whole numbers"
            ) from None
        if key.partition < 0 or value < 0:
            raise ResetError(f"line {number}: partition {partition} and offset {offset} must not be negative")
        result.setdefault(group, {})[key] = value
    return result
