"""`klamm mirror resolve`: goes on with partitions that are stopped at a gap."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from klamm.cli.common import EXIT_USAGE, OverrideOption, counted, fail
from klamm.cli.mirror_options import ConfigArgument, FlowArgument, asking
from klamm.cli.output import Format, FormatOption, print_rows

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection

    from klamm_mirror.gaps.entries import Gap
    from klamm_mirror.gaps.ledger import Ledger
    from klamm_mirror.settings.mm2_config import Flow
    from klamm_mirror.stops import Action

COLUMNS = ["topic", "partition", "kind", "from", "to", "action", "state", "why"]
STOPPED_COLUMNS = ["topic", "partition", "kind", "from", "to", "state", "options", "why"]


def resolve(
    config: ConfigArgument,
    flow: FlowArgument,
    topic: Annotated[
        str | None,
        typer.Argument(
            metavar="TOPIC", help="The topic's name at the source; none: list stopped partitions."
        ),
    ] = None,
    partition: Annotated[
        list[int] | None,
        typer.Option("--partition", metavar="N", min=0, help="Only this partition; may be repeated."),
    ] = None,
    skip: Annotated[bool, typer.Option("--skip", help="Leave the gap's records out.")] = False,
    retry: Annotated[bool, typer.Option("--retry", help="Try what was refused again.")] = False,
    append: Annotated[
        bool, typer.Option("--append", help="Copy the topic from its start, behind what the copy holds.")
    ] = False,
    truncate_target: Annotated[
        bool,
        typer.Option(
            "--truncate-target",
            help="Delete the copy's records, and copy from the start. Refused while it holds records of others.",
        ),
    ] = False,
    new_topic: Annotated[
        bool, typer.Option("--new-topic", help="Copy a topic that was made again into another remote topic.")
    ] = False,
    new_source: Annotated[
        bool,
        typer.Option(
            "--new-source",
            help="Copy all topics from the cluster that answers for the source now, though it is another one than before.",
        ),
    ] = False,
    timeout: Annotated[
        float, typer.Option("--timeout", metavar="SECONDS", min=0, help="How long to wait for the mirror.")
    ] = 60.0,
    output: FormatOption = Format.TABLE,
    override: OverrideOption = None,
) -> None:
    """Go on with partitions that are stopped at a gap.

    Writes the decision into the gap ledger at the flow's target, and waits until the mirror has carried it out. Without a
    topic, lists stopped partitions and their options. A flow also stops where another cluster answers at the address of its
    source, until --new-source says that this is right. Exit code 1: nothing is stopped there, the mirror has
    not done it in time (it will, when it runs), or it failed again.
    """
    given = {
        "skip": skip, "retry": retry, "append": append, "truncate-target": truncate_target, "new-topic": new_topic,
    }  # fmt: skip
    chosen = [name for name, wanted in given.items() if wanted]
    if len(chosen) > 1:
        fail(f"--{chosen[0]} and --{chosen[1]}: give one of them", code=EXIT_USAGE)
    if new_source and (topic is not None or chosen):
        fail("--new-source: concerns all topics of a flow, give it alone", code=EXIT_USAGE)
    with asking():
        if new_source:
            typer.echo(_moved(config, flow, override), err=True)
            return
        if topic is None:
            print_rows(_stopped(config, flow, override), STOPPED_COLUMNS, output)
            return
        rows, problem = _resolved(config, flow, topic, partition or [], chosen, timeout, override)
        if rows:
            print_rows(rows, COLUMNS, output)
        if problem:
            fail(problem)


def _stopped(config: Path, name: str, override: list[str] | None) -> list[dict[str, Any]]:
    import asyncio

    from klamm.mirror.flow_props import enabled_flow
    from klamm_mirror.stops import ACTIONS

    async def read() -> list[Gap]:
        async with _ledger(enabled_flow(config, name, override)) as ledger:
            await ledger.catch_up()
            return ledger.table.waiting()

    return [
        gap.as_json() | {"options": " ".join(f"--{a}" for a in ACTIONS[gap.kind])}
        for gap in asyncio.run(read())
    ]


def _moved(config: Path, name: str, override: list[str] | None) -> str:
    """Notes that the flow's topics are copied from the cluster that is its source now. Returns what was done."""
    import asyncio

    from klamm.mirror.flow_props import enabled_flow, source_props
    from klamm_mirror.gaps.source_cluster import moved_to
    from klamm_mirror.loop import ask_cluster

    async def move() -> str:
        flow = enabled_flow(config, name, override)
        async with ask_cluster(source_props(flow), "source") as source, _ledger(flow) as ledger:
            cluster_id = (await source.refresh([])).cluster_id
            await ledger.catch_up()
            moved = [] if cluster_id is None else moved_to(ledger.table.topics.values(), cluster_id)
            await ledger.write(moved)
        return f"{counted(len(moved), 'topic')} copied from cluster {cluster_id} from now on"

    return asyncio.run(move())


def _resolved(
    config: Path, name: str, topic: str, partitions: Collection[int], chosen: list[str], timeout_s: float,
    override: list[str] | None,
) -> tuple[list[dict[str, Any]], str | None]:  # fmt: skip
    """Returns a row for each gap, and what is wrong in the end."""
    import asyncio

    from klamm.mirror.flow_props import enabled_flow
    from klamm_mirror.stops import Action

    action = Action(chosen[0]) if chosen else None
    flow = enabled_flow(config, name, override)
    return asyncio.run(_resolve(flow, topic, partitions, action, timeout_s))


async def _resolve(
    flow: Flow, topic: str, partitions: Collection[int], action: Action | None, timeout_s: float
) -> tuple[list[dict[str, Any]], str | None]:
    import time

    from klamm_mirror.gaps.resolve import ask, follow

    async with _ledger(flow) as ledger:
        asked = await ask(ledger, topic, partitions, action, time.time_ns() // 1_000_000)
        typer.echo(
            f"{counted(len(asked), 'decision')} written to {ledger.topic}; waiting for the mirror", err=True
        )
        told: list[Gap] = []
        left = await follow(ledger, asked, timeout_s, told.append)
    rows = [gap.as_json() for gap in sorted([*told, *left], key=lambda g: (g.partition, g.start))]
    failed = [gap for gap in told if gap.waits]
    if failed:
        return rows, f"{failed[0]} is still stopped: {failed[0].why}"
    if left:
        names = ", ".join(map(str, left[:5]))
        return rows, (
            f"no task has gone on with {names} within {timeout_s:g} s. The decision is in {ledger.topic}: it is carried out "
            f"when {flow.name} runs (klamm mirror status says whether it does)"
        )
    return rows, None


@contextlib.asynccontextmanager
async def _ledger(flow: Flow) -> AsyncIterator[Ledger]:
    """Open the ledger of a flow."""
    from klamm.mirror.flow_props import source_props
    from klamm_mirror.gaps.ledger import Ledger
    from klamm_mirror.loop import ask_cluster
    from klamm_mirror.source.config import gap_settings

    props = source_props(flow)
    settings = gap_settings(props)
    async with ask_cluster(props, "target") as cluster:
        yield Ledger(cluster, settings.topic, settings.replication_factor)


def register(app: typer.Typer) -> None:
    """Add the command to `klamm mirror`."""
    app.command()(resolve)
