"""`klamm mirror plan`: what a mirror would create or change if it started now."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from klamm.cli.common import OverrideOption, counted, fail, reported
from klamm.cli.mirror_options import EXIT_UNREACHABLE, ConfigArgument
from klamm.cli.output import Format, FormatOption, print_rows

if TYPE_CHECKING:
    from klamm_mirror.flow_plan import Change
    from klamm_mirror.settings.mm2_config import Flow

COLUMNS = ["flow", "cluster", "kind", "name", "setting", "old", "new"]

FlowsOption = Annotated[
    list[str] | None, typer.Option("--flow", metavar="A->B", help="Only this flow; may be repeated.")
]


def plan(
    config: ConfigArgument,
    flows: FlowsOption = None,
    output: FormatOption = Format.TABLE,
    override: OverrideOption = None,
) -> None:
    """Show what the mirror would create or change if it started now.

    Asks both clusters of each flow about topics, partitions, settings (old and new), the mirror's own topics, ACLs, and
    the groups that would be followed; by policy also about schemas, quotas and users. Names the topics in which it would go on
    at MirrorMaker's offsets. Changes nothing. Exit code 3: a cluster could not be asked.
    """
    with reported():
        rows, problems = _planned(config, flows or [], override)
        if problems and not rows:
            fail("; ".join(problems), EXIT_UNREACHABLE)
        kinds = Counter(row["kind"] for row in rows)
        print_rows(rows, COLUMNS, output, wide=["source"])
        others = {kind: kinds.pop(kind, 0) for kind in ("group", "taken over", "conflict", "missing user")}
        said = [counted(kinds.total(), "change"), f"{counted(others.pop('group'), 'group')} followed"]
        if taken_over := others.pop("taken over"):
            said.append(f"{counted(taken_over, 'topic')} taken over from MirrorMaker")
        said += [counted(count, kind) for kind, count in others.items() if count]
        typer.echo(", ".join(said), err=True)
        if problems:
            fail("; ".join(problems), EXIT_UNREACHABLE)


def _planned(
    config: Path, names: Sequence[str], override: list[str] | None
) -> tuple[list[dict[str, Any]], list[str]]:
    """Returns rows, and a sentence for each flow that could not be planned."""
    import asyncio

    from klamm.mirror import files
    from klamm_base.errors import ConfigError
    from klamm_kafka.client import ClientError
    from klamm_plugins.errors import ConnectError

    mirror = files.load(config, override, plugins=True)
    flows = [mirror.flow(name) for name in names] or list(mirror.flows)
    rows, problems = [], []
    for flow in flows:
        try:
            found = asyncio.run(_changes(flow))
        except ConfigError as e:
            raise files.placed(e, flow, config, override) from None
        except (ClientError, ConnectError) as e:
            problems.append(f"{flow.name}: {e}")
        else:
            rows += [{"flow": flow.name, **change} for change in found]
    return rows, problems


async def _changes(flow: Flow) -> list[dict[str, Any]]:
    from klamm.mirror.flow_props import resolved
    from klamm_mirror.flow_plan import FlowPlan

    connectors = resolved(flow)
    found = [*await FlowPlan(flow, connectors).changes(), *await _taken_over(flow, connectors)]
    return [{**asdict(change), "kind": str(change.kind)} for change in found]


async def _taken_over(flow: Flow, connectors: Mapping[str, Mapping[str, str]]) -> list[Change]:
    """Returns the topics in which the flow would go on at MirrorMaker's offsets."""
    from klamm.mirror.flow_offsets import committed, taken_over
    from klamm_mirror.flow_plan import Change, Kind
    from klamm_mirror.loop import ask_cluster

    async with ask_cluster(next(iter(connectors.values())), "target") as target:
        topics = taken_over(await committed(target, flow))
    return [
        Change(cluster=flow.target, kind=Kind.TAKEN_OVER, name=topic, new=counted(count, "partition"))
        for topic, count in topics.items()
    ]


def register(app: typer.Typer) -> None:
    """Add the command to `klamm mirror`."""
    app.command()(plan)
