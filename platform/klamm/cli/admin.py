"""Options that several commands share, and a check that exactly one of several options was given."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

if TYPE_CHECKING:
    pass

T = TypeVar("T")

ExecuteOption = Annotated[
    bool, typer.Option("--execute/--dry-run", help="Do it. By default it is only shown.")
]


def exactly_one(given: dict[str, bool], *, of: str) -> str:
    """Return the name of the one option that was given. Raises BadParameter for none or several."""
    names = [name for name, there in given.items() if there]
    if len(names) != 1:
        listed = ", ".join(given)
        said = f"{' and '.join(names)} were given" if names else "none was given"
        raise typer.BadParameter(f"give exactly one {of} of {listed}: {said}")
    return names[0]
