"""The `klamm` command: one sub-command a module (`own_commands`), each imported with what it needs when it runs."""

from __future__ import annotations

import io
import os
import sys
from typing import Annotated

import typer

from klamm.cli.chosen_context import given_name
from klamm.cli.common import ESCAPED, drop_output, output_failure, reported
from klamm.cli.context import Commands
from klamm.cli.own_commands import Klamm
from klamm_base.version import __version__

app = Commands(
    name="klamm",
    cls=Klamm,
    help="Kafka's broker, Connect and MirrorMaker in one package.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(*, show: bool) -> None:
    if show:
        typer.echo(f"klamm {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=lambda value: _version(show=value), is_eager=True, help="Print the version."
        ),
    ] = False,
    log_level: Annotated[
        str, typer.Option(envvar="KLAMM_LOG_LEVEL", help="DEBUG, INFO, WARNING or ERROR, for servers.")
    ] = "INFO",
    context: Annotated[
        str | None,
        typer.Option(
            callback=given_name,
            metavar="NAME",
            help="Work in this context (`klamm context list`); else KLAMM_CONTEXT's, else the one in use.",
        ),
    ] = None,
) -> None:
    from klamm_base import logs

    if log_level.upper() not in logs.LEVELS:
        raise typer.BadParameter(
            f"{log_level!r} is not one of {', '.join(logs.LEVELS)}", param_hint="--log-level"
        )
    if "NOTIFY_SOCKET" in os.environ:  # before any child can inherit it
        from klamm_base.service_manager import service_manager

        service_manager()
    os.environ["KLAMM_LOG_LEVEL"] = log_level.upper()  # for the processes that `up` starts
    with reported():
        logs.configure(log_level.upper())


def main() -> None:
    """Run the `klamm` script. Reports an unexpected error as one sentence, too, unless KLAMM_DEBUG is set."""
    _open_closed_streams()
    if isinstance(sys.stderr, io.TextIOWrapper):
        sys.stderr.reconfigure(errors=ESCAPED)
    try:
        try:
            app(prog_name="klamm")  # also for `python -m`
        except SystemExit:
            _flush()
            raise
    except Exception as e:
        if os.environ.get("KLAMM_DEBUG"):
            raise
        said = output_failure(e)  # of `--help` and `--version`: commands report it themselves
        if said is None:
            what = " ".join(str(e).split()) or "no message"
            said = f"unexpected {type(e).__name__}: {what} (KLAMM_DEBUG=1 shows where; please report it)"
        sys.stderr.write(f"klamm: {said}\n")
        sys.exit(1)


def _open_closed_streams() -> None:
    """Open standard streams that whoever started us has closed (`>&-`), or a socket would become one of them."""
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, os.O_RDWR)
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8"))


def _flush() -> None:
    """Flush standard output now.

    At its end the interpreter would report a reader that went away (`klamm … | head`), which is no error.

    Flushes the stream itself: click's wrapper hides a failure, and the interpreter finds it later. Raises OSError.
    """
    try:
        if sys.__stdout__ is not None and not sys.__stdout__.closed:
            sys.__stdout__.flush()
    except BrokenPipeError:
        drop_output()


if __name__ == "__main__":
    main()
