"""`python -m klamm.cli.reference`: the command line's reference page, from the commands themselves.

A test looks for every command and option in docs/cli.md, so that the page cannot fall behind.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import typer

from klamm.cli.main import app

HEAD = """\
# Command line

Made by `./dev docs` from the commands; edit these, not this page. Exit codes: 0 done, 1 failed, 2 used wrongly,
130 ended by Ctrl-C before it was done, 143 by SIGTERM. What went wrong is one sentence on standard error (`klamm: …`); a command line that cannot be understood is answered with its
usage and the sentence. The options of `klamm` itself stand before the command: `klamm --log-level DEBUG up`. The commands
called `kafka-…` take Kafka's options and end as Kafka's do: [Kafka's runbooks](tools.md).
"""


def page() -> str:
    """Return the whole page as Markdown."""
    root = typer.main.get_command(app)
    context = root.make_context("klamm", [], resilient_parsing=True)
    return HEAD + "".join(_section(path, command, context) for path, command in walk(root, ("klamm",)))


def walk(command: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield `klamm` itself, then each command that does something, with the words that lead to it."""
    children = getattr(command, "commands", None)
    if not children:
        yield path, command
        return
    if len(path) == 1:
        yield path, command
    for name, child in children.items():
        if not child.hidden:
            yield from walk(child, (*path, name))


def _section(path: tuple[str, ...], command: Any, root: Any) -> str:
    # The root's context names the option for help
    parent = root if len(path) > 1 else None
    context = command.make_context(path[-1], [], parent=parent, resilient_parsing=True)
    words = [path[0] if len(path) == 1 else " ".join(path), *command.collect_usage_pieces(context)]
    lines = ["", f"## {' '.join(path)}", "", f"    {' '.join(words)}", "", (command.help or "").strip(), ""]
    rows = [record for p in command.get_params(context) if (record := p.get_help_record(context)) is not None]
    for option, text in rows:
        lines.append(f"- `{option.strip()}`: {' '.join(text.split())}")
    lines += _of_kafka(path[-1])
    return "\n".join(lines) + "\n"


def _of_kafka(name: str) -> list[str]:
    """Return the options of one of Kafka's own command lines, which parse themselves."""
    from klamm.kafka_tools.run import TOOLS, options_of

    return [f"- `{left}`: {what}" for left, what in options_of(name)] if name in TOOLS else []


if __name__ == "__main__":
    sys.stdout.write(page())
