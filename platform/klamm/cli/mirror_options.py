"""Arguments and options that the commands of `klamm mirror` share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

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
