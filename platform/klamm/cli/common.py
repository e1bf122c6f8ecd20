"""Parts that all commands share: options, exit codes, output as table or JSON, errors as one sentence.

This module imports only typer. A command imports what it needs when it runs, because start-up is a feature.
"""

from __future__ import annotations

import codecs
import errno
import json
import logging
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum
from typing import Annotated, Any, Final

import typer

from klamm_base.errors import ConfigError, KlammError
from klamm_base.interrupts import INTERRUPTED, Interrupted, interruptible

EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
EXIT_INTERRUPTED: Final = INTERRUPTED
REQUEST_S: Final = 30.0
_WRITE_ERRORS: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


class Output(StrEnum):
    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    JSONL = "jsonl"
    YAML = "yaml"
    CSV = "csv"

    @property
    def structured(self) -> bool:
        """True for formats that programs read: they have all fields, and no text beside them."""
        return self not in (Output.TABLE, Output.WIDE)


OutputOption = Annotated[
    Output, typer.Option("--output", "-o", help="How to print: table, wide, json, jsonl, yaml or csv.")
]


OverrideOption = Annotated[
    list[str] | None,
    typer.Option("--override", metavar="KEY=VALUE", help="Set one property; may be given several times."),
]


@contextmanager
def reported(*, server: bool = False) -> Iterator[None]:
    """Turn an error into one sentence on standard error and an exit code.

    Leaves an unexpected error to `main`; a `server` logs it with its traceback.
    """
    try:
        yield
    except (typer.Exit, typer.BadParameter):
        raise
    except KlammError as e:
        if isinstance(e, Interrupted):
            raise typer.Exit(e.code) from None
        fail(str(e), EXIT_USAGE if isinstance(e, ConfigError) else EXIT_FAILED)
    except BrokenPipeError:
        drop_output()  # the reader went away (`klamm consume … | head`)
        raise typer.Exit(0) from None
    except Exception as e:
        if not server:
            if said := output_failure(e):
                fail(said)
            raise
        logging.getLogger("klamm").critical(
            "stopped by an error that should not have happened", exc_info=True
        )
        raise typer.Exit(EXIT_FAILED) from None


@contextmanager
def ended_saying(how: str) -> Iterator[None]:
    """Say what is left, or how to go on, where Ctrl-C or SIGTERM ends a command."""
    try:
        with interruptible():
            yield
    except Interrupted as e:
        fail(f"ended by {e}; {how}", e.code)


def output_failure(error: Exception) -> str | None:
    """Return a sentence for an error of standard output, such as a full disk; None for any other error.

    Commands write nothing else, so a write error without a file's name belongs to standard output. Drops the rest of
    its buffer, or the interpreter would report it once more at exit.
    """
    if not isinstance(error, OSError) or error.errno not in _WRITE_ERRORS or error.filename is not None:
        return None
    drop_output()
    return f"cannot write to standard output: {error.strerror}"


def drop_output() -> None:
    """Point standard output nowhere, so that the flush at exit is quiet."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), (sys.__stdout__ or sys.stdout).fileno())


def fail(message: str, code: int = EXIT_FAILED) -> None:
    """Print the error and leave with `code`; with KLAMM_DEBUG set, print the traceback too."""
    if os.environ.get("KLAMM_DEBUG"):
        import traceback

        traceback.print_exc()
    typer.echo(f"klamm: {message}", err=True)
    raise typer.Exit(code)


def print_rows(rows: Sequence[Mapping[str, Any]], columns: Sequence[str], output: Output) -> None:
    """Print rows as a table (in colours on a terminal), or for programs."""
    if output is Output.CSV:
        from klamm.cli import output as formats

        formats.print_rows(rows, columns, formats.Format.CSV)
    elif output.structured:
        print_document(list(rows), output)
    elif sys.stdout.isatty() and output is Output.TABLE:
        _rich_table(rows, columns)
    else:
        _plain_table(rows, columns)


def print_record(record: Mapping[str, Any], output: Output) -> None:
    """Print one record as `key  value` lines, or for programs."""
    if output.structured:
        print_document(record, output)
        return
    width = max(map(len, record), default=0)
    for key, value in record.items():
        typer.echo(f"{key:<{width}}  {_cell(value)}")


def print_document(document: Any, output: Output) -> None:
    """Print a document in a structured format. CSV has a line for each item of a list, or each field."""
    match output:
        case Output.YAML:
            from klamm.cli.output import yaml

            typer.echo(yaml(document), nl=False)
        case Output.JSONL:
            for each in document if isinstance(document, list) else [document]:
                typer.echo(json.dumps(each))
        case Output.CSV:
            from klamm.cli import output as formats

            if isinstance(document, list):
                columns = list(dict.fromkeys(key for row in document for key in row))
                formats.print_rows(document, columns, formats.Format.CSV)
            else:
                rows = [{"field": key, "value": value} for key, value in document.items()]
                formats.print_rows(rows, ["field", "value"], formats.Format.CSV)
        case _:
            typer.echo(json.dumps(document, indent=2))


def print_streamed(document: Any, output: Output) -> None:
    """Print one of many documents: a line of JSON, or a document of YAML with a line before it."""
    if output is Output.YAML:
        typer.echo("---")
    print_document(document, Output.JSONL if output is Output.JSON else output)


def _rich_table(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from klamm.cli.states import STATE, colour_of, colours

    def text(value: Any) -> Text:
        shown = Text(_cell(value))  # no markup: a cell may hold [hidden]
        for found in STATE.finditer(shown.plain) if colours() else ():
            shown.stylize(colour_of(found[0]), *found.span())
        return shown

    table = Table(box=None, header_style="bold", pad_edge=False)
    for column in columns:
        table.add_column(column.upper().replace("_", " "), overflow="fold")
    for row in rows:
        table.add_row(*(text(row.get(c)) for c in columns))
    Console().print(table)


def _plain_table(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> None:
    cells = [
        [c.upper().replace("_", " ") for c in columns],
        *([_cell(r.get(c)) for c in columns] for r in rows),
    ]
    widths = [max(len(line[i]) for line in cells) for i in range(len(columns))]
    for line in cells:
        typer.echo("  ".join(f"{text:<{width}}" for text, width in zip(line, widths, strict=True)).rstrip())


def _cell(value: Any) -> str:
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case list():
            return ",".join(map(str, value)) or "-"
        case _:
            return str(value)


def _escape_bytes(error: UnicodeError) -> tuple[str, int]:
    """Escape bytes of the command line that are not UTF-8, which Python holds as surrogates."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    found = error.object[error.start : error.end]
    return found.encode(errors="surrogateescape").decode(errors="backslashreplace"), error.end


ESCAPED: Final = "klamm_escaped"
"""The name of an error handler for text that holds bytes of the command line."""
codecs.register_error(ESCAPED, _escape_bytes)


def shown(text: str) -> str:
    """Return a text of the command line with an escape in place of each byte that is not UTF-8."""
    return text.encode(errors=ESCAPED).decode()


def counted(number: int, noun: str) -> str:
    """Return `1 record`, `2 records`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def pairs(words: Sequence[str] | None, option: str) -> dict[str, str]:
    """Return `key=value` words as a mapping. Raises BadParameter for any other word."""
    result = {}
    for word in words or []:
        key, equals, value = word.partition("=")
        if not equals or not key:
            raise typer.BadParameter(f"{word!r} is not key=value", param_hint=option)
        result[key] = value
    return result
