"""The output of `--help`: every command list has whole sentences at 80 columns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import typer

from klamm.cli.main import app


def groups(command: Any, path: str) -> Iterator[Any]:
    """Yield each group of commands with its path."""
    children = getattr(command, "commands", {})
    if children:
        yield pytest.param(command, path, id=path)
    for name, child in children.items():
        yield from groups(child, f"{path} {name}")


@pytest.mark.parametrize(("group", "path"), list(groups(typer.main.get_command(app), "klamm")))
def test_a_list_of_commands_shows_whole_sentences(group, path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    context = group.make_context(path, [], resilient_parsing=True)
    page = group.get_help(context)
    listed = page.partition("Commands:\n")[2].splitlines()
    assert len(listed) >= len([c for c in group.commands.values() if not c.hidden])
    assert [line for line in listed if line.endswith("...")] == []
    assert max(map(len, listed)) <= 80
