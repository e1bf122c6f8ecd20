"""States have colours on a terminal, and only there."""

from __future__ import annotations

import io
import sys

import pytest

from klamm.cli import states
from klamm.cli.common import Output, print_rows

ROWS = [{"name": "a[hidden]", "state": "RUNNING", "tasks": ["2 RUNNING", "FAILED"], "note": "STOPPED2"}]
COLUMNS = ["name", "state", "tasks", "note"]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def on_terminal(monkeypatch, **environment):
    """Make standard output a terminal from here on, and return what it shows."""
    for name, value in ({"TERM": "xterm-256color", "COLUMNS": "100", "NO_COLOR": ""} | environment).items():
        monkeypatch.setenv(name, value)
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    return terminal


@pytest.mark.parametrize(
    ("state", "code"),
    [("RUNNING", 32), ("FAILED", 31), ("PAUSED", 33), ("STOPPED", 33), ("RESTARTING", 35), ("DEGRADED", 35)],
)
def test_a_state_has_its_colour(state, code, monkeypatch):
    on_terminal(monkeypatch)
    assert states.styled(f"task {state} here") == f"task \x1b[{code}m{state}\x1b[0m here"
    assert states.styled(f"{state}2 {state.lower()}") == f"{state}2 {state.lower()}"


def test_tables_colour_states(monkeypatch):
    terminal = on_terminal(monkeypatch)
    print_rows(ROWS, COLUMNS, Output.TABLE)
    shown = terminal.getvalue()
    assert "\x1b[32mRUNNING\x1b[0m" in shown
    assert "\x1b[31mFAILED\x1b[0m" in shown
    assert "a[hidden]" in shown  # and no markup of the table's
    assert "STOPPED2" in shown


@pytest.mark.parametrize("variable", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_no_colours_where_they_are_not_wanted(variable, monkeypatch):
    terminal = on_terminal(monkeypatch, **variable)
    assert states.styled("RUNNING") == "RUNNING"
    print_rows(ROWS, COLUMNS, Output.TABLE)
    assert "\x1b[3" not in terminal.getvalue()


def test_no_colours_without_a_terminal(capsys):
    assert states.styled("RUNNING") == "RUNNING"
    print_rows(ROWS, COLUMNS, Output.TABLE)
    assert "\x1b" not in capsys.readouterr().out
