"""`klamm topic add-partitions`, `trim`, `clone` and `edit`: changes with a preview."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from klamm.cli.admin import ExecuteOption, exactly_one
from klamm.cli.cluster import AdminCluster
from klamm.cli.common import counted, ended_saying, fail, reported
from klamm.cli.completion import topic_names
from klamm.cli.output import Format, FormatOption, print_rows
from klamm.cli.target import Target
from klamm.cli.times import parse_time
from klamm_base.errors import ConfigError, KlammError

if TYPE_CHECKING:
    from klamm.admin.client import Admin
    from klamm.admin.model import TopicPartition
    from klamm.desired.plan import Change
    from klamm.desired.state import Topic

Name = Annotated[str, typer.Argument(metavar="TOPIC", autocompletion=topic_names, help="The topic's name.")]


def add_partitions(
    cluster: AdminCluster,
    topic: Name,
    count: Annotated[int, typer.Option("--partitions", "-p", min=1, help="How many it has then.")],
) -> None:
    """Give a topic more partitions.

    Keys of old records stay where they are: from then on producers may choose other partitions for them.
    """
    with reported():
        from klamm.admin.topics import create_partitions

        before = len(_there(cluster, topic).partitions)
        if count <= before:
            raise KlammError(f"topic {topic} has {before} partitions already; partitions are never removed")
        cluster.ask(lambda admin: create_partitions(admin, {topic: count}))
        typer.echo(f"{topic} has {count} partitions now ({before} before)")


def _there(cluster: AdminCluster, topic: str) -> Any:
    from klamm.admin.topics import describe_topics

    (found,) = cluster.ask(lambda admin: describe_topics(admin, [topic]))
    return found


# ---- trim


def trim(
    cluster: AdminCluster,
    topic: Name,
    before_offset: Annotated[
        int | None, typer.Option("--before-offset", min=0, help="Delete what is before this offset.")
    ] = None,
    before_time: Annotated[
        str | None,
        typer.Option(
            "--before-time",
            help="Delete what is before this time: ISO 8601, ms since 1970, or 7d: 7 days ago.",
        ),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Delete all records of now.")] = False,
    partitions: Annotated[
        list[int] | None, typer.Option("--partition", "-p", help="Only these partitions.")
    ] = None,
    execute: ExecuteOption = False,
    output: FormatOption = Format.TABLE,
) -> None:
    """Delete a topic's first records.

    Shows how many go from each partition; --execute deletes them, for good.
    """
    exactly_one(
        {
            "--before-offset": before_offset is not None,
            "--before-time": before_time is not None,
            "--all": everything,
        },
        of="place",
    )
    with reported():
        at_ms = None if before_time is None else parse_time(before_time)

        rows, targets = cluster.ask(lambda admin: _trim_plan(admin, topic, partitions, before_offset, at_ms))
        failed = _deleted(cluster, targets) if execute and targets else []
        print_rows(
            rows, ["topic", "partition", "start_offset", "end_offset", "new_start_offset", "records"], output
        )
        if failed:
            fail("; ".join(failed))
        if not execute:
            typer.echo("nothing was deleted: --execute does it", err=True)


def _deleted(cluster: AdminCluster, before: Mapping[TopicPartition, int]) -> list[str]:
    """Delete what is before these offsets. Returns a sentence for each partition where that failed."""
    from klamm.admin.records import delete_records

    unknown = f"nobody knows from which of {counted(len(before), 'partition')} records are deleted"
    with ended_saying(f"{unknown}: the same command without --execute shows what is left to delete"):
        done = cluster.ask(lambda admin: delete_records(admin, before))
    return [str(e) for e in done.values() if isinstance(e, KlammError)]


async def _trim_plan(
    admin: Admin, topic: str, partitions: list[int] | None, offset: int | None, at_ms: int | None
) -> tuple[list[dict[str, Any]], dict[TopicPartition, int]]:
    """Return a row for each partition, and the new starts of those that lose records."""
    from klamm.admin.model import TopicPartition
    from klamm.admin.offsets import known_offsets
    from klamm.admin.topics import describe_topics
    from klamm_kafka.wire.offset_specs import EARLIEST, LATEST

    (found,) = await describe_topics(admin, [topic])
    numbers = [p.number for p in found.partitions]
    strangers = sorted(set(partitions or ()) - set(numbers))
    if strangers:
        raise KlammError(f"topic {topic} has no partition {strangers[0]}")
    asked = [TopicPartition(topic, n) for n in numbers if not partitions or n in partitions]
    starts = await known_offsets(admin, asked, EARLIEST)
    ends = await known_offsets(admin, asked, LATEST)
    at = {} if at_ms is None else await known_offsets(admin, asked, at_ms)
    rows, targets = [], {}
    for tp in asked:
        start, end = starts[tp], ends[tp]
        later = at.get(tp, -1)  # negative: no record is that late
        wanted = offset if offset is not None else later if later >= 0 else end
        new = min(max(wanted, start), end)
        if new > start:
            targets[tp] = new
        rows.append({
            "topic": topic, "partition": tp.partition, "start_offset": start, "end_offset": end,
            "new_start_offset": new, "records": new - start,
        })  # fmt: skip
    return rows, targets


# ---- clone and edit


def clone(
    cluster: AdminCluster,
    target: Target,
    topic: Name,
    name: Annotated[str, typer.Argument(metavar="NEW", help="The new topic's name.")],
    execute: ExecuteOption = False,
) -> None:
    """Make an empty topic like another.

    Takes over partitions, replicas and settings, here or on another cluster. `klamm topic copy` copies records.
    """
    with reported():
        from klamm.desired.reading import read_topics
        from klamm.desired.state import Topic

        found = cluster.ask(lambda admin: read_topics(admin, [topic]))
        if topic not in found:
            raise KlammError(f"no topic {topic} at {cluster.bootstrap}")
        place = target.cluster(cluster)
        like = found[topic]
        replicas = min(like.replication_factor or 1, len(place.ask(lambda admin: admin.brokers())))
        new = Topic(partitions=like.partitions, replication_factor=replicas, configs=like.configs)
        changes = _planned(place, {name: new})
        if any(c.action.value != "create" for c in changes):
            raise KlammError(f"topic {name} is there already at {place.bootstrap}")
        _finish(place, changes, execute=execute)


def edit(cluster: AdminCluster, topic: Name, execute: ExecuteOption = False) -> None:
    """Edit a topic's settings in $EDITOR.

    It gets YAML, with the number of partitions. Shows what would change; --execute changes it. A setting that is taken out goes back to its default.
    """
    with reported():
        from klamm.cli.apply import documents
        from klamm.cli.editor import edited, kept
        from klamm.cli.output import yaml
        from klamm.desired.document import as_document, parse
        from klamm.desired.reading import read_topics
        from klamm.desired.state import State

        found = cluster.ask(lambda admin: read_topics(admin, [topic]))
        if topic not in found:
            raise KlammError(f"no topic {topic} at {cluster.bootstrap}")
        before = State(given=frozenset({"topics"}), topics=found)
        text = edited(yaml(as_document(before)), name="topic.yaml")
        with kept(text, name="topic.yaml"):
            (document, *more) = documents(text, "what was edited") or [None]
            wanted = parse(document, "what was edited")
            if more or set(wanted.topics) != {topic} or wanted.given != {"topics"}:
                raise ConfigError(f"what was edited must be about topic {topic}, and nothing else")
            if cluster.ask(lambda admin: read_topics(admin, [topic])) != found:
                raise KlammError(
                    f"topic {topic} was changed by others meanwhile: nothing is changed; edit it again"
                )
            _finish(cluster, _planned(cluster, wanted.topics, prune=True), execute=execute)


def _planned(cluster: AdminCluster, topics: Mapping[str, Topic], *, prune: bool = False) -> list[Change]:
    from klamm.desired.plan import plan
    from klamm.desired.reading import read_topics
    from klamm.desired.state import State

    given = frozenset({"topics"})
    there = cluster.ask(lambda admin: read_topics(admin, topics))
    wanted = State(given=given, topics=topics)
    return plan(State(given=given, topics=there), wanted, prune=given if prune else ())


def _finish(cluster: AdminCluster, changes: list[Change], *, execute: bool) -> None:
    """Print what is to be done, and do it."""
    from klamm.desired.carrying import carry_out

    todo = [c for c in changes if c.action.value != "unchanged"]
    for change in changes:
        typer.echo(
            f"{change.action.value} topic {change.title}" + (f": {change.said}" if change.said else "")
        )
    if not todo:
        return
    if not execute:
        typer.echo("nothing was changed: --execute does it", err=True)
        return

    async def act(admin: Admin) -> None:
        for change in todo:
            await carry_out(admin, change)

    cluster.ask(act)
    sys.stdout.flush()


def register(app: typer.Typer) -> None:
    """Add the commands to `klamm topic`."""
    app.command("add-partitions")(add_partitions)
    app.command()(trim)
    app.command()(clone)
    app.command()(edit)
