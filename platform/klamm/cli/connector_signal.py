"""`klamm connector signal`: asks a running connector for a snapshot, in Debezium's words, by REST.

`signal_data` is pure. It refuses what the connector would only write to its log.
"""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Annotated, Any, Final

import typer

from klamm.cli.common import reported
from klamm.cli.connector_names import Name, path_of
from klamm.cli.context import Commands
from klamm.cli.rest_client import Worker
from klamm_base.errors import ConfigError

Data = dict[str, Any]


class Snapshot(StrEnum):
    """The kinds of snapshots: beside the changes, or while these wait."""

    INCREMENTAL = "incremental"
    BLOCKING = "blocking"


TABLES, TYPE, CONDITION, KEY, MESSAGE = (
    "--data-collections", "--type", "--additional-condition", "--surrogate-key", "--message",
)  # fmt: skip
_DATA: Final = "--data"
OPTIONS: Final[dict[str, tuple[str, ...]]] = {
    "execute-snapshot": (TABLES, TYPE, CONDITION, KEY),
    "stop-snapshot": (TABLES,),
    "pause-snapshot": (),
    "resume-snapshot": (),
    "log": (MESSAGE,),
}
"""The signals of MySqlSource, and the options of each."""
_NEEDED: Final = {"execute-snapshot": f"{TABLES} DATABASE.TABLE", "log": f"{MESSAGE} TEXT"}
_FIELDS: Final = {
    TABLES: "data-collections",
    TYPE: "type",
    CONDITION: "additional-conditions",
    KEY: "surrogate-key",
    MESSAGE: "message",
}


def signal_data(kind: str, given: dict[str, Any], data: str | None) -> Data:
    """Return the data of a signal, from the options that were given or from `data`. Raises ConfigError."""
    given = {option: value for option, value in given.items() if value}
    if data is not None:
        if given:
            raise ConfigError(f"{_DATA} is the whole of the signal's data; leave out {', '.join(given)}")
        return _object(data)
    if kind not in OPTIONS:
        raise ConfigError(
            f"{kind}: the signals of MySqlSource are {', '.join(OPTIONS)}. For one of another plugin, give {_DATA} (a JSON object)"
        )
    if wrong := [option for option in given if option not in OPTIONS[kind]]:
        raise ConfigError(f"{kind} has no {wrong[0]}; it takes {', '.join(OPTIONS[kind]) or 'no options'}")
    if kind in _NEEDED and not any(option in given for option in (TABLES, MESSAGE)):
        raise ConfigError(f"{kind} needs {_NEEDED[kind]}")
    return {_FIELDS[option]: _value(option, value) for option, value in given.items()}


def _value(option: str, value: Any) -> Any:
    if option == CONDITION:
        return [_condition(text) for text in value]
    return list(value) if option == TABLES else str(value)


def _condition(text: str) -> Data:
    table, equals, condition = text.partition("=")
    if not ("." in table and equals and condition.strip()):
        raise ConfigError(
            f"{CONDITION} {text!r} is not DATABASE.TABLE=CONDITION, for example \"shop.orders=state = 'new'\""
        )
    return {"data-collection": table.strip(), "filter": condition.strip()}


def _object(text: str) -> Data:
    try:
        found = json.loads(text)
    except ValueError as e:
        raise ConfigError(f"{_DATA} is no JSON: {e}") from None
    if not isinstance(found, dict):
        raise ConfigError(f"{_DATA} {text!r} is no JSON object: write {{…}}")
    return found


def signal(
    worker: Worker,
    name: Name,
    kind: Annotated[
        str,
        typer.Argument(
            metavar="SIGNAL",
            help="execute-snapshot, stop-snapshot, pause-snapshot, resume-snapshot or log; with --data, that of another plugin.",
        ),
    ],
    tables: Annotated[
        list[str] | None,
        typer.Option(
            TABLES, "-t", metavar="DATABASE.TABLE", help="Tables, as a regular expression; may be repeated."
        ),
    ] = None,
    type: Annotated[
        Snapshot | None,
        typer.Option(TYPE, help="incremental: beside the changes (default); blocking: these wait meanwhile."),
    ] = None,
    conditions: Annotated[
        list[str] | None,
        typer.Option(
            CONDITION, metavar="DATABASE.TABLE=CONDITION", help="Only such rows of a table; may be repeated."
        ),
    ] = None,
    surrogate_key: Annotated[
        str | None, typer.Option(KEY, metavar="COLUMN", help="Read in chunks of this column's values.")
    ] = None,
    message: Annotated[str | None, typer.Option(MESSAGE, help="What `log` writes to the log.")] = None,
    data: Annotated[
        str | None, typer.Option(_DATA, metavar="JSON", help="The signal's data, in place of these options.")
    ] = None,
    signal_id: Annotated[
        str | None, typer.Option("--id", help="The signal's id in the log; default: a random one.")
    ] = None,
    task: Annotated[int, typer.Option("--task", min=0, help="The task that gets it.")] = 0,
) -> None:
    """Ask a running connector to read tables again.

    The signal is handed to a task; what follows from it is in the connector's log.
    """
    with reported():
        given = {TABLES: tables, TYPE: type, CONDITION: conditions, KEY: surrogate_key, MESSAGE: message}
        body: Data = {"type": kind, "data": signal_data(kind, given, data)}
        if signal_id:
            body["id"] = signal_id
        worker.call("POST", path_of(name, f"/tasks/{task}/signals"), body)
        typer.echo(f"task {task} of {name} has the signal {kind}")


def register(app: Commands) -> None:
    """Add the command to `klamm connector`."""
    app.command()(signal)
