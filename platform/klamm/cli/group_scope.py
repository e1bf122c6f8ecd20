"""Arguments and options that name groups, for the commands of `klamm group`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from klamm.cli.completion import group_names as complete_groups
from klamm.cli.completion import topic_names

if TYPE_CHECKING:
    from klamm.admin.client import Admin

Groups = Annotated[
    list[str] | None,
    typer.Argument(metavar="[GROUP]...", autocompletion=complete_groups, help="Names of groups."),
]
AllGroups = Annotated[bool, typer.Option("--all-groups", help="All consumer groups.")]
Topics = Annotated[
    list[str] | None,
    typer.Option(
        "--topic",
        metavar="TOPIC[:0,1]",
        autocompletion=topic_names,
        help="A topic, or some of its partitions; may be repeated.",
    ),
]


def check_scope(groups: Sequence[str] | None, *, all_groups: bool) -> None:
    if bool(groups) == all_groups:
        raise typer.BadParameter("name groups, or give --all-groups", param_hint="GROUP")


async def group_names(admin: Admin, groups: Sequence[str] | None) -> list[str]:
    """Return the named groups, or all groups where none is named."""
    from klamm.admin.groups import list_groups as ask

    return list(dict.fromkeys(groups)) if groups else [g.group for g in await ask(admin)]
