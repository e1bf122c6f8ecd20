"""`klamm agent`: the log agent, files to topics."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from klamm.cli.common import EXIT_FAILED, Output, OutputOption, print_document, print_streamed, reported
from klamm.cli.context import Commands

if TYPE_CHECKING:
    from klamm_agent.trial import Tried

app = Commands(help="Read log files into topics.", no_args_is_help=True)

_WATCH_S = 1.0
_NO_FIGURES = ("input", "topic")
ConfigArgument = Annotated[Path, typer.Argument(metavar="agent.toml", help="The agent's configuration.")]


@app.callback()
def _group() -> None:
    """Read log files into topics."""


@app.command()
def start(
    config: ConfigArgument,
    stats_interval: Annotated[
        float,
        typer.Option("--stats-interval", min=0.0, help="Seconds between two log lines of figures; 0: none."),
    ] = 30.0,
) -> None:
    """Follow log files into topics until SIGTERM or Ctrl-C.

    Delivers each line once, through rotation, truncation and kills.

    Prints `ready agent files=N` once it follows its inputs. Stopped, it waits up to 15 s for acknowledgements and
    writes its checkpoints; exit code 1 says that some did not come: those lines are sent again at the next start.
    SIGHUP reads the configuration again: one with an error is said, and the old one stays.
    """
    import signal

    from klamm_agent.service import Service
    from klamm_base.freed_memory import keep_freed
    from klamm_base.service_manager import say_ready

    keep_freed(16 << 20)  # several of the largest batches
    with reported(server=True):
        service = Service(config, stats_interval)

        def stop(number: int, _frame: object) -> None:
            service.stop()
            signal.signal(number, signal.SIG_DFL)  # a second one ends it at once

        for number in (signal.SIGTERM, signal.SIGINT):
            if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup has it
                signal.signal(number, stop)
        signal.signal(signal.SIGHUP, lambda _number, _frame: service.hang_up())

        def ready(files: int) -> None:
            say_ready(f"ready agent files={files}")

        if not service.run(ready):
            raise typer.Exit(EXIT_FAILED)


@app.command()
def check(config: ConfigArgument, output: OutputOption = Output.TABLE) -> None:
    """Read a configuration and say what its inputs find now. Exit code 2 when it has an error."""
    from klamm.cli.common import print_rows
    from klamm_agent.config.agent import AgentConfig
    from klamm_agent.trial import found_now

    with reported():
        loaded = AgentConfig.load(config)
        rows, remarks = found_now(loaded)
        print_rows(rows, ("input", "type", "topic", "format", "stages", "files"), output)
        for name, why in loaded.ignored:
            typer.echo(f"klamm: [producer] {name} has no effect: {why}", err=True)
        for remark in remarks:
            typer.echo(f"klamm: {remark}", err=True)


@app.command(name="test")
def try_(
    config: ConfigArgument,
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="A log file (`.gz` is unpacked), or - for standard input.")
    ],
    lines: Annotated[int, typer.Option("--lines", "-n", min=1, help="How many events to show.")] = 5,
    input_: Annotated[
        str | None,
        typer.Option(
            "--input", help="Id or number (from 0) of the input; else the first whose paths name FILE."
        ),
    ] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show what a configuration would do with a file.

    Shows the input that takes it, how events are cut, each stage, and the record.

    Sends nothing and keeps no state: it may run beside the agent.
    """
    import sys

    from klamm_agent.config.agent import AgentConfig
    from klamm_agent.stages import patience
    from klamm_agent.trial import Trial, head_of, read_head

    with reported():
        patience.enable()
        path = None if file == "-" else Path(file)
        trial = Trial(AgentConfig.load(config), path, input_)
        data = read_head(path) if path is not None else head_of(sys.stdin.buffer)
        tried = list(trial.run(data, lines))
        if output.structured:
            print_document([{"input": trial.name} | t.row() for t in tried], output)
            return
        typer.echo(f"input {trial.name} → topic {trial.input.topic}, format {trial.input.format}")
        for one in tried:
            _show(one)


def _show(one: Tried) -> None:
    import json

    at = "" if one.offset is None else f" at byte {one.offset}"
    typer.echo(f"\nevent {one.number}{at}{f', {one.lines} lines' if one.lines > 1 else ''}")
    for line in one.text.split("\n"):
        typer.echo(f"    | {line}")
    before: Any = one.text
    for name, result in one.stages:
        if result is None:
            shown = "away"
        elif result == before:
            shown = "unchanged"
        else:
            shown = result if isinstance(result, str) else json.dumps(result, ensure_ascii=False)
        typer.echo(f"  {name}: {shown}")
        before = result
    if one.topic:
        typer.echo(f"  → {one.topic}{' (dead letter)' if one.outcome == 'dead_letter' else ''}: {one.value}")
    else:
        typer.echo(f"  → dropped: {one.reason}")


