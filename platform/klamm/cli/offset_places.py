"""Options of `klamm group reset` and `klamm spark reset` that say where offsets are set to.

Kafka's reset tools name them so.
"""

from __future__ import annotations

from typing import Annotated

import typer

ToLatestOption = Annotated[bool, typer.Option("--to-latest", help="To the end.")]
ToOffsetOption = Annotated[int | None, typer.Option("--to-offset", help="To this offset.")]
ToDatetimeOption = Annotated[
    str | None,
    typer.Option(
        "--to-datetime",
        help="To the first record from this time on: YYYY-MM-DDThh:mm:ss.sss, UTC or with Z, +01:00.",
    ),
]
ByDurationOption = Annotated[
    str | None, typer.Option("--by-duration", help="To the first record not older than PnDTnHnMnS.")
]
ShiftByOption = Annotated[
    int | None, typer.Option("--shift-by", help="So many records further, or back if negative.")
]
