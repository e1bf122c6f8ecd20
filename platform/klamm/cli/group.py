"""`klamm group`: consumer groups of both kinds, their lag and their offsets."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from klamm.cli import group_offsets
from klamm.cli.cluster import AdminCluster
from klamm.cli.common import fail, reported
from klamm.cli.completion import topic_names
from klamm.cli.context import Commands
from klamm.cli.group_scope import AllGroups, Groups, check_scope, group_names
from klamm.cli.output import Format, FormatOption, print_rows

if TYPE_CHECKING:
    from klamm.admin.client import Admin

app = Commands(help="Watch consumer groups, set their offsets.", no_args_is_help=True)


@app.command("list")
def list_groups(
    cluster: AdminCluster,
    state: Annotated[
        list[str] | None, typer.Option("--state", help="Only groups in this state, such as Stable or Empty.")
    ] = None,
    type_: Annotated[
        list[str] | None,
        typer.Option("--type", help="Only groups of this type: classic, consumer, share or streams."),
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="Groups of other protocols too, such as Connect's.")
    ] = False,
    output: FormatOption = Format.TABLE,
) -> None:
    """List groups with their type and state."""
    from klamm.admin import groups as api

    with reported():
        types = _chosen(type_, api.LISTED_TYPES, "--type")
        states = _chosen(state, api.STATES, "--state")
        found = cluster.ask(
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
    cluster: AdminCluster,
    groups: Groups = None,
    all_groups: AllGroups = False,
    offsets: Annotated[bool, typer.Option("--offsets", help="Offsets and lag (the default).")] = False,
    members: Annotated[bool, typer.Option("--members", help="Who is in the group and reads what.")] = False,
    state: Annotated[bool, typer.Option("--state", help="State, assignor and coordinator.")] = False,
    topics: Annotated[
        list[str] | None,
        typer.Option(
            "--topic",
            autocompletion=topic_names,
            help="Only offsets in this topic, or in topics like this pattern (*, ?); may be repeated.",
        ),
    ] = None,
    lagging: Annotated[bool, typer.Option("--lagging", help="Only partitions that have a lag.")] = False,
    by_topic: Annotated[
        bool, typer.Option("--by-topic", help="The lag of each topic, over all its partitions.")
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="As -o wide: more columns.")] = False,
    watch: Annotated[
        float | None,
        typer.Option(
            "--watch", "-w", metavar="SECONDS", min=0.1, help="Again after so many seconds, until Ctrl-C."
        ),
    ] = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """Describe groups: offsets and lag, members, or state."""
    check_scope(groups, all_groups=all_groups)
    if offsets + members + state > 1:
        raise typer.BadParameter("give one of --offsets, --members and --state")
    if (members or state) and (topics or lagging or by_topic):
        raise typer.BadParameter("--topic, --lagging and --by-topic are for offsets")
    if verbose and output is Format.TABLE:
        output = Format.WIDE
    with reported():
        from klamm.cli import group_rows

        what = "members" if members else "state" if state else "offsets"
        columns, wide = _COLUMNS["topics" if by_topic else what]

        def look() -> None:
            rows, problems = cluster.ask(lambda a: _described(a, groups, what=what))
            if what == "offsets":
                rows = group_rows.chosen(rows, topics, lagging=lagging)
                rows = group_rows.by_topic(rows) if by_topic else rows
            if rows or not problems:
                print_rows(rows, columns, output, wide=wide)
            if problems:
                fail("; ".join(problems))

        look() if watch is None else _watch(look, watch)


def _watch(look: Callable[[], None], seconds: float) -> None:
    """Look again and again; Ctrl-C ends the command as wanted, also while it asks."""
    import time

    try:
        while True:
            look()
            sys.stdout.flush()
            time.sleep(seconds)
            if sys.stdout.isatty():
                typer.echo("\x1b[H\x1b[2J", nl=False)
    except KeyboardInterrupt:
        raise typer.Exit(0) from None


_COLUMNS: dict[str, tuple[list[str], list[str]]] = {
    "offsets": (
        [
            "group", "topic", "partition", "current_offset", "log_end_offset", "lag", "consumer_id", "host",
            "client_id",
        ],
        ["leader_epoch", "state"],
    ),
    "topics": (["group", "topic", "partitions", "lag"], ["state"]),
    "members": (
        ["group", "consumer_id", "host", "client_id", "partitions"],
        ["group_instance_id", "current_epoch", "assignment", "target_epoch", "target_assignment", "upgraded"],
    ),
    "state": (
        ["group", "type", "state", "assignor", "members", "coordinator"],
        ["coordinator_id", "group_epoch", "target_epoch"],
    ),
}  # fmt: skip


async def _described(
    admin: Admin, groups: Sequence[str] | None, *, what: str
) -> tuple[list[dict[str, Any]], list[str]]:
    """Return rows for the groups that can be described, and a sentence for each other group."""
    from klamm.admin.any_group import describe_any
    from klamm.admin.errors import AdminError
    from klamm.cli.group_rows import member_rows, offset_rows, state_row

    names = await group_names(admin, groups)
    found = await admin.each(names, lambda name: describe_any(admin, name))
    described = [g for g in found if not isinstance(g, AdminError)]
    problems = [_no_group(n, g) for n, g in zip(names, found, strict=True) if isinstance(g, AdminError)]
    match what:
        case "members":
            rows = [row for group in described for row in member_rows(group)]
        case "state":
            rows = [state_row(group) for group in described]
        case _:
            rows = await offset_rows(admin, described)
    return rows, problems


def _no_group(name: str, error: Any) -> str:
    from klamm_kafka.wire.errors import ErrorCode

    return f"no group {name!r}" if error.code == ErrorCode.GROUP_ID_NOT_FOUND else str(error)


# ---- delete


@app.command()
def delete(cluster: AdminCluster, groups: Groups = None, all_groups: AllGroups = False) -> None:
    """Delete groups without members, with their offsets."""
    check_scope(groups, all_groups=all_groups)
    with reported():
        done, problems = cluster.ask(lambda a: _deleted(a, groups))
        for name in done:
            typer.echo(f"deleted {name}")
        if problems:
            fail("; ".join(problems))


async def _deleted(admin: Admin, groups: Sequence[str] | None) -> tuple[list[str], list[str]]:
    from klamm.admin.errors import AdminError
    from klamm.admin.groups import delete_group

    done, problems = [], []
    for name in await group_names(admin, groups):
        try:
            await delete_group(admin, name)
            done.append(name)
        except AdminError as e:
            problems.append(_no_group(name, e))
    return done, problems


group_offsets.register(app)
