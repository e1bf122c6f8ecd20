"""Advice about extras works: no index has Klamm, so nothing says `pip install klamm…`."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from klamm_base.extras import how_to_install

ROOT = Path(__file__).parents[2]
FOLDERS = ("base", "platform", "broker", "agent", "plugins", "connectors", "mirror", "spark_sinks", "docs", "examples", "compose")  # fmt: skip
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]


def texts() -> dict[str, str]:
    paths = [
        path
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*")
        if path.suffix in {".py", ".md", ".toml"}
    ]
    return {str(p.relative_to(ROOT)): p.read_text("utf-8") for p in [ROOT / "README.md", *paths]}


def test_no_text_tells_to_install_klamm_from_an_index():
    assert not [name for name, text in texts().items() if re.search(r"klamm\[|pip install '?klamm\b", text)]


def test_extras_that_are_told_of_exist():
    calls, words = r"how_to_install\([\"'](\w+)[\"']\)", r"pip install '\.\[([\w,]+)\]'"
    for name, text in texts().items():
        for found in re.findall(f"{calls}|{words}", text):
            for extra in ",".join(filter(None, found)).split(","):
                assert extra in EXTRAS, f"{name}: {extra}"
    assert how_to_install("mysql").endswith("pip install '.[mysql]'")
