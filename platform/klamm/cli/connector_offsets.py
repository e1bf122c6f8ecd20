"""`klamm connector offsets`: where a connector is, and setting that by REST (KIP-875)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from klamm.cli.admin import ExecuteOption
from klamm.cli.common import counted, reported
from klamm.cli.connector_files import read_data
from klamm.cli.connector_names import Name, path_of
from klamm.cli.context import CommandGroup, Commands
from klamm.cli.output import Format, FormatOption, print_rows
from klamm.cli.rest_client import Worker
from klamm_base.errors import KlammError


class _Group(CommandGroup):
    """The commands; a NAME in place of a command means `get NAME`."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        known = not args or args[0].startswith("-") or self.get_command(ctx, args[0])
        return super().resolve_command(ctx, args if known else ["get", *args])


app = Commands(
    cls=_Group,
    help="Show, set and reset a connector's offsets. `offsets NAME` means `offsets get NAME`.",
    no_args_is_help=True,
)

Entry = dict[str, Any]


@app.command()
def get(worker: Worker, name: Name, output: FormatOption = Format.TABLE) -> None:
    """Show where a connector is.

    JSON is what `alter --file` takes.
    """
    with reported():
        print_rows(_current(worker, name), ["partition", "offset"], output)


@app.command()
def alter(
    worker: Worker,
    name: Name,
    file: Annotated[
        Path | None,
        typer.Option("--file", "-f", help="JSON as `get -o json` prints it; - reads standard input."),
    ] = None,
    places: Annotated[
        list[str] | None,
        typer.Option("--to", metavar="TOPIC:PARTITION=OFFSET", help="For a sink; may be repeated."),
    ] = None,
    execute: ExecuteOption = False,
    output: FormatOption = Format.TABLE,
) -> None:
    """Set offsets of a stopped connector.

    Partitions that are not named keep theirs; an offset of null removes a partition's. Shows what would be set unless
    --execute is given.
    """
    if (file is None) == (not places):
        raise typer.BadParameter("give --file or --to", param_hint="--file")
    with reported():
        wanted = _read(file) if file else [_place(text) for text in places or ()]
        current = {_key(e): e["offset"] for e in _current(worker, name)}
        rows = [
            {"partition": e["partition"], "offset": current.get(_key(e)), "new_offset": e["offset"]}
            for e in wanted
        ]
        _carry_out(worker, name, rows, ("PATCH", {"offsets": wanted}), execute=execute, output=output)


@app.command()
def reset(
    worker: Worker, name: Name, execute: ExecuteOption = False, output: FormatOption = Format.TABLE
) -> None:
    """Forget all offsets of a stopped connector.

    It begins anew when it is resumed. Shows what would be forgotten unless --execute is given.
    """
    with reported():
        rows = [{**e, "new_offset": None} for e in _current(worker, name)]
        _carry_out(worker, name, rows, ("DELETE", None), execute=execute, output=output)


def _current(worker: Worker, name: str) -> list[Entry]:
    found: list[Entry] = worker.call("GET", path_of(name, "/offsets"))["offsets"]
    return found


def _carry_out(
    worker: Worker, name: str, rows: list[Entry], request: tuple[str, Any], *, execute: bool, output: Format
) -> None:
    number, done = counted(len(rows), "offset"), "set" if request[0] == "PATCH" else "forgotten"
    if execute:
        said = worker.call(request[0], path_of(name, "/offsets"), request[1])["message"]
    print_rows(rows, ["partition", "offset", "new_offset"], output)
    if execute:
        typer.echo(said, err=True)
        return
    typer.echo(
        f"dry run: {number} would be {done} (--execute does it); the connector itself has not been asked",
        err=True,
    )
    state = worker.call("GET", path_of(name, "/status"))["connector"]["state"]
    if state != "STOPPED":
        typer.echo(f"before --execute, stop {name}, which is {state}: klamm connector stop {name}", err=True)


def _key(entry: Entry) -> str:
    return json.dumps(entry["partition"], sort_keys=True)


def _read(file: Path) -> list[Entry]:
    data = read_data(file)
    entries = data.get("offsets") if isinstance(data, dict) else data
    if not isinstance(entries, list) or not all(
        isinstance(e, dict) and e.keys() == {"partition", "offset"} for e in entries
    ):
        raise KlammError(f'{file}: a list is needed: [{{"partition": {{…}}, "offset": {{…}}}}, …]')
    return entries


def _place(text: str) -> Entry:
    place, equals, offset = text.rpartition("=")
    topic, colon, partition = place.rpartition(":")
    if not (equals and colon and topic and partition.isdecimal() and offset.isdecimal()):
        raise typer.BadParameter(f"{text!r} is not TOPIC:PARTITION=OFFSET", param_hint="--to")
    return {
        "partition": {"kafka_topic": topic, "kafka_partition": int(partition)},
        "offset": {"kafka_offset": int(offset)},
    }
