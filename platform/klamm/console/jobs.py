"""Metrics pages of agents and Spark jobs, as an operator wants to see them: what is behind, how fast, what went wrong. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from klamm_base.metrics_text import labels_of

_LINE: Final = re.compile(r"^([a-zA-Z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)")
_OURS: Final = ("klamm_", "spark_", "process_resident", "process_start")
FIGURES_MAX: Final = 200
AGENT: Final = "klamm_agent_lines_total"
SPARK: Final = "klamm_spark_up"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A sample of the page."""

    name: str
    labels: Mapping[str, str]
    value: float
    help: str


@dataclass(frozen=True, slots=True)
class Page:
    """The samples of one page, at a time."""

    at_s: float
    figures: tuple[Figure, ...] = field(default=())

    def each(self, name: str, **labels: str) -> Iterator[Figure]:
        """Yields the samples of a name that have these labels."""
        for f in self.figures:
            if f.name == name and all(f.labels.get(k) == v for k, v in labels.items()):
                yield f

    def total(self, name: str, **labels: str) -> float | None:
        """Returns the sum of the samples of a name; None without any."""
        found = [f.value for f in self.each(name, **labels)]
        return sum(found) if found else None

    def shown(self) -> list[Figure]:
        """Returns our figures, without the parts of histograms."""
        ours = (f for f in self.figures if f.name.startswith(_OURS))
        return [f for f in ours if not f.name.endswith(("_bucket", "_created"))][:FIGURES_MAX]


def read(text: str, at_s: float) -> Page:
    """Returns the samples of Prometheus' text; lines that are none are left out."""
    helps: dict[str, str] = {}
    found: list[Figure] = []
    for line in text.splitlines():
        if line.startswith("# HELP "):
            _, _, name, *rest = line.split(" ", 3)
            helps[name] = rest[0] if rest else ""
            continue
        match = _LINE.match(line)
        if match is None:
            continue
        try:
            value = float(match[3])
        except ValueError:
            continue
        labels = labels_of(match[2] or "")
        about = helps.get(match[1]) or helps.get(match[1].removesuffix("_total"), "")
        found.append(Figure(name=match[1], labels=labels, value=value, help=about))
    return Page(at_s, tuple(found))


def rate(now: Page, before: Page | None, name: str, **labels: str) -> float | None:
    """Returns how much a counter grew a second between two looks; None where that is not known, or it began again."""
    if before is None or now.at_s <= before.at_s:
        return None
    new, old = now.total(name, **labels), before.total(name, **labels)
    return None if new is None or old is None or new < old else (new - old) / (now.at_s - before.at_s)


def agent(now: Page, before: Page | None) -> dict[str, Any] | None:
    """Returns an agent's state; None for a page of something else.

    `lag_lines` is an estimate: the bytes that are not acknowledged, by the mean length of the lines so far.
    """
    if now.total(AGENT) is None:
        return None
    part = "klamm_agent_"
    lines, size, behind = (
        now.total(AGENT) or 0,
        now.total(f"{part}bytes_total") or 0,
        now.total(f"{part}lag_bytes"),
    )
    errors = {
        what: n
        for what, name in (
            ("not parsed", "parse_failures_total"), ("dead letters", "dead_letters_total"), ("lost ranges", "gaps_total"),
            ("left out by a rule", "dropped_lines_total"), ("maybe twice", "unproved_lines_total"),
        )
        if (n := now.total(part + name))
    }  # fmt: skip
    inputs = [
        {
            "input": f.labels.get("input", ""),
            "lines": f.value,
            "rate": rate(now, before, AGENT, **f.labels),
            "bytes": now.total(f"{part}bytes_total", **f.labels),
            "parse_failures": now.total(f"{part}parse_failures_total", **f.labels),
            "dead_letters": now.total(f"{part}dead_letters_total", **f.labels),
        }
        for f in now.each(AGENT)
    ]
    return {
        "waits": [f.labels.get("for", "") for f in now.each(f"{part}waiting") if f.value],
        "files": now.total(f"{part}files"),
        "open_files": now.total(f"{part}open_files"),
        "lag_bytes": behind,
        "lag_lines": behind / (size / lines) if behind is not None and lines and size else None,
        "in_flight": now.total(f"{part}in_flight_bytes"),
        "spool": now.total(f"{part}spool_bytes"),
        "lines_rate": rate(now, before, AGENT),
        "bytes_rate": rate(now, before, f"{part}bytes_total"),
        "acked": now.total(f"{part}acked_lines_total"),
        "last_ack_ms": _ms(now.total(f"{part}last_ack_timestamp_seconds")),
        "reload_failed": bool(now.total(f"{part}reload_failed")),
        "errors": errors,
        "inputs": inputs,
    }


def spark(now: Page) -> list[dict[str, Any]]:
    """Returns the jobs of a page, each with its queries; a worker's page has the queries of its connectors."""
    part = "klamm_spark_"
    places: dict[tuple[str, str], list[Mapping[str, str]]] = {}
    jobs: dict[str, dict[str, Any]] = {
        f.labels.get("job", ""): {"up": bool(f.value), "error": None} for f in now.each(SPARK)
    }
    for f in now.each(f"{part}last_error"):
        jobs.setdefault(f.labels.get("job", ""), {"up": None})["error"] = f.labels.get("error")
    for f in now.each(f"{part}batches_total"):
        job = f.labels.get("connector") or next(iter(jobs), "")
        places.setdefault((job, f.labels.get("query", "")), []).append(f.labels)
    found: dict[str, dict[str, Any]] = {
        name: {"name": name, **job, "queries": []} for name, job in jobs.items()
    }
    for (job, query), (labels, *_) in places.items():
        row: dict[str, Any] = {
            key: now.total(part + name, **labels)
            for key, name in (
                ("in_rate", "input_rows_per_second"), ("rate", "processed_rows_per_second"), ("batch_s", "batch_duration_seconds"),
                ("batches", "batches_total"), ("rows", "input_rows_total"), ("late", "late_rows_total"), ("lost", "lost_rows_total"),
                ("lag", "lag"), ("state_rows", "state_rows"),
            )
        }  # fmt: skip
        row |= {"query": query, "at_ms": _ms(now.total(f"{part}last_progress_timestamp_seconds", **labels))}
        row["watermark_ms"] = _ms(now.total(f"{part}watermark_timestamp_seconds", **labels))
        row["topics"] = [(f.labels.get("topic", ""), f.value) for f in now.each(f"{part}lag", **labels)]
        found.setdefault(job, {"name": job, "up": None, "error": None, "queries": []})["queries"].append(row)
    return list(found.values())


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1000
