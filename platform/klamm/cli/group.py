"""`klamm group`: consumer groups of both kinds, their lag and their offsets."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from klamm.cli.admin import TIMEOUT_S, ExecuteOption, TimeoutOption, exactly_one, with_admin
from klamm.cli.common import (
    DEFAULT_BOOTSTRAP,
    EXIT_FAILED,
    BootstrapOption,
    CommandConfigOption,
    counted,
    fail,
    reported,
)
from klamm.cli.output import Format, FormatOption, print_rows

if TYPE_CHECKING:
    from klamm.admin.client import Admin
    from klamm.admin.groups import Group
    from klamm.admin.reset import Plan, Reset

app = typer.Typer(help="Watch consumer groups, set and delete their offsets.", no_args_is_help=True)

Groups = Annotated[list[str] | None, typer.Argument(metavar="[GROUP]...", help="Names of groups.")]
AllGroups = Annotated[bool, typer.Option("--all-groups", help="All consumer groups.")]
Topics = Annotated[
    list[str] | None,
    typer.Option(
        "--topic", metavar="TOPIC[:0,1]", help="A topic, or some of its partitions; may be repeated."
    ),
]


@app.command("list")
def list_groups(
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    state: Annotated[
        list[str] | None, typer.Option("--state", help="Only groups in this state, such as Stable or Empty.")
    ] = None,
    type_: Annotated[
        list[str] | None, typer.Option("--type", help="Only groups of this type: classic or consumer.")
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="Groups of other protocols too, such as Connect's.")
    ] = False,
    timeout: TimeoutOption = TIMEOUT_S,
    command_config: CommandConfigOption = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """List groups with their type and state."""
    from klamm.admin import groups as api

    with reported():
        types = _chosen(type_, api.TYPES, "--type")
        states = _chosen(state, api.STATES, "--state")
        found = with_admin(
            bootstrap,
            command_config,
            timeout,
            lambda a: api.list_groups(a, types=types, states=states, consumers_only=not every),
        )
        rows = [
            {
                "group": g.group,
                "type": g.type or None,
                "state": g.state or None,
                "protocol_type": g.protocol_type,
            }
            for g in found
        ]
        print_rows(rows, ["group", "type", "state"], output, wide=["protocol_type"])


def _chosen(words: Sequence[str] | None, valid: Sequence[str], option: str) -> list[str]:
    known = {v.lower(): v for v in valid}
    for word in words or ():
        if word.lower() not in known:
            raise typer.BadParameter(f"{word!r} is not one of {', '.join(valid)}", param_hint=option)
    return [known[w.lower()] for w in words or ()]


# ---- describe


@app.command()
def describe(
    groups: Groups = None,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    all_groups: AllGroups = False,
    offsets: Annotated[bool, typer.Option("--offsets", help="Offsets and lag (the default).")] = False,
    members: Annotated[bool, typer.Option("--members", help="Who is in the group and reads what.")] = False,
    state: Annotated[bool, typer.Option("--state", help="State, assignor and coordinator.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="As -o wide: more columns.")] = False,
    timeout: TimeoutOption = TIMEOUT_S,
    command_config: CommandConfigOption = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """Describe groups: offsets and lag, members, or state."""
    _scope(groups, all_groups=all_groups)
    if offsets + members + state > 1:
        raise typer.BadParameter("give one of --offsets, --members and --state")
    if verbose and output is Format.TABLE:
        output = Format.WIDE
    with reported():
        what = "members" if members else "state" if state else "offsets"
        rows, problems = with_admin(
            bootstrap, command_config, timeout, lambda a: _described(a, groups, what=what)
        )
        columns, wide = _COLUMNS[what]
        print_rows(rows, columns, output, wide=wide)
        if problems:
            fail("; ".join(problems))


_COLUMNS: dict[str, tuple[list[str], list[str]]] = {
    "offsets": (
        [
            "group", "topic", "partition", "current_offset", "log_end_offset", "lag", "consumer_id", "host",
            "client_id",
        ],
        ["leader_epoch", "state"],
    ),
    "members": (
        ["group", "consumer_id", "host", "client_id", "partitions"],
        ["group_instance_id", "current_epoch", "assignment", "target_epoch", "target_assignment", "upgraded"],
    ),
    "state": (
        ["group", "type", "state", "assignor", "members", "coordinator"],
        ["coordinator_id", "group_epoch", "target_epoch"],
    ),
}  # fmt: skip


def _scope(groups: Sequence[str] | None, *, all_groups: bool) -> None:
    if bool(groups) == all_groups:
        raise typer.BadParameter("name groups, or give --all-groups", param_hint="GROUP")


async def _names(admin: Admin, groups: Sequence[str] | None) -> list[str]:
    """The groups that are named; all of them where none is."""
    from klamm.admin.groups import list_groups as ask

    return list(dict.fromkeys(groups)) if groups else [g.group for g in await ask(admin)]


async def _described(
    admin: Admin, groups: Sequence[str] | None, *, what: str
) -> tuple[list[dict[str, Any]], list[str]]:
    """Rows of what can be described, and a sentence for each group that cannot."""
    from klamm.admin.errors import AdminError
    from klamm.admin.groups import describe_group

    rows: list[dict[str, Any]] = []
    problems = []
    for name in await _names(admin, groups):
        try:
            group = await describe_group(admin, name)
        except AdminError as e:
            problems.append(_no_group(name, e))
            continue
        match what:
            case "members":
                rows += _member_rows(group)
            case "state":
                rows.append(_state_row(group))
            case _:
                rows += await _offset_rows(admin, group)
    return rows, problems


def _no_group(name: str, error: Any) -> str:
    from klamm_broker.wire.errors import ErrorCode

    return f"no group {name!r}" if error.code == ErrorCode.GROUP_ID_NOT_FOUND else str(error)


async def _offset_rows(admin: Admin, group: Group) -> list[dict[str, Any]]:
    from klamm.admin.group_report import positions

    return [
        {
            "group": p.group,
            "topic": p.partition.topic,
            "partition": p.partition.partition,
            "current_offset": p.current,
            "log_end_offset": p.end,
            "lag": p.lag,
            "consumer_id": p.member.id if p.member else None,
            "host": p.member.host if p.member else None,
            "client_id": p.member.client_id if p.member else None,
            "leader_epoch": p.leader_epoch,
            "state": group.state,
        }
        for p in await positions(admin, group)
    ]


def _member_rows(group: Group) -> list[dict[str, Any]]:
    from klamm.admin.groups import assignment_text

    return [
        {
            "group": group.group,
            "consumer_id": m.id,
            "host": m.host,
            "client_id": m.client_id,
            "partitions": len(m.assignment),
            "group_instance_id": m.instance_id,
            "current_epoch": m.epoch,
            "assignment": assignment_text(m.assignment),
            "target_epoch": group.target_epoch,
            "target_assignment": assignment_text(m.target),
            "upgraded": m.upgraded,
        }
        for m in group.members
    ]


def _state_row(group: Group) -> dict[str, Any]:
    return {
        "group": group.group,
        "type": group.type,
        "state": group.state,
        "assignor": group.assignor or None,
        "members": len(group.members),
        "coordinator": f"{group.coordinator.host}:{group.coordinator.port}",
        "coordinator_id": group.coordinator.id,
        "group_epoch": group.epoch,
        "target_epoch": group.target_epoch,
    }


# ---- reset, export, import


@app.command()
def reset(
    groups: Groups = None,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    all_groups: AllGroups = False,
    topics: Topics = None,
    all_topics: Annotated[
        bool, typer.Option("--all-topics", help="All partitions that the group has offsets of.")
    ] = False,
    to_earliest: Annotated[bool, typer.Option("--to-earliest", help="To the first record.")] = False,
    to_latest: Annotated[bool, typer.Option("--to-latest", help="To the end.")] = False,
    to_current: Annotated[bool, typer.Option("--to-current", help="To where the group is.")] = False,
    to_offset: Annotated[int | None, typer.Option("--to-offset", help="To this offset.")] = None,
    to_datetime: Annotated[
        str | None,
        typer.Option(
            "--to-datetime",
            help="To the first record from this time on: YYYY-MM-DDThh:mm:ss.sss, UTC or with Z, +01:00.",
        ),
    ] = None,
    by_duration: Annotated[
        str | None, typer.Option("--by-duration", help="To the first record not older than PnDTnHnMnS.")
    ] = None,
    shift_by: Annotated[
        int | None, typer.Option("--shift-by", help="So many records further, or back if negative.")
    ] = None,
    from_file: Annotated[
        Path | None, typer.Option("--from-file", help="To the offsets of a CSV file (klamm group export).")
    ] = None,
    execute: ExecuteOption = False,
    export: Annotated[
        bool, typer.Option("--export", help="Print the new offsets as CSV, which --from-file reads.")
    ] = False,
    timeout: TimeoutOption = TIMEOUT_S,
    command_config: CommandConfigOption = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """Set the offsets of groups without members. Shows what would be set unless --execute is given."""
    _scope(groups, all_groups=all_groups)
    if from_file is None and bool(topics) == all_topics:
        raise typer.BadParameter("give --topic, or --all-topics", param_hint="--topic")
    how = exactly_one(
        {
            "--to-earliest": to_earliest, "--to-latest": to_latest, "--to-current": to_current,
            "--to-offset": to_offset is not None, "--to-datetime": to_datetime is not None,
            "--by-duration": by_duration is not None, "--shift-by": shift_by is not None,
            "--from-file": from_file is not None,
        },
        of="place",
    )  # fmt: skip
    values = {
        "--to-offset": to_offset, "--shift-by": shift_by, "--to-datetime": to_datetime,
        "--by-duration": by_duration, "--from-file": from_file,
    }  # fmt: skip
    with reported():
        _check_topics(topics)
        wanted = _reset(how, values.get(how), groups or [])
        _carry_out(
            groups, wanted, topics, all_topics=all_topics, execute=execute, export=export,
            at=(bootstrap, command_config, timeout), output=output,
        )  # fmt: skip


def _check_topics(topics: Sequence[str] | None) -> None:
    from klamm.admin.reset import ResetError, parse_topic

    try:
        for word in topics or ():
            parse_topic(word)
    except ResetError as e:
        raise typer.BadParameter(str(e), param_hint="--topic") from None


def _reset(how: str, value: Any, groups: Sequence[str]) -> Reset:
    from klamm.admin.reset import How, Reset, ResetError, parse_datetime, parse_duration

    try:
        match how:
            case "--to-offset":
                return Reset(how=How.OFFSET, value=value)
            case "--shift-by":
                return Reset(how=How.SHIFT, value=value)
            case "--to-datetime":
                return Reset(how=How.TIME, value=parse_datetime(value))
            case "--by-duration":
                return Reset(how=How.TIME, value=int(time.time() * 1000) - parse_duration(value))
            case "--from-file":
                return _file_plan(value, groups)
    except ResetError as e:
        raise typer.BadParameter(str(e), param_hint=how) from None
    simple = {"--to-earliest": How.EARLIEST, "--to-latest": How.LATEST, "--to-current": How.CURRENT}
    return Reset(how=simple[how])


def _file_plan(path: Path, groups: Sequence[str]) -> Reset:
    from klamm.admin.reset import How, Reset, ResetError, read_csv

    try:
        text = sys.stdin.read() if str(path) == "-" else path.read_text()
        return Reset(how=How.FILE, plan=read_csv(text, groups))
    except (OSError, UnicodeDecodeError) as e:
        raise ResetError(f"{path} cannot be read: {getattr(e, 'strerror', None) or e}") from None
    except ResetError as e:
        raise ResetError(f"{path}: {e}") from None


def _carry_out(
    groups: Sequence[str] | None,
    wanted: Reset,
    topics: Sequence[str] | None,
    *,
    all_topics: bool,
    execute: bool,
    export: bool,
    at: tuple[str, Path | None, float],
    output: Format,
) -> None:
    from klamm.admin.reset import write_csv

    plans, problems = with_admin(
        *at, lambda a: _planned(a, groups, wanted, topics, all_topics=all_topics, execute=execute)
    )
    for planned in plans.values():
        for text in (*planned.clipped, *planned.fallbacks):
            typer.echo(f"klamm: {text}", err=True)
    if export:
        sys.stdout.write(
            write_csv({g: p.offsets for g, p in plans.items()}, with_group=len(groups or ()) != 1)
        )
    else:
        rows = [
            {"group": g, "topic": tp.topic, "partition": tp.partition, "new_offset": o}
            for g, p in plans.items()
            for tp, o in p.offsets.items()
        ]
        print_rows(rows, ["group", "topic", "partition", "new_offset"], output)
    number = sum(len(p.offsets) for p in plans.values())
    if execute:
        typer.echo(f"{counted(number, 'offset')} set", err=True)
    elif not problems:
        typer.echo(f"dry run: {counted(number, 'offset')} would be set (--execute sets them)", err=True)
    if problems:
        fail("; ".join(problems), EXIT_FAILED)


async def _planned(
    admin: Admin,
    groups: Sequence[str] | None,
    wanted: Reset,
    topics: Sequence[str] | None,
    *,
    all_topics: bool,
    execute: bool,
) -> tuple[dict[str, Plan], list[str]]:
    """Plans of the groups that may be reset, carried out if asked, and why the others may not."""
    from klamm.admin.group_reset import carry_out, may_reset, plan_group, state_of
    from klamm_base.errors import KlammError

    plans: dict[str, Plan] = {}
    problems = []
    for group in await _names(admin, groups):
        try:
            state = await state_of(admin, group)
            if not may_reset(state):
                problems.append(f"group {group!r} is {state}: offsets are set only while it has no members")
                continue
            planned = await plan_group(admin, group, wanted, topics, all_topics=all_topics)
            if execute:
                await carry_out(admin, group, planned)
            plans[group] = planned
        except KlammError as e:
            problems.append(str(e))
    return plans, problems


@app.command()
def export(
    groups: Groups = None,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    all_groups: AllGroups = False,
    timeout: TimeoutOption = TIMEOUT_S,
    command_config: CommandConfigOption = None,
) -> None:
    """Print committed offsets as CSV: topic,partition,offset for one group, the group in front for several."""
    _scope(groups, all_groups=all_groups)
    with reported():
        from klamm.admin.reset import write_csv

        found, problems = with_admin(bootstrap, command_config, timeout, lambda a: _committed(a, groups))
        sys.stdout.write(write_csv(found, with_group=len(groups or ()) != 1))
        if problems:
            fail("; ".join(problems))


async def _committed(admin: Admin, groups: Sequence[str] | None) -> tuple[dict[str, Any], list[str]]:
    from klamm.admin.group_reset import state_of
    from klamm.admin.groups import committed

    result: dict[str, Any] = {}
    problems = []
    for group in await _names(admin, groups):
        offsets = await committed(admin, group)
        if not offsets and await state_of(admin, group) == "Dead":
            problems.append(f"no group {group!r}")
        result[group] = {tp: c.offset for tp, c in offsets.items()}
    return result, problems


@app.command("import")
def import_(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="CSV of klamm group export; - reads standard input.")
    ],
    group: Annotated[
        str | None, typer.Option("--group", "-g", help="The group, for lines that name none.")
    ] = None,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    execute: ExecuteOption = False,
    timeout: TimeoutOption = TIMEOUT_S,
    command_config: CommandConfigOption = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """Set the offsets of a CSV file, for every group in it. Shows what would be set unless --execute is given."""
    with reported():
        wanted = _file_plan(file, [group] if group else [])
        named = [group] if group else list(wanted.plan or {})
        if not named:
            fail(f"{file} holds no offsets")
        _carry_out(
            named, wanted, None, all_topics=False, execute=execute, export=False,
            at=(bootstrap, command_config, timeout), output=output,
        )  # fmt: skip


# ---- delete


@app.command()
def delete(
    groups: Groups = None,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    all_groups: AllGroups = False,
    timeout: TimeoutOption = TIMEOUT_S,
    command_config: CommandConfigOption = None,
) -> None:
    """Delete groups without members, with their offsets."""
    _scope(groups, all_groups=all_groups)
    with reported():
        done, problems = with_admin(bootstrap, command_config, timeout, lambda a: _deleted(a, groups))
        for name in done:
            typer.echo(f"deleted {name}")
        if problems:
            fail("; ".join(problems))


async def _deleted(admin: Admin, groups: Sequence[str] | None) -> tuple[list[str], list[str]]:
    from klamm.admin.errors import AdminError
    from klamm.admin.groups import delete_group

    done, problems = [], []
    for name in await _names(admin, groups):
        try:
            await delete_group(admin, name)
            done.append(name)
        except AdminError as e:
            problems.append(_no_group(name, e))
    return done, problems


@app.command("delete-offsets")
def delete_offsets(
    group: Annotated[str, typer.Argument(metavar="GROUP", help="The group.")],
    topics: Topics = None,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    timeout: TimeoutOption = TIMEOUT_S,
    command_config: CommandConfigOption = None,
) -> None:
    """Forget a group's offsets of topics that it does not read at the moment."""
    if not topics:
        raise typer.BadParameter("name at least one", param_hint="--topic")
    with reported():
        _check_topics(topics)
        found = with_admin(bootstrap, command_config, timeout, lambda a: _forgotten(a, group, topics))
        for tp in sorted(tp for tp, error in found.items() if error is None):
            typer.echo(f"deleted the offset of {tp}")
        problems = [str(error) for _, error in sorted(found.items()) if error is not None]
        if problems:
            fail("; ".join(problems))


async def _forgotten(admin: Admin, group: str, topics: Sequence[str]) -> dict[Any, Any]:
    from klamm.admin.group_reset import chosen_partitions
    from klamm.admin.groups import delete_offsets as forget

    return dict(await forget(admin, group, await chosen_partitions(admin, topics)))
