"""The documents: their links and anchors lead somewhere, and the pages made from code are up to date."""

from __future__ import annotations

import re
import runpy
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [
    *ROOT.glob("*.md"),
    *(page for folder in ("docs", "examples", "compose", "bench") for page in (ROOT / folder).rglob("*.md")),
]


def prose(page: Path) -> Iterator[str]:
    """Yields the lines of a page that are not in a fenced block."""
    fenced = False
    for line in page.read_text("utf-8").splitlines():
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced:
            yield line


@cache
def anchors(page: Path) -> frozenset[str]:
    """Returns the anchors that GitHub gives the headings of a page."""
    found: list[str] = []
    for line in prose(page):
        if heading := re.match(r"#{1,6}\s+(.*?)\s*#*$", line):
            text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading[1])
            found.append(anchor(text))
    for n, name in enumerate(found):
        if times := found[:n].count(name):
            found.append(f"{name}-{times}")
    return frozenset(found)


def anchor(heading: str) -> str:
    """Returns GitHub's anchor: lower case, without punctuation, hyphens for spaces."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def broken(page: Path) -> Iterator[str]:
    """Yields the links of a page that lead nowhere."""
    text = re.sub(r"(`+)[^`]+\1", "code", "\n".join(prose(page)))
    for link in re.findall(r"\]\((?!https?:|mailto:)([^)\s]+)", text):
        path, _, wanted = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists():
            yield f"{page.relative_to(ROOT)}: {link}: no such file"
        elif wanted and wanted not in anchors(target):
            yield f"{page.relative_to(ROOT)}: {link}: no such heading"


def test_the_documents_links_lead_somewhere():
    assert not [fault for page in PAGES for fault in broken(page)]
    assert {"README.md", "CHANGELOG.md", "rest.md"} <= {page.name for page in PAGES}


def test_the_front_page_leads_to_every_page():
    front = ROOT / "docs/README.md"
    named = {
        (front.parent / target).resolve() for target in re.findall(r"\]\(([^)#]+)", front.read_text("utf-8"))
    }
    pages = {p for p in (ROOT / "docs").rglob("*.md") if p.parent.name != "decisions"}
    assert pages - named == {front}


@pytest.mark.parametrize(
    ("heading", "name"),
    [
        ("Plain English", "plain-english"),
        ("`rest.auth.file`, roles & tokens", "restauthfile-roles--tokens"),
        ("What is not here (yet)", "what-is-not-here-yet"),
        ("exactly-once", "exactly-once"),
    ],
)
def test_anchors_are_made_as_github_does(heading, name):
    assert anchor(heading) == name


def test_a_link_that_leads_nowhere_is_found(tmp_path, monkeypatch):
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    page = tmp_path / "page.md"
    page.write_text(
        "# Same\n## Same\n[a](gone.md) [b](#same) [c](#same-1) [d](#same-2) `[e](gone.md)`\n"
        "```\n# no heading\n[f](gone.md)\n```\n[g](page.md#no-heading) [h](https://example.org/gone.md)\n"
    )
    assert list(broken(page)) == [
        "page.md: gone.md: no such file",
        "page.md: #same-2: no such heading",
        "page.md: page.md#no-heading: no such heading",
    ]


def test_the_page_of_modules_is_what_the_docstrings_say():
    made = runpy.run_path(str(ROOT / "docs/reference/make_modules.py"))
    assert made["PAGE"].read_text("utf-8") == made["page"](), "run: ./dev docs"
