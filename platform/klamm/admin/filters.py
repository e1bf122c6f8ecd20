"""Patterns for topics and partitions, as Kafka's commands read them. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from klamm.admin.model import TopicPartition
from klamm_base.errors import KlammError

_RULE: Final = re.compile(r"([^:,]*)(?::(?:([0-9]*)|(?:([0-9]*)-([0-9]*))))?")
PartitionFilter = Callable[[TopicPartition], bool]


class FilterError(KlammError):
    """A pattern that cannot be read."""


def topic_pattern(text: str) -> re.Pattern[str]:
    """Return a regular expression for whole names; a comma is "or", spaces and outer quotes do not count.

    Raises FilterError.
    """
    cleaned = text.strip().replace(",", "|").replace(" ", "").strip("\"'")
    try:
        return re.compile(cleaned)
    except re.error as e:
        raise FilterError(f"{cleaned} is an invalid regex ({e})") from None


def by_topic_and_numbers(topic: str | None, numbers: str | None) -> PartitionFilter:
    """Return the filter for `--topic` and `--partitions`. Raises FilterError."""
    pattern = topic_pattern(topic or ".*")
    try:
        chosen = {int(n) for n in numbers.split(",")} if numbers else set()
    except ValueError:
        raise FilterError(
            f"--partitions expects a comma separated list of numeric partition ids, but received: {numbers}"
        ) from None
    return lambda tp: pattern.fullmatch(tp.topic) is not None and (not chosen or tp.partition in chosen)


def by_rules(text: str) -> PartitionFilter:
    """Return the filter for `topic1:1,topic2:0-3,topic3,topic4:5-,topic5:-3`.

    A range excludes its upper end. Raises FilterError.
    """
    rules = [_rule(part) for part in text.split(",")]
    return lambda tp: any(rule(tp) for rule in rules)


def _rule(text: str) -> PartitionFilter:
    found = _RULE.fullmatch(text)
    if found is None:
        raise FilterError(f"Invalid rule specification: {text}")
    pattern = topic_pattern(found[1] or ".*")
    if found[2]:
        low, high = int(found[2]), int(found[2]) + 1
    else:
        low, high = int(found[3] or 0), int(found[4] or 2**31 - 1)
    return lambda tp: pattern.fullmatch(tp.topic) is not None and low <= tp.partition < high
