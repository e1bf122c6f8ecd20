"""`klamm agent`: the log agent, files to topics."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from klamm.cli.common import EXIT_FAILED, reported

app = typer.Typer(help="Read log files into topics.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Read log files into topics."""


@app.command()
def start(
    config: Annotated[Path, typer.Argument(metavar="agent.toml", help="The agent's configuration.")],
    stats_interval: Annotated[
        float,
        typer.Option("--stats-interval", min=0.0, help="Seconds between two log lines of figures; 0: none."),
    ] = 30.0,
) -> None:
    """Follow log files into topics until SIGTERM, SIGHUP or Ctrl-C, at least once, through rotation and truncation.

    Prints `ready agent files=N` once it follows its inputs. Stopped, it waits up to 15 s for acknowledgements and
    writes its checkpoints; exit code 1 says that some did not come: those lines are sent again at the next start.
    """
    import signal
    import sys

    from klamm_connectors.logs.agent import Agent
    from klamm_connectors.logs.config import AgentConfig

    with reported(server=True):
        agent = Agent(AgentConfig.load(config), stats_interval)

        def stop(number: int, _frame: object) -> None:
            agent.stop()
            signal.signal(number, signal.SIG_DFL)  # a second one ends it at once

        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup has it
                signal.signal(number, stop)

        def ready(files: int) -> None:
            sys.stdout.write(f"ready agent files={files}\n")
            sys.stdout.flush()

        if not agent.run(ready):
            raise typer.Exit(EXIT_FAILED)
