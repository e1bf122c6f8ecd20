"""The summary of docs/performance.md: each of its figures is found in its section, and judged right."""

from __future__ import annotations

import re

import pytest
from bench import report, summary, tables
from bench.all.compare import BENCHES
from bench.bars import BARS, Bar, standing, told

PAGE = """
<!-- x -->
## X

none:

| | klamm | MirrorMaker 2 | klamm / MirrorMaker 2 |
|---|---|---|---|
| copy, MB/s | 1,474 | 45 | 32.8 |

zstd:

| | klamm | MirrorMaker 2 | klamm / MirrorMaker 2 |
|---|---|---|---|
| copy, MB/s | 20 | 40 | 0.50 |

| cell | | MB/s: klamm, kafka | ratio |
|---|---|---|---|
| produce-1k | 4 p | 547 (536-559), 170 (147-193) | 3.21 |
<!-- end x -->
"""


def bar(**more: object) -> Bar:
    return Bar("job", "figure", "x", **{"row": "copy", "peer": "MirrorMaker 2", "peer_name": "MM2"} | more)  # type: ignore[arg-type]


def test_project_bars_are_looked_up_by_table_row_and_column() -> None:
    assert standing(bar(), PAGE).ours == 1474
    at = standing(bar(table="zstd"), PAGE)
    assert (at.ours, at.peer, at.ratio) == (20, 40, 0.5)
    at = standing(bar(row="produce-1k", ours="MB/s", peer="", pair=True), PAGE)
    assert (at.ours, at.peer) == (547, 170)


def test_project_bars_may_compare_two_rows() -> None:
    at = standing(bar(table="zstd", peer="klamm", peer_row="copy", ratio=True, most=2), PAGE)
    assert (at.peer, at.bar.asked) == (20, "≤ 2 of that MM2")
    with pytest.raises(KeyError):
        standing(bar(table="zstd", peer="klamm", peer_row="paste"), PAGE)


def test_project_bars_are_met_or_not() -> None:
    assert standing(bar(table="zstd", ratio=True, most=0.5), PAGE).met is True
    assert standing(bar(table="zstd", ratio=True, most=0.49), PAGE).met is False
    assert standing(bar(table="zstd", least=20), PAGE).met is True
    assert standing(bar(table="zstd", least=21), PAGE).met is False
    assert standing(bar(table="zstd"), PAGE).met is None, "nothing was asked"


@pytest.mark.parametrize("wrong", [{"row": "paste"}, {"ours": "kafka"}, {"table": "gzip"}])
def test_project_bars_that_are_not_on_the_page_are_told(wrong: dict[str, str]) -> None:
    with pytest.raises(KeyError):
        standing(bar(**wrong), PAGE)


def test_project_bars_all_have_figures_and_the_page_says_what_they_are() -> None:
    found = summary.look(summary.pages())
    assert [
        f"{b.job}: {b.figure}" for b, at in found if at is None and not b.section.startswith("soak/")
    ] == []
    assert summary.table(found) in report.PAGE.read_text(), "python -m bench.summary --write"
    shown = {(b.job, b.figure) for b in BARS}
    assert set(summary.SHOWN) <= shown


def test_project_bars_chart_is_of_these_figures() -> None:
    by_name = {(b.job, b.figure): at for b, at in summary.look(summary.pages())}
    assert summary.CHART.read_text() == summary.chart([at for name in summary.SHOWN if (at := by_name[name])])


def test_project_bars_sections_are_those_that_all_benches_write() -> None:
    """A section that `./dev bench all` does not make anew would grow old unseen."""
    page = summary.pages()
    assert {b.section for b in BARS} <= set(re.findall(r"<!-- (?!end )(\S+) -->", page))
    assert len({bench.name for bench in BENCHES}) == len(BENCHES)
    assert tables.numbers("547 (536-559), 170 (147-193)") == [547, 170]


def test_a_run_says_which_bars_it_meets() -> None:
    table = "| | klamm | kafka |\n|---|---|---|\n| p50, ms | {} | 101 |\n"
    begin = "Spark: topic to topic, p50, ms: "
    assert (
        told("spark-latency", table.format("149"))
        == f"{begin}149, Spark's own connector 101, asked ≤ 150: met"
    )
    assert told("spark-latency", table.format("1,151")).endswith(
        "1,151, Spark's own connector 101, asked ≤ 150: MISSED"
    )
    assert told("spark-latency", table.replace("p50", "p1")) == ""
