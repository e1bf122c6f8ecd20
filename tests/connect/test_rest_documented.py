"""What Connect refuses or ignores is documented, and what is documented as refused is."""

from __future__ import annotations

import re
from pathlib import Path

from klamm.connect.definitions import NOT_YET, SINK, SOURCE

PAGE = (Path(__file__).parents[2] / "docs/differences.md").read_text()
CONNECT = PAGE.partition("## Connect\n")[2].partition("\n## ")[0]


def test_rest_every_refused_key_is_in_the_differences() -> None:
    rows = [line for line in CONNECT.splitlines() if line.startswith("| `")]
    patterns = [
        re.escape(p.partition("=")[0]).replace(r"\*", ".*")
        for row in rows
        for p in re.findall(r"`([^`]+)`", row.split("|")[1])
    ]
    missing = [key for key in NOT_YET if not any(re.fullmatch(p, key) for p in patterns)]
    assert not missing
    keys = [*SOURCE.names, *SINK.names]
    assert [p for p in patterns if not any(re.fullmatch(p, key) for key in keys)] == []


def test_rest_every_connector_key_says_what_it_is_for() -> None:
    for definition in (SOURCE, SINK):
        for key in definition:
            assert key.documentation.endswith("."), key.name
            assert key.display_name, key.name
            if key.name in NOT_YET:
                assert "Not available yet" in key.documentation, key.name
