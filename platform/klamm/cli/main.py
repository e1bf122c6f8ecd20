"""The `klamm` command: one sub-command a module, each importing what it needs when it runs."""

from __future__ import annotations

import io
import os
import sys
from typing import Annotated

import typer

from klamm.cli import (
    agent,
    broker,
    config,
    connect,
    connector,
    consume,
    demo,
    dlq,
    group,
    group_offsets,
    kafka,
    log,
    mirror,
    offsets,
    plugins,
    produce,
    reconcile,
    spark,
    topic,
    txn,
    up,
)
from klamm.cli.common import ESCAPED, drop_output, output_failure
from klamm.cli.context import Commands
from klamm.cli.plugin_commands import Group
from klamm_base.version import __version__

app = Commands(
    name="klamm",
    cls=Group,
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
) -> None:
    from klamm_base import logs

    if log_level.upper() not in logs.LEVELS:
        raise typer.BadParameter(
            f"{log_level!r} is not one of {', '.join(logs.LEVELS)}", param_hint="--log-level"
        )
    os.environ["KLAMM_LOG_LEVEL"] = log_level.upper()  # for the processes that `up` starts
    logs.configure(log_level.upper())


app.command("up")(up.up)
app.add_typer(broker.app, name="broker")
app.add_typer(connect.app, name="connect")
app.add_typer(mirror.app, name="mirror")
app.add_typer(agent.app, name="agent")
app.add_typer(topic.app, name="topic")
app.command("produce")(produce.produce)
app.command("consume")(consume.consume)
group_offsets.register(group.app)
app.add_typer(group.app, name="group")
app.command("offsets")(offsets.offsets)
app.add_typer(config.app, name="config")
app.add_typer(txn.app, name="txn")
app.add_typer(log.app, name="log")
app.add_typer(connector.app, name="connector")
app.add_typer(plugins.app, name="plugins")
app.add_typer(dlq.app, name="dlq")
app.add_typer(spark.app, name="spark")
app.add_typer(demo.app, name="demo")
app.command("reconcile")(reconcile.reconcile)
kafka.register(app)


def main() -> None:
    """Run the `klamm` script. Reports an unexpected error as one sentence, too, unless KLAMM_DEBUG is set."""
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
