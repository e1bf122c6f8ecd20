"""Arguments and options that the commands of `klamm mirror` share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Final

import typer

from klamm.cli.common import fail, reported

EXIT_UNREACHABLE: Final = 3

ConfigArgument = Annotated[
    Path, typer.Argument(metavar="mm2.properties", help="MirrorMaker 2's properties: clusters and flows.")
]
OptionalConfig = Annotated[
    Path | None,
    typer.Argument(metavar="mm2.properties", help="MirrorMaker 2's properties: clusters and flows."),
]
FlowArgument = Annotated[str, typer.Argument(metavar="A->B", help="The flow.")]
TopicsArgument = Annotated[
    list[str] | None, typer.Argument(metavar="[TOPIC]...", help="Only these topics, by their source's names.")
]


@contextmanager
def asking() -> Iterator[None]:
    """Turns an error into a sentence and an exit code, as `reported`, which says by 3 that a cluster could not be asked."""
    from klamm_kafka.client import ClientError

    with reported():
        try:
            yield
        except ClientError as e:
            fail(str(e), EXIT_UNREACHABLE)
