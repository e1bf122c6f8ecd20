"""`klamm group reset`, `export`, `import`, `delete-offsets`: the offsets of groups without members."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from klamm.cli.admin import ExecuteOption, exactly_one
from klamm.cli.cluster import AdminCluster
from klamm.cli.common import EXIT_FAILED, counted, fail, reported
from klamm.cli.completion import group_names as complete_groups
from klamm.cli.group_scope import AllGroups, Groups, Topics, check_scope, group_names
from klamm.cli.offset_places import (
    ByDurationOption,
    ShiftByOption,
    ToDatetimeOption,
    ToLatestOption,
    ToOffsetOption,
)
from klamm.cli.output import Format, FormatOption, print_rows
from klamm_base.errors import KlammError
from klamm_base.interrupts import Interrupted, interruptible

if TYPE_CHECKING:
    from klamm.admin.client import Admin
    from klamm.admin.reset import Plan, Reset


def reset(
    cluster: AdminCluster,
    groups: Groups = None,
    all_groups: AllGroups = False,
    topics: Topics = None,
    all_topics: Annotated[
        bool, typer.Option("--all-topics", help="All partitions that the group has offsets of.")
    ] = False,
    to_earliest: Annotated[bool, typer.Option("--to-earliest", help="To the first record.")] = False,
    to_latest: ToLatestOption = False,
    to_current: Annotated[bool, typer.Option("--to-current", help="To where the group is.")] = False,
    to_offset: ToOffsetOption = None,
    to_datetime: ToDatetimeOption = None,
    by_duration: ByDurationOption = None,
    shift_by: ShiftByOption = None,
    from_file: Annotated[
        Path | None, typer.Option("--from-file", help="To the offsets of a CSV file (klamm group export).")
    ] = None,
    execute: ExecuteOption = False,
    export: Annotated[
        bool, typer.Option("--export", help="Print the new offsets as CSV, which --from-file reads.")
    ] = False,
    output: FormatOption = Format.TABLE,
) -> None:
    """Set the offsets of groups without members. Shows what would be set unless --execute is given."""
    check_scope(groups, all_groups=all_groups)
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
        wanted = reset_of(how, values.get(how), groups or [])
        _carry_out(
            groups, wanted, topics, all_topics=all_topics, execute=execute, export=export,
            cluster=cluster, output=output,
        )  # fmt: skip


def _check_topics(topics: Sequence[str] | None) -> None:
    from klamm.admin.reset import ResetError, parse_topic

    try:
        for word in topics or ():
            parse_topic(word)
    except ResetError as e:
        raise typer.BadParameter(str(e), param_hint="--topic") from None


def reset_of(how: str, value: Any, groups: Sequence[str]) -> Reset:
    """Return the reset for an option and its value. A file that names no groups holds the offsets of `groups`."""
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
    cluster: AdminCluster,
    output: Format,
) -> None:
    from klamm.admin.reset import write_csv

    done, code = _Done(), EXIT_FAILED
    plans, problems = done.plans, done.problems
    try:
        with interruptible():
            cluster.ask(
                lambda a: _plan_all(a, groups, wanted, topics, done, all_topics=all_topics, execute=execute)
            )
    except Interrupted as e:
        code = e.code
        unknown = f"nobody knows whether the offsets of group {done.setting!r} are set"
        problems.append(f"ended by {e}" + (f"; {unknown}" if done.setting else ""))
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
        if rows or not problems:
            print_rows(rows, ["group", "topic", "partition", "new_offset"], output)
    number = sum(len(p.offsets) for p in plans.values())
    if execute:
        typer.echo(f"{counted(number, 'offset')} set", err=True)
    elif not problems:
        typer.echo(f"dry run: {counted(number, 'offset')} would be set (--execute sets them)", err=True)
    if problems:
        fail("; ".join(problems), code)


class _Done:
    """The plans of the groups that may be reset, and a sentence for each other group."""

    def __init__(self) -> None:
        self.plans: dict[str, Plan] = {}
        self.problems: list[str] = []
        self.setting: str | None = None
        """The group whose offsets are being set."""


async def _plan_all(
    admin: Admin,
    groups: Sequence[str] | None,
    wanted: Reset,
    topics: Sequence[str] | None,
    done: _Done,
    *,
    all_topics: bool,
    execute: bool,
) -> None:
    """Fill `done`. Carries the plans out with `execute`."""
    from klamm.admin.any_group import find_any, is_share, plan_share_group
    from klamm.admin.group_reset import carry_out, may_reset, plan_group
    from klamm.admin.share_groups import set_starts
    from klamm_base.errors import KlammError

    for group in await group_names(admin, groups):
        try:
            found = await find_any(admin, group)
            if found is not None and not may_reset(found.state):
                done.problems.append(
                    f"group {group!r} is {found.state}: offsets are set only while it has no members"
                )
                continue
            plan = plan_share_group if is_share(found) else plan_group
            planned = await plan(admin, group, wanted, topics, all_topics=all_topics)
            if execute:
                done.setting = group
                if is_share(found):
                    await set_starts(admin, group, planned.offsets)
                else:
                    await carry_out(admin, group, planned)
            done.plans[group] = planned
        except KlammError as e:
            done.problems.append(str(e))
        done.setting = None


def export(cluster: AdminCluster, groups: Groups = None, all_groups: AllGroups = False) -> None:
    """Print committed offsets as CSV.

    A line is topic,partition,offset; the group stands in front where there are several.
    """
    check_scope(groups, all_groups=all_groups)
    with reported():
        from klamm.admin.reset import write_csv

        found, problems = cluster.ask(lambda a: _committed(a, groups))
        sys.stdout.write(write_csv(found, with_group=len(groups or ()) != 1))
        if problems:
            fail("; ".join(problems))


async def _committed(admin: Admin, groups: Sequence[str] | None) -> tuple[dict[str, Any], list[str]]:
    from klamm.admin.group_reset import state_of
    from klamm.admin.groups import committed

    result: dict[str, Any] = {}
    problems = []
    for group in await group_names(admin, groups):
        offsets = await committed(admin, group)
        if not offsets and await state_of(admin, group) == "Dead":
            problems.append(f"no group {group!r}")
        result[group] = {tp: c.offset for tp, c in offsets.items()}
    return result, problems


def import_(
    cluster: AdminCluster,
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="CSV of klamm group export; - reads standard input.")
    ],
    group: Annotated[
        str | None, typer.Option("--group", "-g", help="The group, for lines that name none.")
    ] = None,
    execute: ExecuteOption = False,
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
            cluster=cluster, output=output,
        )  # fmt: skip


def edit(
    cluster: AdminCluster,
    group: Annotated[str, typer.Argument(metavar="GROUP", autocompletion=complete_groups, help="The group.")],
    execute: ExecuteOption = False,
    output: FormatOption = Format.TABLE,
) -> None:
    """Edit a group's offsets in $EDITOR.

    It gets CSV: topic,partition,offset. Shows what would be set unless --execute is given. A line that is taken out stays as it is;
    `klamm group delete-offsets` forgets an offset.
    """
    with reported():
        from klamm.admin.reset import How, Reset, ResetError, read_csv, write_csv
        from klamm.cli.editor import edited, kept

        found, problems = cluster.ask(lambda a: _committed(a, [group]))
        if problems or not found[group]:
            raise KlammError(problems[0] if problems else f"group {group!r} has no committed offsets")
        text = edited(write_csv(found, with_group=False), name="offsets.csv")
        with kept(text, name="offsets.csv"):
            try:
                wanted = read_csv(text, [group])
            except ResetError as e:
                raise KlammError(f"what was edited: {e}") from None
        changed = {tp: o for tp, o in wanted.get(group, {}).items() if found[group].get(tp) != o}
        if not changed:
            typer.echo("nothing was changed in the editor", err=True)
            return
        _carry_out(
            [group], Reset(how=How.FILE, plan={group: changed}), None, all_topics=False, execute=execute, export=False,
            cluster=cluster, output=output,
        )  # fmt: skip


def delete_offsets(
    cluster: AdminCluster,
    group: Annotated[str, typer.Argument(metavar="GROUP", autocompletion=complete_groups, help="The group.")],
    topics: Topics = None,
) -> None:
    """Forget a group's offsets of topics.

    The group must not read them at the moment.
    """
    if not topics:
        raise typer.BadParameter("name at least one", param_hint="--topic")
    with reported():
        _check_topics(topics)
        found = cluster.ask(lambda a: _forgotten(a, group, topics))
        for tp in sorted(tp for tp, error in found.items() if error is None):
            typer.echo(f"deleted the offset of {tp}")
        problems = [str(error) for _, error in sorted(found.items()) if error is not None]
        if problems:
            fail("; ".join(problems))


async def _forgotten(admin: Admin, group: str, topics: Sequence[str]) -> dict[Any, Any]:
    from klamm.admin.group_reset import chosen_partitions
    from klamm.admin.groups import delete_offsets as forget

    return dict(await forget(admin, group, await chosen_partitions(admin, topics)))


def clone(
    cluster: AdminCluster,
    group: Annotated[str, typer.Argument(metavar="GROUP", autocompletion=complete_groups, help="The group.")],
    name: Annotated[str, typer.Argument(metavar="NEW", help="A group without members, or a new one.")],
    execute: ExecuteOption = False,
    output: FormatOption = Format.TABLE,
) -> None:
    """Give a group the offsets of another. Shows what would be set unless --execute is given."""
    with reported():
        from klamm.admin.group_reset import may_reset, state_of
        from klamm.admin.groups import commit, committed

        async def act(admin: Admin) -> list[dict[str, Any]]:
            found = await committed(admin, group)
            if not found:
                raise KlammError(f"group {group!r} has no committed offsets")
            state = await state_of(admin, name)
            if not may_reset(state):
                raise KlammError(
                    f"group {name!r} has members (state {state}): offsets can be set only without them"
                )
            if execute:
                texts = {tp: each.metadata for tp, each in found.items() if each.metadata}
                await commit(admin, name, {tp: each.offset for tp, each in found.items()}, metadata=texts)
            return [
                {"group": name, "topic": tp.topic, "partition": tp.partition, "new_offset": each.offset}
                for tp, each in sorted(found.items())
            ]

        print_rows(cluster.ask(act), ["group", "topic", "partition", "new_offset"], output)
        if not execute:
            typer.echo("nothing was set: --execute does it", err=True)


def register(app: typer.Typer) -> None:
    """Add the commands to `klamm group`."""
    app.command()(clone)
    app.command()(reset)
    app.command()(edit)
    app.command()(export)
    app.command("import")(import_)
    app.command("delete-offsets")(delete_offsets)
