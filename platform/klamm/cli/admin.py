"""What the administrative commands share: their options, and running a piece of work against a cluster."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

if TYPE_CHECKING:
    from klamm.admin.client import Admin

T = TypeVar("T")

TimeoutOption = Annotated[
    float, typer.Option("--timeout", min=0.001, help="Seconds to wait for the cluster, retries included.")
]
ExecuteOption = Annotated[
    bool, typer.Option("--execute/--dry-run", help="Do it. By default it is only shown.")
]
TIMEOUT_S = 30.0


def with_admin(
    bootstrap: str, command_config: Path | None, timeout_s: float, ask: Callable[[Admin], Awaitable[T]]
) -> T:
    """Run asynchronous work against a cluster; `reported()` around it says what goes wrong."""
    import asyncio

    from klamm.admin.settings import client_settings

    settings = client_settings(bootstrap, command_config, timeout_s=timeout_s)
    for key in settings.unused:
        typer.echo(f"klamm: {command_config}: {key} has no effect here", err=True)

    async def work() -> T:
        async with settings.open() as admin:
            return await ask(admin)

    return asyncio.run(work())


def exactly_one(given: dict[str, bool], *, of: str) -> str:
    """The one option of several that is there; usage error otherwise."""
    names = [name for name, there in given.items() if there]
    if len(names) != 1:
        listed = ", ".join(given)
        said = f"{' and '.join(names)} were given" if names else "none was given"
        raise typer.BadParameter(f"give exactly one {of} of {listed}: {said}")
    return names[0]
