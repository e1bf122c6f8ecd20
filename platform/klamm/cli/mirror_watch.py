"""Prints the status of a mirror, once or again and again: on a terminal in place, as `top` does."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import typer

from klamm.cli.common import Output, print_document, print_streamed
from klamm.cli.mirror_status import drawn, filtered
from klamm.cli.states import styled

if TYPE_CHECKING:
    from klamm.mirror.shapes import MirrorStatus

PIPED_ROOM: Final = 120
"""The width of lines that go to no terminal."""
_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
_HOME, _END_OF_LINE, _END_OF_SCREEN = "\x1b[H", "\x1b[K", "\x1b[J"


def show(status: MirrorStatus, topics: Collection[str], output: Output, *, everything: bool) -> None:
    """Prints a status once."""
    found = filtered(status, topics)
    if output.structured:
        print_document(found, output)
        return
    for line in _lines(found, topics, everything=everything):
        typer.echo(styled(line))


def shown_until_interrupted(
    look: Callable[[], MirrorStatus],
    every_s: float,
    topics: Collection[str],
    output: Output,
    *,
    everything: bool,
) -> None:
    """Prints a status each `every_s` until Ctrl-C: a line of JSON, a screen, or lines after an empty one."""
    in_place = output is Output.TABLE and sys.stdout.isatty()
    with _screen() if in_place else _quiet():
        while True:
            began, found = time.monotonic(), filtered(look(), topics)
            if output.structured:
                print_streamed(found, output)
            elif in_place:
                _redraw([_clock(found), "", *_lines(found, topics, everything=everything)])
            else:
                typer.echo("\n".join([_clock(found), *_lines(found, topics, everything=everything), ""]))
            time.sleep(max(every_s - (time.monotonic() - began), 0.05))


def _lines(status: MirrorStatus, topics: Collection[str], *, everything: bool) -> list[str]:
    room = shutil.get_terminal_size().columns if sys.stdout.isatty() else PIPED_ROOM
    unicode = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
    return drawn(status, room=room, everything=everything or bool(topics), unicode=unicode)


def _clock(status: MirrorStatus) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(status["at_ms"] / 1000))


def _redraw(lines: list[str]) -> None:
    """Draws over the last screen, so that nothing flickers; what does not fit is counted."""
    size = shutil.get_terminal_size()
    if len(lines) > size.lines:
        lines = [*lines[: size.lines - 1], f"… {len(lines) - size.lines + 1} more lines"]
    text = f"{_END_OF_LINE}\n".join(styled(line[: size.columns]) for line in lines)
    sys.stdout.write(f"{_HOME}{text}{_END_OF_LINE}{_END_OF_SCREEN}")
    sys.stdout.flush()


@contextmanager
def _screen() -> Iterator[None]:
    """Takes the terminal's other screen, and gives the first one back at the end."""
    sys.stdout.write(_ENTER)
    try:
        with _quiet():
            yield
    finally:
        sys.stdout.write(_LEAVE)
        sys.stdout.flush()


@contextmanager
def _quiet() -> Iterator[None]:
    """Ends without a word on Ctrl-C."""
    try:
        yield
    except KeyboardInterrupt:
        return
