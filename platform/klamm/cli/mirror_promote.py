"""`klamm mirror promote`: makes ordinary topics of copies that keep offsets."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from klamm.cli.common import EXIT_USAGE, OverrideOption, counted, fail
from klamm.cli.mirror_options import ConfigArgument, FlowArgument, TopicsArgument, asking
from klamm.cli.output import Format, FormatOption, print_rows

if TYPE_CHECKING:
    from klamm_kafka.client import Cluster
    from klamm_mirror.gaps.entries import Gap, GapTable
    from klamm_mirror.promote import MirrorTopic
    from klamm_mirror.settings.mm2_config import Flow

COLUMNS = ["topic", "remote", "partitions", "lag", "state"]


def promote(
    config: ConfigArgument,
    flow: FlowArgument,
    topics: TopicsArgument = None,
    everything: Annotated[bool, typer.Option("--all", help="All copies of the flow.")] = False,
    force: Annotated[
        bool,
        typer.Option("--force", help="Also copies that lack records, and where the source does not answer."),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be promoted.")] = False,
    output: FormatOption = Format.TABLE,
    override: OverrideOption = None,
) -> None:
    """Make ordinary topics of mirror topics, which keep offsets.

    Stop the writers at the source before. Checks that nothing is left to copy, sets the groups where they are at the
    source, and promotes the copies: they take records from then on, with a new leader epoch, and the flow leaves them
    alone. It cannot be undone. Exit code 1: nothing was promoted, because a copy lacks records, or nobody knows: the
    source does not answer, a partition is stopped, a topic was made anew (--force); or some were not.
    """
    import asyncio

    from klamm.mirror.flow_props import enabled_flow

    if bool(topics) == everything:
        fail("name topics, or give --all", code=EXIT_USAGE)
    with asking():
        wanted = _Wanted(names=topics, force=force, dry_run=dry_run)
        rows, problem = asyncio.run(_promoted(enabled_flow(config, flow, override), wanted))
        if rows:
            print_rows(rows, COLUMNS, output)
        if problem:
            fail(problem)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    """The topics to promote (None: all), and how."""

    names: Sequence[str] | None
    force: bool
    dry_run: bool


async def _promoted(flow: Flow, wanted: _Wanted) -> tuple[list[dict[str, Any]], str | None]:
    """Returns a row for each topic, and what is wrong in the end."""
    from klamm_mirror import promote
    from klamm_mirror.settings.keep_offsets import MIRROR

    async with _clusters(flow) as (source, away, target):
        names, ledger = await _known(flow, target, wanted.names)
        ids = {topic: known.topic_id for topic, known in ledger.topics.items()}
        found = await promote.survey(source, target, names, ids)
        known = [t for t in found if wanted.names is not None or t.state is not None]
        rest = [t for t in known if t.state == MIRROR]
        stopped = [gap for gap in ledger.waiting() if gap.topic in names]
        problem = _problem(flow, known, stopped, away, force=wanted.force)
        if problem is not None or wanted.dry_run or not rest:
            said = "mirror" if problem is not None else "would be promoted"
            return [_row(t, said) for t in known], problem
        if source is not None:
            moved = await _set_groups(flow, source, target, rest)
            typer.echo(f"{counted(moved, 'group')} set to where they are at {flow.source}", err=True)
        refused = await promote.promote(target, rest)
        lost = {} if source is None else await promote.written_since(source, promote.ends_of(rest))
    rows = [_row(t, refused.get(t.remote, "promoted")) for t in known]
    if refused:
        return rows, "; ".join(f"{remote}: {why}" for remote, why in sorted(refused.items()))
    for topic, count in sorted(lost.items()):
        typer.echo(
            f"{topic}: {counted(count, 'record')} at {flow.source} behind the copy's end stay there", err=True
        )
    return rows, None


def _problem(
    flow: Flow, topics: Sequence[MirrorTopic], stopped: Sequence[Gap], away: str | None, *, force: bool
) -> str | None:
    """Returns why nothing may be promoted; None if it may."""
    strange = [t.remote for t in topics if t.state is None]
    if strange:
        return f"{', '.join(strange)}: no mirror topic at {flow.target} (mirror.keep.offsets=true makes some)"
    if not topics:
        return f"{flow.name} has no mirror topics at {flow.target}"
    mirrors = [t for t in topics if t.state == "mirror"]
    if force or not mirrors:
        return None
    if away is not None:
        return f"{flow.source} does not answer, so nobody knows what the copies lack ({away}): --force promotes them"
    if stopped:
        return f"{stopped[0]} is stopped: {stopped[0].why}. Decide by klamm mirror resolve, or give --force"
    unknown = [t.why for t in mirrors if t.why is not None]
    if unknown:
        return f"{'; '.join(unknown)}: nobody knows what the copies lack, --force promotes them"
    behind = [f"{t.topic} ({counted(t.lag or 0, 'record')})" for t in mirrors if t.lag != 0]
    if behind:
        return f"not copied yet: {', '.join(behind)}. Stop the writers and wait, or give --force"
    return None


def _row(topic: MirrorTopic, said: str) -> dict[str, Any]:
    return {
        "topic": topic.topic, "remote": topic.remote, "partitions": len(topic.ends), "lag": topic.lag,
        "state": said if topic.state == "mirror" else topic.state,
    }  # fmt: skip


async def _known(
    flow: Flow, target: Cluster, wanted: Sequence[str] | None
) -> tuple[dict[str, str], GapTable]:
    """Returns the names at the target of topics (without names, of all topics that the flow has copied), and the ledger."""
    from klamm.mirror.flow_props import source_props
    from klamm_mirror.gaps.ledger import Ledger
    from klamm_mirror.settings.plugins import FlowPlugins
    from klamm_mirror.source.config import config_def, gap_settings

    props = source_props(flow)
    settings = gap_settings(props)
    ledger = Ledger(target, settings.topic, settings.replication_factor)
    await ledger.catch_up()
    remotes = ledger.table.remotes()
    plugins = FlowPlugins(props, config_def().parse(props))
    try:
        names = {
            topic: remotes.get(topic) or plugins.policy.remote_topic(topic)
            for topic in (ledger.table.topics if wanted is None else wanted)
        }
        return names, ledger.table
    finally:
        plugins.close()


async def _set_groups(flow: Flow, source: Cluster, target: Cluster, topics: Sequence[MirrorTopic]) -> int:
    """Sets the groups that the flow follows where they are at the source. Returns how many."""
    from klamm.mirror.flow_props import resolved
    from klamm_mirror.checkpoint.config import parse
    from klamm_mirror.checkpoint.translator import GroupTranslator
    from klamm_mirror.move.group_offsets import Verdict, at_source, set_places
    from klamm_mirror.settings.mm2_config import CHECKPOINT

    props = resolved(flow).get(CHECKPOINT)
    if props is None:
        return 0
    settings = parse(props)
    try:
        follows = settings.checkpointer
        translator = GroupTranslator(follows, source, target, syncs_at_source=settings.syncs_at_source)
        found = await at_source(source, target, translator, follows.wants_group)
        promoted = {topic.topic for topic in topics}
        places = [p for p in found if p.topic in promoted]
        for said in await set_places(target, places):
            typer.echo(said, err=True)
        return len({p.group for p in places if p.verdict is Verdict.SET})
    finally:
        settings.plugins.close()


@contextlib.asynccontextmanager
async def _clusters(flow: Flow) -> AsyncIterator[tuple[Cluster | None, str | None, Cluster]]:
    """Opens both clusters. Gives no source, and the reason, where it does not answer."""
    from klamm.mirror.flow_props import source_props
    from klamm_kafka.client import ClientError
    from klamm_mirror.loop import ask_cluster

    props = source_props(flow)
    async with (
        ask_cluster(props, "source") as source,
        ask_cluster(props, "target") as target,
    ):
        try:
            await source.refresh([])
        except ClientError as e:
            yield None, str(e), target
        else:
            yield source, None, target


def register(app: typer.Typer) -> None:
    """Add the command to `klamm mirror`."""
    app.command()(promote)
