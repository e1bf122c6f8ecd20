"""The first table of docs/performance.md and the README's chart, made of the page's own sections, and of the soaks in docs/reliability.md.

python -m bench.summary [--write]
"""

from __future__ import annotations

import sys
from pathlib import Path
from xml.sax.saxutils import escape

from bench import arguments, report
from bench.bars import BARS, Bar, Standing, standing

CHART = Path(__file__).parents[1] / "docs" / "performance.svg"
SOAKS = CHART.with_name("reliability.md")
SHOWN = [
    ("broker: produce 1 KB", "CPU s/GB"),
    ("broker: consume 1 KB", "CPU s/GB"),
    ("broker: small message, acknowledged", "p50, µs"),
    ("broker: start", "s"),
    ("broker: idle", "MB"),
    ("worker: file to topic", "CPU s per million records"),
    ("worker: idle", "MB"),
    ("mirror, Klamm's brokers, zstd", "CPU s, start included"),
    ("mirror, Apache's brokers, none", "s to first record"),
    ("agent: file to topic, raw", "CPU s/GB"),
]
"""Figures of the chart, all of the kind where less is better."""
_WIDTH, _LEFT, _BAR, _ROW = 760, 330, 300, 26


def table(found: list[tuple[Bar, Standing | None]]) -> str:
    """Returns the summary as Markdown: each job with both figures, their ratio, what was asked, and whether it holds."""
    lines = ["| job | figure | Klamm | peer | ratio | asked | met |", "|---|---|---|---|---|---|---|"]
    for bar, at in found:
        if at is None:
            lines.append(f"| {bar.job} | {bar.figure} | not measured | | | {bar.asked} | |")
            continue
        peer = "" if at.peer is None else f"{_figure(at.peer)} ({bar.peer_name})"
        ratio = "" if at.ratio is None else f"{at.ratio:.2f}"
        met = {True: "yes", False: "**no**", None: ""}[at.met]
        lines.append(
            f"| {bar.job} | {bar.figure} | {_figure(at.ours)} | {peer} | {ratio} | {bar.asked} | {met} |"
        )
    asked = [at for _, at in found if at is not None and at.met is not None]
    unknown = sum(at is None and bool(bar.asked) for bar, at in found)
    rest = f"; not measured: {unknown}" if unknown else ""
    lines.append(f"\n{sum(bool(at.met) for at in asked)} of {len(asked)} bars are met{rest}.")
    return "\n".join(lines)


def chart(found: list[Standing]) -> str:
    """Returns an SVG with a bar a figure: ours as a share of the peer's, whose own is the whole width."""
    height = 50 + _ROW * len(found)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" font-family="sans-serif" font-size="13">',
        f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>',
        '<text x="10" y="22" font-weight="bold">Klamm (blue) as a share of its peer (grey); less is better</text>',
    ]
    for n, at in enumerate(found):
        assert at.ratio is not None
        y = 38 + n * _ROW
        share = min(1.0, at.ratio) * _BAR
        label = escape(f"{at.bar.job}: {at.bar.figure}")
        told = escape(f"{_figure(at.ours)} / {_figure(at.peer or 0)} {at.bar.peer_name}")
        parts += [
            f'<text x="{_LEFT - 8}" y="{y + 13}" text-anchor="end" font-size="11">{label}</text>',
            f'<rect x="{_LEFT}" y="{y}" width="{_BAR}" height="16" fill="#d8dbe0"/>',
            f'<rect x="{_LEFT}" y="{y}" width="{share:.1f}" height="16" fill="#2f6fb3"/>',
            f'<text x="{_LEFT + 4 + min(share, _BAR * 0.55):.1f}" y="{y + 12}" font-size="11">{told}</text>',
        ]
    return "\n".join([*parts, "</svg>\n"])


def _figure(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:,.2f}".rstrip("0").rstrip(".")


def pages() -> str:
    """Returns the text in which bars are looked up."""
    return report.PAGE.read_text() + SOAKS.read_text()


def look(page: str) -> list[tuple[Bar, Standing | None]]:
    """Returns all bars with their figures; None where the page has none yet."""
    found: list[tuple[Bar, Standing | None]] = []
    for bar in BARS:
        try:
            found.append((bar, standing(bar, page)))
        except KeyError as missing:
            print(f"not on the page: {missing}", file=sys.stderr)
            found.append((bar, None))
    return found


def write() -> None:
    """Writes the table into the page, and the chart beside it."""
    found = look(pages())
    report.write(
        "summary",
        f"## Summary\n\nMade by `python -m bench.summary --write` from the sections below and the soaks of [reliability](reliability.md).\n\n{table(found)}",
    )
    by_name = {(bar.job, bar.figure): at for bar, at in found}
    CHART.write_text(
        chart([at for name in SHOWN if (at := by_name[name]) is not None and at.ratio is not None])
    )


def main() -> int:
    parser = arguments.parser(__doc__)
    if parser.parse_args().write:
        write()
    else:
        print(table(look(pages())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
