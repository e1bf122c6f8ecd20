"""`klamm mirror offsets`: up to where a flow has copied, and setting that, whether the mirror runs or not."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from klamm.cli.admin import ExecuteOption, exactly_one
from klamm.cli.common import OverrideOption, counted, fail
from klamm.cli.context import Commands
from klamm.cli.mirror_options import ConfigArgument, FlowArgument, asking
from klamm.cli.offset_places import ToDatetimeOption, ToLatestOption, ToOffsetOption
from klamm.cli.output import Format, FormatOption, print_rows

if TYPE_CHECKING:
    from klamm.admin.reset import LogState, Reset
    from klamm_mirror.copy.source_offsets import Position
    from klamm_mirror.settings.mm2_config import Flow, MirrorConfig

app = Commands(help="Show and set up to where a flow has copied.", no_args_is_help=True)

TopicsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--topic", metavar="PATTERN", help="Only topics that match, by the source's names; several times."
    ),
]
PartitionsOption = Annotated[
    list[int] | None,
    typer.Option("--partition", metavar="N", min=0, help="Only this partition; several times."),
]
Key = tuple[str, int]
_COLUMNS = ["topic", "partition", "offset", "new_offset"]


@app.command("list")
def list_(
    config: ConfigArgument,
    name: FlowArgument,
    topics: TopicsOption = None,
    partitions: PartitionsOption = None,
    output: FormatOption = Format.TABLE,
    override: OverrideOption = None,
) -> None:
    """Show each partition's next offset to copy.

    Beside it are the first and the last offset of the source. Reads the offset topic at the target. A running mirror commits every two seconds.
    """
    with asking():
        found = _Found.of(config, name, topics, partitions, override)
        rows = [
            {
                "topic": topic,
                "partition": partition,
                "offset": offset,
                "start": found.state.starts.get(key),
                "end": end,
                "lag": None if offset is None or end is None else max(end - offset, 0),
            }
            for (topic, partition), key in found.keys.items()
            for offset, end in [(found.next_offset((topic, partition)), found.state.ends.get(key))]
        ]
        print_rows(rows, ["topic", "partition", "offset", "start", "end", "lag"], output)


@app.command("set")
def set_(
    config: ConfigArgument,
    name: FlowArgument,
    topics: TopicsOption = None,
    partitions: PartitionsOption = None,
    to_earliest: Annotated[bool, typer.Option("--to-earliest", help="To the first record.")] = False,
    to_latest: ToLatestOption = False,
    to_offset: ToOffsetOption = None,
    to_datetime: ToDatetimeOption = None,
    execute: ExecuteOption = False,
    output: FormatOption = Format.TABLE,
    override: OverrideOption = None,
) -> None:
    """Set the next offset to copy. Shows what would be set unless --execute is given.

    The mirror may run: it stops copying this flow for a moment, sets the offsets, and goes on there. Records that are at
    the target already come twice when it goes back.
    """
    how = exactly_one(
        {
            "--to-earliest": to_earliest, "--to-latest": to_latest,
            "--to-offset": to_offset is not None, "--to-datetime": to_datetime is not None,
        },
        of="place",
    )  # fmt: skip
    with asking():
        from klamm.cli.group_offsets import reset_of

        wanted = reset_of(how, {"--to-offset": to_offset, "--to-datetime": to_datetime}.get(how), [])
        found = _Found.of(config, name, topics, partitions, override, wanted)
        places, said = found.planned(wanted)
        for text in said:
            typer.echo(f"klamm: {text}", err=True)
        found.carry_out(places, execute=execute, output=output, done="set")


@app.command()
def reset(
    config: ConfigArgument,
    name: FlowArgument,
    topics: TopicsOption = None,
    partitions: PartitionsOption = None,
    execute: ExecuteOption = False,
    output: FormatOption = Format.TABLE,
    override: OverrideOption = None,
) -> None:
    """Forget the offsets, so that the flow begins anew.

    It begins at mirror.start.offset. Shows what would be forgotten unless --execute is given.
    """
    with asking():
        found = _Found.of(config, name, topics, partitions, override)
        known = {key: None for key in found.keys if key in found.committed}
        found.carry_out(known, execute=execute, output=output, done="forgotten")


class _Found:
    """The chosen partitions, their committed offsets, and the source's ends."""

    def __init__(
        self, mirror: MirrorConfig, flow: Flow, path: Path, committed: Mapping[Key, Position], state: LogState, keys: Mapping[Any, Any]
    ) -> None:  # fmt: skip
        self.mirror = mirror
        self.flow = flow
        self.path = path
        self.committed = committed
        self.state = state
        self.keys = keys
        """The partitions as `klamm.admin` has them, by topic and number."""

    @classmethod
    def of(
        cls, path: Path, name: str, topics: list[str] | None, partitions: list[int] | None,
        override: list[str] | None, wanted: Reset | None = None,
    ) -> _Found:  # fmt: skip
        import asyncio

        from klamm.mirror import files
        from klamm.mirror.flow_places import look
        from klamm.mirror.flow_props import source_props
        from klamm_base.errors import ConfigError

        mirror = files.load(path, override, warn=False)
        flow = mirror.flow(name)
        if not flow.enabled:
            raise ConfigError(f"{name} copies no topics: set {name}.enabled=true")
        committed, state, keys = asyncio.run(
            look(flow, source_props(flow), topics or [], partitions or [], wanted)
        )
        if not keys:
            fail(f"no partition of {name} matches")
        return cls(mirror, flow, path, committed, state, keys)

    def next_offset(self, key: Key) -> int | None:
        """Returns the next offset to copy; None: nothing is committed."""
        found = self.committed.get(key)
        return None if found is None or found.offset is None else found.offset + 1

    def planned(self, wanted: Reset) -> tuple[dict[tuple[str, int], int | None], list[str]]:
        """Returns new places, and sentences about those that lie beyond an end."""
        from klamm.admin.reset import plan

        there = {key: tp for key, tp in self.keys.items() if tp in self.state.ends}
        planned = plan(wanted, "", list(there.values()), self.state)
        places = {key: planned.offsets[tp] for key, tp in there.items()}
        return dict(places), [*planned.clipped, *planned.fallbacks]

    def carry_out(
        self, places: Mapping[tuple[str, int], int | None], *, execute: bool, output: Format, done: str
    ) -> None:
        """Sets places, or shows what would be set."""
        import asyncio

        from klamm.mirror.places import place_of

        if execute and places:
            from klamm.mirror.at_rest import Seat, set_places

            seat = Seat(self.mirror, self.flow, place_of(self.path, self.flow.name))
            asyncio.run(set_places(seat, places, self.committed))
        rows = [
            {"topic": t, "partition": p, "offset": self.next_offset((t, p)), "new_offset": new}
            for (t, p), new in places.items()
        ]
        print_rows(rows, _COLUMNS, output)
        number = counted(len(rows), "offset")
        said = f"{number} {done}" if execute else f"dry run: {number} would be {done} (--execute does it)"
        typer.echo(said, err=True)


def register(parent: typer.Typer) -> None:
    """Add the commands to `klamm mirror`."""
    parent.add_typer(app, name="offsets")
