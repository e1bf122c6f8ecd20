"""Memory and descriptors of each part over time, and whether they grew."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from typing import Final

import psutil

MEMORY_SLACK: Final = 1.10
MEMORY_SLACK_MB: Final = 8.0
DESCRIPTOR_SLACK: Final = 8
"""Segments that roll and clients that come are a few descriptors more or less at any moment."""


@dataclass(frozen=True, slots=True)
class Look:
    """One look at a part: seconds since the start, MB (proportional set size), open descriptors, threads, processes."""

    at_s: float
    mb: float
    descriptors: int
    threads: int
    processes: int


@dataclass(slots=True)
class Course:
    """All looks at one part."""

    looks: list[Look] = field(default_factory=list)

    def between(self, begin_s: float, end_s: float) -> Look:
        """Returns the medians of the looks in this span. Raises ValueError when there are none."""
        chosen = [look for look in self.looks if begin_s <= look.at_s <= end_s]
        if not chosen:
            raise ValueError(f"no look between {begin_s:.0f} and {end_s:.0f} s")
        median = statistics.median
        return Look(
            end_s,
            median(look.mb for look in chosen),
            round(median(look.descriptors for look in chosen)),
            round(median(look.threads for look in chosen)),
            round(median(look.processes for look in chosen)),
        )


def look(family: list[psutil.Process], at_s: float) -> Look:
    """Returns the sums over the processes of a part; one that ends meanwhile counts as nothing."""
    mb, descriptors, threads, processes = 0.0, 0, 0, 0
    for process in family:
        try:
            memory = process.memory_full_info()
            held, opened, running = (
                getattr(memory, "pss", memory.uss),
                process.num_fds(),
                process.num_threads(),
            )
        except psutil.Error:
            continue
        mb, descriptors, threads, processes = (
            mb + held / 1e6,
            descriptors + opened,
            threads + running,
            processes + 1,
        )
    return Look(at_s, mb, descriptors, threads, processes)


def grew(early: Look, late: Look) -> list[str]:
    """Returns what grew from the first minutes to the end, in words; nothing if all is as it was."""
    said = []
    if late.mb > early.mb * MEMORY_SLACK + MEMORY_SLACK_MB:
        said.append(f"memory from {early.mb:.0f} to {late.mb:.0f} MB")
    if late.descriptors > early.descriptors * MEMORY_SLACK + DESCRIPTOR_SLACK:
        said.append(f"descriptors from {early.descriptors} to {late.descriptors}")
    if late.threads > early.threads * MEMORY_SLACK + DESCRIPTOR_SLACK:
        said.append(f"threads from {early.threads} to {late.threads}")
    return said
