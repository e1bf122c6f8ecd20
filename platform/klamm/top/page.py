"""The page of `klamm top`, as rich draws it."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from klamm.cli.common import counted
from klamm.top.figures import Figures

_STATES = {
    "Stable": "green",
    "RUNNING": "green",
    "FAILED": "red bold",
    "Empty": "dim",
    "PAUSED": "yellow",
    "STOPPED": "yellow",
}


def page(shown: Figures, *, height: int, title: str, paused: bool = False) -> RenderableType:
    """Returns a page that fits `height` lines: each table gets a share, and says how many rows it leaves out."""
    parts: list[RenderableType] = [_header(shown, title, paused=paused)]
    tables = 2 + (shown.connectors is not None)
    lines = max(3, (height - 5 - len(shown.said)) // tables - 3)
    parts += [_topics(shown, lines), _groups(shown, lines)]
    if shown.connectors is not None:
        parts.append(_connectors(shown, lines))
    parts += [Text(each, style="yellow", no_wrap=True, overflow="ellipsis") for each in shown.said]
    return Group(*parts)


def _header(shown: Figures, title: str, *, paused: bool) -> Text:
    text = Text(f"klamm top  {title}  ", style="bold", no_wrap=True, overflow="ellipsis")
    text.append(
        ", ".join(
            counted(n, what)
            for n, what in (
                (shown.brokers, "broker"),
                (len(shown.topics), "topic"),
                (shown.partitions, "partition"),
            )
        ),
        style="not bold",
    )
    text.append("\n")
    if shown.rate is not None:
        text.append(f"{number(shown.rate)} records/s", style="not bold")
    if shown.bytes_in is not None:
        text.append(f", {number(shown.bytes_in)}B/s in", style="not bold")
    if shown.bytes_out is not None:
        text.append(f", {number(shown.bytes_out)}B/s out", style="not bold")
    text.append("   paused" if paused else "   q quits, space pauses", style="reverse" if paused else "dim")
    return text


def _table(title: str, left_out: int, *columns: str) -> Table:
    caption = f"{left_out} more" if left_out > 0 else None
    table = Table(
        box=None, pad_edge=False, header_style="bold", expand=True, caption=caption, caption_justify="left"
    )
    table.add_column(title, ratio=3, no_wrap=True, overflow="ellipsis")
    for name in columns:
        words = name in ("state", "why", "kind")
        table.add_column(
            name, justify="left" if words else "right", no_wrap=True, ratio=3 if name == "why" else 1,
            min_width=len(name),
        )  # fmt: skip
    return table


def _topics(shown: Figures, lines: int) -> Table:
    table = _table("TOPIC", len(shown.topics) - lines, "partitions", "records", "records/s")
    for row in shown.topics[:lines]:
        table.add_row(row.topic, str(row.partitions), f"{row.records:,}", _rate(row.rate))
    return table


def _groups(shown: Figures, lines: int) -> Table:
    table = _table("GROUP", len(shown.groups) - lines, "state", "members", "lag", "records/s", "caught up in")
    for row in shown.groups[:lines]:
        table.add_row(
            row.group,
            _state(row.state),
            str(row.members),
            f"{row.lag:,}",
            _rate(row.rate),
            duration(row.left_s),
        )
    return table


def _connectors(shown: Figures, lines: int) -> Table:
    rows = shown.connectors or []
    table = _table("CONNECTOR", len(rows) - lines, "kind", "state", "tasks", "failed", "why")
    for row in rows[:lines]:
        failed = Text(str(row.failed), style="red bold" if row.failed else "")
        table.add_row(
            row.connector, row.kind, _state(row.state), f"{row.running}/{row.tasks}", failed, row.said
        )
    return table


def _state(state: str) -> Text:
    return Text(state, style=_STATES.get(state, ""))


def _rate(rate: float | None) -> str:
    return "-" if rate is None else number(rate)


def number(value: float) -> str:
    """Returns a number in at most five characters, such as 12.3k."""
    for unit in ("", "k", "M", "G", "T"):
        if value < 999.5:
            return (
                f"{value:.0f}{unit}"
                if value >= 99.95 or (not unit and value == int(value))
                else f"{value:.1f}{unit}"
            )
        value /= 1000
    return f"{value:.0f}P"


def duration(seconds: float | None) -> str:
    """Returns a time such as 3m 20s; "-" where it is not known or never."""
    if seconds is None or seconds > 100 * 86400:
        return "-"
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m {whole % 60}s"
    return (
        f"{whole // 3600}h {whole % 3600 // 60}m"
        if whole < 86400
        else f"{whole // 86400}d {whole % 86400 // 3600}h"
    )
