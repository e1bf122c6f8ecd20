"""`klamm spark reset`: makes a job begin anew, as kafka-streams-application-reset does for Kafka Streams."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from klamm.cli.admin import ExecuteOption, exactly_one
from klamm.cli.cluster import TIMEOUT_S, AdminCluster, CommandConfigOption, TimeoutOption
from klamm.cli.common import EXIT_USAGE, counted, fail, reported
from klamm.cli.group_offsets import reset_of
from klamm.cli.offset_places import (
    ByDurationOption,
    ShiftByOption,
    ToDatetimeOption,
    ToLatestOption,
    ToOffsetOption,
)
from klamm.cli.output import Format, FormatOption, print_rows

if TYPE_CHECKING:
    from klamm.admin.client import Admin
    from klamm.admin.model import TopicPartition
    from klamm.admin.reset import Plan, Reset
    from klamm_spark.model import Job
    from klamm_spark.reset import Standing


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """The cluster's answers: new offsets of all partitions, groups that remember written batches, topics to delete."""

    planned: Plan
    start: Mapping[TopicPartition, int]
    groups: tuple[str, ...]
    topics: tuple[str, ...]


def reset(
    pipeline: Annotated[Path, typer.Argument(help="The job, a TOML file.", metavar="PIPELINE.toml")],
    application_id: Annotated[
        str | None,
        typer.Option("--application-id", help="The job's name; another one in the file is an error."),
    ] = None,
    checkpoint: Annotated[
        str | None, typer.Option("--checkpoint", help="The checkpoint, instead of the file's.")
    ] = None,
    bootstrap: Annotated[
        str | None,
        typer.Option("--bootstrap-server", "-b", help="HOST:PORT, instead of the file's bootstrap_servers."),
    ] = None,
    input_topics: Annotated[
        str | None,
        typer.Option(
            "--input-topics", help="Topics by commas; the others go on where they are. Default: all."
        ),
    ] = None,
    internal_topics: Annotated[
        str | None,
        typer.Option(
            "--internal-topics", help="Topics to delete, by commas: what other jobs hand on to this one."
        ),
    ] = None,
    to_earliest: Annotated[
        bool, typer.Option("--to-earliest", help="To the first record (the default).")
    ] = False,
    to_latest: ToLatestOption = False,
    to_offset: ToOffsetOption = None,
    to_datetime: ToDatetimeOption = None,
    by_duration: ByDurationOption = None,
    shift_by: ShiftByOption = None,
    from_file: Annotated[
        Path | None, typer.Option("--from-file", help="To the offsets of a CSV file: topic,partition,offset.")
    ] = None,
    execute: ExecuteOption = False,
    timeout: TimeoutOption = TIMEOUT_S,
    command_config: CommandConfigOption = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """Remove a job's checkpoint and state, and set where it begins. Shows what would be done unless --execute is given."""
    given = {
        "--to-latest": to_latest, "--to-offset": to_offset is not None, "--to-datetime": to_datetime is not None,
        "--by-duration": by_duration is not None, "--shift-by": shift_by is not None,
        "--from-file": from_file is not None,
    }  # fmt: skip
    how = exactly_one({"--to-earliest": to_earliest or not any(given.values()), **given}, of="place")
    values = {
        "--to-offset": to_offset, "--shift-by": shift_by, "--to-datetime": to_datetime,
        "--by-duration": by_duration, "--from-file": from_file,
    }  # fmt: skip
    with reported():
        job = _job(pipeline, application_id, checkpoint)
        wanted = reset_of(how, values.get(how), [job.name])
        cluster = AdminCluster(
            bootstrap=bootstrap or job.source.bootstrap_servers,
            command_config=command_config,
            timeout=timeout,
        )
        _reset(
            job,
            wanted,
            _words(input_topics),
            _words(internal_topics),
            cluster=cluster,
            execute=execute,
            output=output,
        )


def _job(pipeline: Path, application_id: str | None, checkpoint: str | None) -> Job:
    from klamm_spark.pipeline import load

    job = load(pipeline, contents=False)
    if application_id is not None and application_id != job.name:
        fail(f"{pipeline}: the job is called {job.name}, not {application_id}", EXIT_USAGE)
    if job.source.format is not None:
        fail(
            f"{pipeline}: the source is {job.source.format}: only a job that reads topics has offsets to reset",
            EXIT_USAGE,
        )
    return job if checkpoint is None else dataclasses.replace(job, checkpoint=checkpoint)


def _words(text: str | None) -> list[str]:
    return [w.strip() for w in (text or "").split(",") if w.strip()]


def _reset(
    job: Job, wanted: Reset, topics: list[str], internal: list[str], *,
    cluster: AdminCluster, execute: bool, output: Format,
) -> None:  # fmt: skip
    from klamm_spark import reset as resets
    from klamm_spark.lock import in_use

    standings = resets.standings(resets.place(job))
    found = cluster.ask(lambda admin: _look(admin, job, wanted, topics, internal, standings))
    for text in (*found.planned.clipped, *found.planned.fallbacks):
        typer.echo(f"klamm: {text}", err=True)
    start = {(tp.topic, tp.partition): o for tp, o in found.start.items()}
    planned = resets.plan(job, standings, start)
    print_rows(_rows(standings, found), ["topic", "partition", "offset", "new_offset"], output)
    done = "" if execute else "would be "
    if execute:
        resets.carry_out(planned)
        cluster.ask(lambda admin: _remove(admin, found))
    for path in planned.remove:
        typer.echo(f"{done}removed: {path}", err=True)
    for name in (*found.groups, *found.topics):
        typer.echo(f"{done}deleted: {'group' if name in found.groups else 'topic'} {name}", err=True)
    number = counted(len(found.planned.offsets), "offset")
    if not execute and in_use(planned.checkpoint):
        fail(
            f"dry run: the job runs now; --execute would be refused until it is stopped ({number} would be set then)"
        )
    typer.echo(
        f"{number} set" if execute else f"dry run: {number} would be set (--execute does it)", err=True
    )


def _rows(standings: tuple[Standing, ...], found: _Found) -> list[dict[str, Any]]:
    from klamm_spark.reset import current

    before = current(standings)
    return [
        {
            "topic": tp.topic,
            "partition": tp.partition,
            "offset": before.get((tp.topic, tp.partition)),
            "new_offset": o,
        }
        for tp, o in sorted(found.start.items())
    ]


async def _look(
    admin: Admin, job: Job, wanted: Reset, topics: list[str], internal: list[str], standings: tuple[Standing, ...]
) -> _Found:  # fmt: skip
    from klamm.admin.group_reset import chosen_partitions, plan_partitions
    from klamm.admin.groups import list_groups
    from klamm.admin.model import TopicPartition
    from klamm.admin.offsets import known_offsets
    from klamm.admin.reset import How, from_file
    from klamm_kafka.wire.offset_specs import EARLIEST
    from klamm_spark.reset import current

    read = await _topics(admin, job)
    if unknown := [t for t in topics if t.partition(":")[0] not in read]:
        fail(f"--input-topics: the job does not read {unknown[0]}; it reads {', '.join(read)}", EXIT_USAGE)
    everything = await chosen_partitions(admin, read)
    chosen = (
        list(from_file(wanted, job.name))
        if wanted.how is How.FILE
        else await chosen_partitions(admin, topics or read)
    )
    now = {TopicPartition(*p): o for p, o in current(standings).items()}
    planned = await plan_partitions(admin, job.name, wanted, chosen, now)
    if strange := sorted(set(planned.offsets) - set(everything)):
        fail(f"--from-file: the job does not read {strange[0]}", EXIT_USAGE)
    # A job's start names every partition; the job begins an unread partition with its first record
    others = [tp for tp in everything if tp not in planned.offsets]
    first = await known_offsets(admin, [tp for tp in others if tp not in now], EARLIEST)
    start = {tp: now.get(tp, first.get(tp, 0)) for tp in others} | dict(planned.offsets)
    existing = [g.group for g in await list_groups(admin)]
    prefixes = _marker_prefixes(job, standings)
    groups = tuple(g for g in existing if g.startswith(prefixes)) if prefixes else ()
    return _Found(
        planned=planned, start=start, groups=groups, topics=tuple(await _internal(admin, internal, read))
    )


async def _topics(admin: Admin, job: Job) -> list[str]:
    from klamm.admin.topics import list_topics

    if job.source.topics:
        return list(job.source.topics)
    pattern = re.compile(job.source.topics_regex or "")
    found = [t.name for t in await list_topics(admin) if not t.internal and pattern.fullmatch(t.name)]
    if not found:
        fail(f"no topic matches topics_regex = {job.source.topics_regex!r}")
    return found


async def _internal(admin: Admin, wanted: list[str], read: list[str]) -> list[str]:
    from klamm.admin.topics import list_topics

    if not wanted:
        return []
    there = {t.name for t in await list_topics(admin)}
    if absent := [t for t in wanted if t not in there]:
        fail(f"--internal-topics: there is no topic {absent[0]}", EXIT_USAGE)
    if both := [t for t in wanted if t in read]:
        fail(f"--internal-topics: {both[0]} is an input of the job; it is not deleted", EXIT_USAGE)
    return wanted


def _marker_prefixes(job: Job, standings: tuple[Standing, ...]) -> tuple[str, ...]:
    """Return prefixes of the groups in whose offsets exactly-once outputs remember their writes.

    A new checkpoint has new groups.
    """
    from klamm_spark.datasource.exactly_once import PREFIX, group_prefix

    by_name = {o.name: {k.lower(): v for k, v in o.options.items()} for o in job.outputs}
    return tuple(
        group_prefix(by_name.get(s.output, {}).get("transactionalidprefix") or PREFIX, s.query)
        for s in standings
    )


async def _remove(admin: Admin, found: _Found) -> None:
    from klamm.admin.groups import delete_group
    from klamm.admin.topics import delete_topics

    for group in found.groups:
        await delete_group(admin, group)
    if found.topics:
        await delete_topics(admin, list(found.topics))
