"""`klamm mirror pause` and `resume`: stop the copying of single topics, and go on, by the file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from klamm.cli.common import OverrideOption, reported
from klamm.cli.mirror_options import ConfigArgument, FlowArgument

TopicArguments = Annotated[
    list[str],
    typer.Argument(metavar="TOPIC...", help="Topics, by the source's names, or regular expressions."),
]
Names = list[str]


def pause(
    config: ConfigArgument, name: FlowArgument, topics: TopicArguments, override: OverrideOption = None
) -> None:
    """Stop copying topics of a flow until they are resumed.

    Writes A->B.mirror.topics.paused into the file; its other lines stay. A mirror that runs stops within seconds; a
    restart changes nothing.
    """
    new: Names = []

    def more(there: Names) -> Names:
        new.extend(t for t in topics if t not in there)
        return [*there, *new]

    with reported():
        unknown = _unknown(config, name, override, topics)
    _change(config, name, override, more)
    for topic in [t for t in new if t in unknown]:
        typer.echo(f"klamm: {name} copies no topic {topic} now; one that comes is not copied", err=True)


def resume(
    config: ConfigArgument, name: FlowArgument, topics: TopicArguments, override: OverrideOption = None
) -> None:
    """Go on copying topics that were paused, where they were."""

    def rest(there: Names) -> Names:
        unknown = [topic for topic in topics if topic not in there]
        if unknown:
            from klamm_base.errors import ConfigError

            said = ", ".join(there) or "nothing"
            raise ConfigError(f"{', '.join(unknown)}: not paused by this name; paused in {name}: {said}")
        return [topic for topic in there if topic not in topics]

    _change(config, name, override, rest)


def _change(config: Path, name: str, override: list[str] | None, changed: Callable[[Names], Names]) -> None:
    from klamm.mirror import files
    from klamm.mirror.edit import change_file, set_property
    from klamm.mirror.flow_props import enabled_flow
    from klamm_mirror.settings.mm2_config import SOURCE
    from klamm_mirror.source.config import PAUSED

    with reported():
        present = enabled_flow(config, name, override).connectors[SOURCE].get(PAUSED, "")
        names = changed([item.strip() for item in present.split(",") if item.strip()])
        key, value = f"{name}.{PAUSED}", ",".join(names) or None
        edited = change_file(
            config, lambda text: set_property(text, key, value), lambda path: files.load(path, warn=False)
        )
        said = f"paused in {name}: {', '.join(names)}" if names else f"nothing is paused in {name}"
        typer.echo(said if edited else f"{said} (as before)", err=True)


def _unknown(config: Path, name: str, override: list[str] | None, topics: Names) -> Names:
    """Returns the patterns that match no topic which the flow's process copies. None, where no process says what it copies."""
    import asyncio

    from klamm.mirror.status import flow_of, status_of
    from klamm_mirror.settings.filters import patterns

    flow = flow_of(config, name, override)
    [status] = asyncio.run(status_of(config, [flow]))["flows"]
    wanted = {topic: patterns("TOPIC", [topic]) for topic in topics}
    there = {partition["topic"] for partition in status["partitions"]}
    if not there or len(status["partitions"]) < status["partitions_total"]:
        return []
    return [topic for topic, match in wanted.items() if not any(map(match.fullmatch, there))]


def register(app: typer.Typer) -> None:
    """Add the commands to `klamm mirror`."""
    app.command()(pause)
    app.command()(resume)
