"""`klamm mirror verify`: compares what a flow has copied with its source, while it runs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from klamm.cli.common import (
    EXIT_FAILED,
    Output,
    OutputOption,
    OverrideOption,
    counted,
    fail,
    print_document,
    reported,
)
from klamm.cli.mirror_options import ConfigArgument, FlowArgument, TopicsArgument

if TYPE_CHECKING:
    from klamm_mirror.verify.flow import FlowOutcome, TopicOutcome
    from klamm_mirror.verify.partition import Outcome

EXIT_NOT_COMPARED: Final = 3
_EXPLAINED: Final = {
    "repeated": "came twice",
    "aborted_copied": "of aborted transactions copied",
    "aborted_left_out": "of aborted transactions left out",
    "compacted_at_source": "compacted away at the source",
    "compacted_at_target": "compacted away at the target",
    "purged_at_source": "deleted at the source",
    "purged_at_target": "deleted at the target",
    "before_start": "before the flow's start",
}
_DIFFERENCES: Final = {
    "missing": "missing",
    "extra": "only at the target",
    "different": "different",
    "behind": "not copied yet",
}

StateOption = Annotated[
    Path | None,
    typer.Option(
        "--state", metavar="FILE", help="Where to keep what is compared already, to go on after a kill."
    ),
]
RestartOption = Annotated[bool, typer.Option("--restart", help="Begin anew, whatever the state file says.")]
PatienceOption = Annotated[
    float,
    typer.Option(
        "--patience",
        metavar="SECONDS",
        help="How long the target may stand still before it counts as behind.",
    ),
]


def verify(
    config: ConfigArgument,
    name: FlowArgument,
    topics: TopicsArgument = None,
    state: StateOption = None,
    restart: RestartOption = False,
    patience: PatienceOption = 10.0,
    output: OutputOption = Output.TABLE,
    override: OverrideOption = None,
) -> None:
    """Compare what a flow has copied with its source.

    Compares partitions, settings, every record (key, value, headers, timestamp) up to the ends that the logs have at
    the beginning, and the groups' checkpoints. The mirror may run meanwhile; nothing is changed. Names the first
    differing record of each partition. Exit code 0: equal, 1: different, 3: a cluster could not be compared. A command
    that was killed goes on where it was.
    """
    from klamm_base.errors import ConfigError, KlammError

    with reported():
        try:
            outcome = _compared(config, name, topics or [], state, restart, patience, override)
        except ConfigError:
            raise
        except KlammError as e:
            fail(str(e), EXIT_NOT_COMPARED)
        if output.structured:
            from klamm_mirror.verify.flow import as_json

            print_document(as_json(name, outcome), output)
        else:
            typer.echo("\n".join(_lines(outcome)))
        if outcome.differs:
            raise typer.Exit(EXIT_FAILED)


def _compared(
    config: Path, name: str, topics: list[str], path: Path | None, restart: bool, patience_s: float,
    override: list[str] | None,
) -> FlowOutcome:  # fmt: skip
    import asyncio

    from klamm.mirror.flow_props import enabled_flow, source_props
    from klamm_mirror.verify.flow import FlowComparison
    from klamm_mirror.verify.state import State, default_path

    flow = enabled_flow(config, name, override)
    identity = {"file": str(config.resolve()), "flow": name, "topics": sorted(topics)}
    state = State(path or default_path(identity), identity)
    if not restart and state.load():
        typer.echo("klamm: going on with a comparison that did not end (--restart begins anew)", err=True)
    with _bar() as said:
        comparison = FlowComparison(source_props(flow), topics, state, patience_s=patience_s, said=said)
        outcome = asyncio.run(comparison.run())
    state.remove()
    return outcome


@contextmanager
def _bar() -> Iterator[Callable[[str, float], None]]:
    """Gives a function that shows progress on standard error, where that is a terminal."""
    if not sys.stderr.isatty():
        yield lambda _what, _share: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f} %"))
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=1.0)
        yield lambda what, share: progress.update(task, description=what, completed=share)


# ---- words


def _lines(outcome: FlowOutcome) -> Iterator[str]:
    for topic in outcome.topics:
        yield from _topic_lines(topic)
    verdicts = [group.verdict for group in outcome.groups]
    for group in outcome.groups:
        if group.verdict == "skips":
            yield (
                f"group {group.group} in {group.topic}-{group.partition}: its checkpoint {group.target_offset} skips "
                f"{counted(group.records, 'record')} (exact: {group.exact})"
            )
    if verdicts:
        said = [f"{verdicts.count(v)} {v}" for v in dict.fromkeys(verdicts)]
        yield f"{counted(len(verdicts), 'checkpoint')} of groups: {', '.join(map(str, said))}"
    yield "different" if outcome.differs else "equal"


def _topic_lines(topic: TopicOutcome) -> Iterator[str]:
    name = f"{topic.topic} -> {topic.remote}"
    if not topic.target_partitions:
        yield f"{name}: the target has no such topic"
        return
    if topic.target_partitions != topic.source_partitions:
        yield f"{name}: {topic.source_partitions} partitions at the source, {topic.target_partitions} at the target"
    for change in topic.configs:
        yield f"{name}: {change.name} is {change.new} at the source, {change.old} at the target"
    for partition, outcome in sorted(topic.partitions.items()):
        yield f"{name} partition {partition}: {_partition_words(outcome)}"


def _partition_words(outcome: Outcome) -> str:
    tally = outcome.tally
    parts = [f"{counted(tally.same, 'record')} equal"]
    parts += [
        f"{n} {words}" for key, words in (_DIFFERENCES | _EXPLAINED).items() if (n := getattr(tally, key))
    ]
    found = ", ".join(parts)
    if tally.first is not None:
        places = (("source", tally.first.source_offset), ("target", tally.first.target_offset))
        where = ", ".join(f"{side} offset {offset}" for side, offset in places if offset is not None)
        found += f"; first: {tally.first.field} ({where})"
    return found + "".join(f"; {note}" for note in outcome.notes)


def register(app: typer.Typer) -> None:
    """Add the command to `klamm mirror`."""
    app.command()(verify)
