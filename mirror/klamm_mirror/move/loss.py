"""A failover's loss: which records of a lost source were not copied, as far as the target can know. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from klamm_mirror.offsets.translation import Partition


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """The last that the flow's process heard of a partition: where the source's log ended (None: not known), and for how
    long it may lack records.
    """

    end: int | None
    seconds: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionLoss:
    """A partition's loss: offsets from `copied` to `end` were not copied. None is not known.

    `records` counts what was heard of: the source may have got more since, for `seconds` at most. `newest_ms` is the
    timestamp of the last record that the copy has.
    """

    topic: str
    partition: int
    copied: int
    end: int | None
    records: int | None
    seconds: float | None
    newest_ms: int | None

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def losses(
    copied: Mapping[Partition, int], heard: Mapping[Partition, Heard], newest_ms: Mapping[Partition, int]
) -> list[PartitionLoss]:
    """Returns the loss of each partition, by the next offset to copy and what was heard."""
    found = []
    for (topic, partition), at in sorted(copied.items()):
        said = heard.get((topic, partition))
        end = None if said is None or said.end is None else max(said.end, at)
        found.append(
            PartitionLoss(
                topic=topic, partition=partition, copied=at, end=end,
                records=None if end is None else end - at,
                seconds=None if said is None else said.seconds,
                newest_ms=newest_ms.get((topic, partition)),
            )
        )  # fmt: skip
    return found
