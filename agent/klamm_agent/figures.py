"""The figures that an agent gives of itself: those of its inputs in `status.json`, and the whole status document for Prometheus."""

from __future__ import annotations

import os
import resource
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal

from klamm_agent.config.inputs import Input
from klamm_agent.lanes.lane import Lane
from klamm_base.metrics_text import Family, Labels, Sample
from klamm_base.version import __version__

_PAGE: Final = resource.getpagesize()
_WAITS: Final = ("broker", "cluster", "topic", "acknowledgements", "spool", "write-ahead", "partition")
_SPOOL: Final = {
    "spool_bytes": "Record batches on disk that are not acknowledged, bytes.",
    "spool_records": "Records in the spool.",
}


def labels(inputs: Sequence[Input]) -> list[str]:
    """Returns each input's name: its id, or its first pattern or address, with a number where names repeat."""
    names = [i.id or (i.options.name if i.options is not None else i.paths[0]) for i in inputs]
    often, seen, found = Counter(names), Counter[str](), []
    for name in names:
        seen[name] += 1
        found.append(f"{name}#{seen[name]}" if often[name] > 1 else name)
    return found


def of_inputs(names: Iterable[str], lanes: Iterable[Lane]) -> list[dict[str, Any]]:
    """Returns each input's figures since the start."""
    return [
        {
            "input": name,
            "topic": lane.config.topic,
            "lines": lane.events,
            "bytes": lane.bytes,
            "parse_failures": lane.stages.counts.parse_failures,
            "dead_letters": lane.stages.counts.dead_letters,
            "dropped": dict(lane.stages.counts.dropped),
        }
        for name, lane in zip(names, lanes, strict=True)
    ]


def families(status: Mapping[str, Any]) -> Iterator[Family]:
    """Yields the Prometheus metric families of a status document."""
    inputs: list[dict[str, Any]] = status.get("inputs", [])
    for key, help_ in (
        ("lines", "Events read."),
        ("bytes", "Bytes read."),
        ("parse_failures", "Events that did not parse."),
        ("dead_letters", "Events sent to the dead letter topic."),
    ):
        yield _family(f"klamm_agent_{key}_total", "counter", help_, _by_input(inputs, key))
    yield _family("klamm_agent_acked_lines_total", "counter", "Records acknowledged.", status.get("acked", 0))
    dropped: Counter[str] = Counter()
    for one in inputs:
        dropped.update(one["dropped"])
    if spooled := status.get("spool_dropped"):
        dropped["spool"] += spooled
    yield _family(
        "klamm_agent_dropped_lines_total", "counter", "Events left out by a rule of the configuration.",
        [({"reason": reason}, count) for reason, count in dropped.items()],
    )  # fmt: skip
    yield _family(
        "klamm_agent_split_lines_total", "counter", "Cuts that long lines took.", status.get("split_lines", 0)
    )
    for key, help_ in (
        ("unproved", "Records sent again that may be in their topics twice."),
        ("resumed", "Records that came out of the write-ahead log at the start."),
    ):
        yield _family(f"klamm_agent_{key}_lines_total", "counter", help_, status.get(key, 0))
    yield _family(
        "klamm_agent_unanswered_partitions", "gauge",
        "Partitions whose leaders have not said for a second which lines of before the start they have.",
        status.get("unanswered", 0),
    )  # fmt: skip
    yield _family("klamm_agent_gaps_total", "counter", "Ranges noted as lost.", status.get("gaps", 0))
    yield _family(
        "klamm_agent_lag_bytes", "gauge", "Bytes in files, not acknowledged.", status.get("lag_bytes", 0)
    )
    yield _family("klamm_agent_files", "gauge", "Files known.", status.get("files", 0))
    yield _family("klamm_agent_open_files", "gauge", "Files open.", status.get("open_files", 0))
    yield _family(
        "klamm_agent_in_flight_bytes", "gauge", "Bytes read and not acknowledged, overhead counted.",
        status.get("queued_bytes", 0),
    )  # fmt: skip
    for key, help_ in _SPOOL.items():
        if key in status:
            yield _family(f"klamm_agent_{key}", "gauge", help_, status[key])
    waiting = str(status.get("waiting_for", "")).partition(" ")[0]
    yield _family(
        "klamm_agent_waiting", "gauge", "1: the agent waits for it.",
        [({"for": reason}, int(reason == waiting)) for reason in _WAITS],
    )  # fmt: skip
    if last := status.get("last_ack"):
        yield _family(
            "klamm_agent_last_ack_timestamp_seconds", "gauge", "When records were acknowledged last, s since the epoch.", last
        )  # fmt: skip
    yield _family(
        "klamm_agent_reloads_total", "counter", "Configurations taken over.", status.get("reloads", 0)
    )
    yield _family(
        "klamm_agent_reload_failed", "gauge", "1: the last configuration could not be taken over.",
        int(bool(status.get("reload_error"))),
    )  # fmt: skip
    yield from _process(status)


def _by_input(inputs: list[dict[str, Any]], key: str) -> list[tuple[Labels, float]]:
    return [({"input": one["input"]}, one[key]) for one in inputs]


def _family(
    name: str, kind: Literal["counter", "gauge"], help_: str, value: float | Iterable[tuple[Labels, float]]
) -> Family:
    if isinstance(value, (int, float)):
        return Family(name, kind, help_, [Sample({}, value)])
    return Family(name, kind, help_, [Sample(label, number) for label, number in value])


def _process(status: Mapping[str, Any]) -> Iterator[Family]:
    used = resource.getrusage(resource.RUSAGE_SELF)
    yield _family(
        "klamm_build_info", "gauge", "Version of Klamm, as a label.", [({"version": __version__}, 1)]
    )
    yield _family(
        "process_cpu_seconds_total", "counter", "User and system CPU time, s.", used.ru_utime + used.ru_stime
    )
    if started := status.get("started"):
        yield _family(
            "process_start_time_seconds", "gauge", "Start of the process, s since the epoch.", started
        )
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
        files = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - a name each
    except OSError:
        return  # only Linux tells
    yield _family("process_resident_memory_bytes", "gauge", "Resident memory.", pages * _PAGE)
    yield _family("process_open_fds", "gauge", "Open file descriptors.", files)
    yield _family(
        "process_max_fds",
        "gauge",
        "Limit of open file descriptors.",
        resource.getrlimit(resource.RLIMIT_NOFILE)[0],
    )
