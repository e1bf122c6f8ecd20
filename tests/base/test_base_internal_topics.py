"""The brokers' own topics: known in one place."""

from __future__ import annotations

import ast
from pathlib import Path

from klamm_base import internal_topics
from klamm_base.internal_topics import INTERNAL_TOPICS

ROOT = Path(__file__).parents[2]
PACKAGES = ("base", "broker", "agent", "plugins", "connectors", "mirror", "spark_sinks", "platform")


def test_they_are_kafkas():
    assert {"__consumer_offsets", "__transaction_state", "__share_group_state"} == INTERNAL_TOPICS


def test_no_other_module_writes_their_names():
    """Only whole strings count: a sentence may mention a name."""
    found = {
        path.relative_to(ROOT).as_posix()
        for package in PACKAGES
        for path in (ROOT / package).rglob("klamm*/**/*.py")
        if any(name in (text := path.read_text()) for name in INTERNAL_TOPICS)
        and any(isinstance(n, ast.Constant) and n.value in INTERNAL_TOPICS for n in ast.walk(ast.parse(text)))
    }
    assert found == {Path(internal_topics.__file__).relative_to(ROOT).as_posix()}