@app.command()
def status(
    config: Annotated[
        Path | None, typer.Argument(metavar="agent.toml", help="The agent's configuration.")
    ] = None,
    state_dir: Annotated[
        Path | None, typer.Option("--state-dir", help="The agent's state directory, instead of agent.toml.")
    ] = None,
    output: OutputOption = Output.TABLE,
    watch: Annotated[bool, typer.Option("--watch", help="Show it again every second until Ctrl-C.")] = False,
) -> None:
    """Show whether an agent runs, and how far it is behind.

    Shows what it reads, too, and what it gave up. Exit code 1: it does not run.
    """
    import sys
    import time

    from klamm_agent.report import report

    if (config is None) == (state_dir is None):
        raise typer.BadParameter("one of agent.toml and --state-dir is expected")
    with reported():
        folder = state_dir if state_dir is not None else _state_dir(config)
        while True:
            found = report(folder)
            if output.structured:
                (print_streamed if watch else print_document)(found, output)
            else:
                if watch and sys.stdout.isatty():
                    typer.echo("\x1b[H\x1b[2J", nl=False)
                _show_status(found)
            if not watch:
                break
            time.sleep(_WATCH_S)
        if found["state"] in {"stopped", "killed", "never ran"}:
            raise typer.Exit(EXIT_FAILED)


def _state_dir(config: Path | None) -> Path:
    """Return the state folder that a configuration names.

    Prints an error in the configuration where the folder can be read all the same: a running agent goes on with the
    configuration before.
    """
    from klamm_agent.config.agent import AgentConfig, state_dir_of
    from klamm_base.errors import ConfigError

    assert config is not None, "checked by the caller"
    try:
        return AgentConfig.load(config).state_dir
    except ConfigError as e:
        folder = state_dir_of(config)
        if folder is None:
            raise
        typer.echo(f"klamm: {e}", err=True)
        return folder


def _figure(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def _show_status(found: dict[str, Any]) -> None:
    import datetime as dt

    from klamm.cli.common import print_record, print_rows

    at = found.get("at")
    head = {
        "state": found["state"],
        "pid": found.get("pid"),
        "at": dt.datetime.fromtimestamp(at, dt.UTC).isoformat(timespec="seconds") if at else None,
        "waiting for": found.get("waiting_for") or None,
        "cluster": found.get("cluster_id"),
        "partitions without an answer": found.get("unanswered") or None,
        "exactly once": found.get("exactly_once"),
        "may have come twice": found.get("unproved") or None,
        "lines read": found.get("lines"),
        "acknowledged": found.get("acked"),
        "lag, bytes": found.get("lag_bytes"),
        "queued, bytes": found.get("queued_bytes"),
        "spool, bytes": found.get("spool_bytes"),
        "reload": f"failed: {found['reload_error']}" if found.get("reload_error") else None,
    }
    print_record({k: v for k, v in head.items() if v is not None or k in {"pid", "at"}}, Output.TABLE)
    if inputs := found.get("inputs"):
        typer.echo("")
        rows = [i | {"dropped": sum(i["dropped"].values())} for i in inputs]
        print_rows(
            rows,
            ("input", "topic", "lines", "bytes", "parse_failures", "dead_letters", "dropped"),
            Output.TABLE,
        )
    if streams := found.get("streams"):
        typer.echo("")
        rows = [
            {
                "stream": s["input"],
                "figures": "  ".join(f"{k}={_figure(v)}" for k, v in s.items() if k not in _NO_FIGURES and v),
            }
            for s in streams
        ]
        print_rows(rows, ("stream", "figures"), Output.TABLE)
    if tracked := found["tracked"]:
        typer.echo("")
        print_rows(tracked, ("path", "offset", "size", "lag_bytes"), Output.TABLE)
    if unreadable := found.get("unreadable"):
        typer.echo("")
        rows = [{"not readable": path, "why": why} for path, why in unreadable.items()]
        print_rows(rows, ("not readable", "why"), Output.TABLE)
    if policy := found["policy"]:
        typer.echo("")
        print_rows(policy, ("path", "reason", "lines", "from", "to"), Output.TABLE)
    if gaps := found["gap_reasons"]:
        typer.echo("")
        rows = [{"gaps": reason} | counts for reason, counts in gaps.items()]
        print_rows(rows, ("gaps", "ranges", "bytes", "lines"), Output.TABLE)
