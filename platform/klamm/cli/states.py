"""Colours of states on a terminal; none elsewhere, nor where NO_COLOR is set (https://no-color.org)."""

from __future__ import annotations

import os
import re
import sys
from typing import Final

_COLOURS: Final = {
    "RUNNING": "green",
    "FAILED": "red",
    "PAUSED": "yellow",
    "STOPPED": "yellow",
    "RESTARTING": "magenta",
    "DEGRADED": "magenta",
    "UNASSIGNED": "cyan",
    "WAITING": "yellow",
    "THROTTLED": "yellow",
    "STARTING": "cyan",
    "SILENT": "red",
    "PROMOTED": "cyan",
    "NOT RUNNING": "red",
}
STATE: Final = re.compile(rf"\b({'|'.join(sorted(_COLOURS, reverse=True))})\b")


def colours() -> bool:
    """Return whether standard output takes colours."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def colour_of(state: str) -> str:
    """Return the colour of a state's name that STATE matches."""
    return _COLOURS[state]


def styled(text: str) -> str:
    """Return the text with each state in its colour, where standard output takes colours."""
    if not colours():
        return text
    import typer

    return STATE.sub(lambda m: typer.style(m[0], fg=colour_of(m[0])), text)


def painted(text: str, colour: str) -> str:
    """Return the text in a colour, where standard output takes colours."""
    import typer

    return typer.style(text, fg=colour) if colours() else text
