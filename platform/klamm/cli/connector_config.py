"""`klamm connector create`, `apply`, `edit`, `config`, `validate`: configurations of connectors."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from klamm.cli import connector_diff
from klamm.cli.common import (
    EXIT_FAILED,
    Output,
    OutputOption,
    counted,
    fail,
    pairs,
    print_document,
    print_rows,
    reported,
)
from klamm.cli.connector_files import ConnectorFile, read_connector, read_edit, to_properties
from klamm.cli.connector_names import Name, OptionalName, path_of
from klamm.cli.context import Commands
from klamm.cli.rest_client import RestError, Worker
from klamm_base.errors import ConfigError, KlammError
from klamm_base.files import write_atomically

_FORMATS = "JSON, .yaml, .toml or .properties"
FileOption = Annotated[
    Path | None,
    typer.Option("--file", "-f", help=f"{_FORMATS}: name and config, or the config alone; - reads JSON."),
]
ConfigOption = Annotated[
    list[str] | None,
    typer.Option("--config", "-c", metavar="KEY=VALUE", help="One setting; may be repeated."),
]
_PLACEHOLDER: Final = "unnamed"
"""The name of a connector that is only checked."""
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Check it and show what would change; change nothing.")
]


class ConfigFormat(StrEnum):
    """Formats of a printed configuration."""

    JSON = "json"
    YAML = "yaml"
    PROPERTIES = "properties"


def create(
    worker: Worker, name: OptionalName = None, file: FileOption = None, config: ConfigOption = None
) -> None:
    """Make a connector from a file or from -c settings."""
    with reported():
        wanted = _wanted(name, file, config)
        _create(worker, wanted)
        typer.echo(f"created {wanted.name}")


def apply(
    worker: Worker,
    files: Annotated[
        list[Path] | None,
        typer.Option("--file", "-f", help=f"As for create ({_FORMATS}); may be given several times."),
    ] = None,
    name: OptionalName = None,
    config: ConfigOption = None,
    dry_run: DryRunOption = False,
) -> None:
    """Create a connector, or change it to what a file says.

    Says of each file whether its connector is created, changed or unchanged, and shows the difference. Settings that
    are not in the file are removed. Exit code 1 when a file cannot be applied; the others are.
    """
    if len(files or ()) > 1 and (name or config):
        raise typer.BadParameter("NAME and --config go with one file", param_hint="--file")
    with reported():
        problems: list[str] = []
        given: list[Path | None] = [*files] if files else [None]
        for file in given:
            try:
                _apply(worker, _wanted(name, file, config), dry_run=dry_run)
            except KlammError as e:
                if len(given) == 1:
                    raise
                problems.append(str(e))
        if problems:
            fail("\n".join(problems))


def edit(worker: Worker, name: Name, dry_run: DryRunOption = False) -> None:
    """Change a connector's configuration in an editor.

    Opens the editor of VISUAL or EDITOR (else vi) on the configuration as .properties, checks the result, shows the
    difference and applies it. A password stays `[hidden]` unless you write another. What cannot be applied is kept in
    a file that the error names.
    """
    with reported():
        from klamm.cli.editor import editing

        current = worker.call("GET", path_of(name, "/config"))
        text = f"# {name}: save and leave to apply\n{to_properties(current)}"
        with editing(text, name="connector.properties") as file:
            try:
                wanted = ConnectorFile(name=name, config=read_edit(file))
                if connector_diff.changes(current, wanted.config):
                    _apply(worker, wanted, dry_run=dry_run, based_on=current)
                else:
                    typer.echo(f"unchanged {name}")
            except KlammError as e:
                raise KlammError(f"{e}\n{_kept(name, file)}") from None


def config(
    worker: Worker,
    name: Name,
    put: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Set this; may be repeated.")
    ] = None,
    remove: Annotated[
        list[str] | None, typer.Option("--unset", metavar="KEY", help="Remove this; may be repeated.")
    ] = None,
    dry_run: DryRunOption = False,
    output: Annotated[
        ConfigFormat, typer.Option("--output", "-o", help="How to print: json, yaml or properties.")
    ] = ConfigFormat.JSON,
) -> None:
    """Print a connector's configuration, or set parts of it."""
    with reported():
        current = worker.call("GET", path_of(name, "/config"))
        if not put and not remove:
            typer.echo(_printed(current, output), nl=False)
            return
        wanted = {**current, **pairs(put, "--set")}
        for key in remove or ():
            if wanted.pop(key, None) is None:
                raise KlammError(f"{name} has no setting {key}")
        _apply(worker, ConnectorFile(name=name, config=wanted), dry_run=dry_run, based_on=current)


def validate(
    worker: Worker,
    name: OptionalName = None,
    file: FileOption = None,
    config: ConfigOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Check a configuration without making a connector.

    Needs no NAME. Exit code 1 when it has errors.
    """
    with reported():
        wanted = _wanted(name, file, config, nameless=_PLACEHOLDER)
        where = f"{file}: " if file else ""
        held = wanted.config.setdefault("name", wanted.name)
        if held != wanted.name:  # what create is told by the worker
            raise ConfigError(f"{where}name is {held!r}, not {wanted.name!r}")
        rows, warnings = _errors(worker, wanted.config, where)
        if output.structured and output is not Output.CSV:
            print_document({"errors": rows, "warnings": warnings}, output)
        elif rows:
            print_rows(rows, ["key", "value", "error"], output)
        _warn(warnings)
        if rows:
            raise typer.Exit(EXIT_FAILED)
        if not output.structured:
            typer.echo("no errors")


def _wanted(
    name: str | None, file: Path | None, config: list[str] | None, *, nameless: str | None = None
) -> ConnectorFile:
    """Return the connector that the options describe; a -c setting wins over the file.

    Raises BadParameter where they name no connector and `nameless`, the name for it, is None.
    """
    if file is None and not config:
        raise typer.BadParameter("give --file or --config", param_hint="--file")
    found = read_connector(file) if file else ConnectorFile(name=None, config={})
    settings = found.config | pairs(config, "--config")
    chosen = name or found.name or settings.get("name") or nameless
    if not chosen:
        raise typer.BadParameter("give a NAME, or a file that holds one", param_hint="NAME")
    return ConnectorFile(name=chosen, config=settings, initial_state=found.initial_state)


def _create(worker: Worker, wanted: ConnectorFile) -> None:
    body: dict[str, Any] = {"name": wanted.name, "config": wanted.config}
    if wanted.initial_state is not None:
        body["initial_state"] = wanted.initial_state
    _warn(_sent(worker, "POST", "/connectors", body))


def _apply(
    worker: Worker, wanted: ConnectorFile, *, dry_run: bool, based_on: Mapping[str, str] | None = None
) -> None:
    """Create or change a connector, or only say what that would do; print the difference and its kind.

    Raises KlammError when the worker's configuration is no longer the one that `wanted` is `based_on`.
    """
    name = str(wanted.name)
    settings = {k: v for k, v in wanted.config.items() if v is not None} | {"name": name}
    if (held := wanted.config.get("name", name)) != name:
        raise ConfigError(f"name is {held!r}, not {name!r}")
    current = _current(worker, name)
    if based_on is not None and current != based_on:
        raise KlammError(f"somebody else has changed or deleted {name} meanwhile: nothing is changed")
    found = connector_diff.changes(current or {}, settings)
    if current is not None and not found:
        typer.echo(f"unchanged {name}")
        return
    if dry_run:
        _check(worker, name, settings)
    elif current is None:
        _create(worker, ConnectorFile(name=name, config=settings, initial_state=wanted.initial_state))
    else:
        _warn(_sent(worker, "PUT", path_of(name, "/config"), settings))
    if current is not None:
        for line in connector_diff.lines(found):
            typer.echo(line)
    typer.echo(f"{'created' if current is None else 'changed'} {name}{' (dry run)' if dry_run else ''}")


def _current(worker: Worker, name: str) -> dict[str, str] | None:
    try:
        found: dict[str, str] = worker.call("GET", path_of(name, "/config"))
    except RestError as e:
        if e.status == 404:
            return None
        raise
    return found


def _check(worker: Worker, name: str, settings: dict[str, Any]) -> None:
    """Raise KlammError with every error that the worker finds; print its warnings."""
    rows, warnings = _errors(worker, settings, f"{name}: ")
    _warn(warnings)
    if rows:
        raise KlammError(_sentence(name, [row["error"] for row in rows]))


def _warn(warnings: Sequence[str]) -> None:
    """Print warnings on standard error."""
    for sentence in warnings:
        typer.echo(f"warning: {sentence}", err=True)


def _errors(
    worker: Worker, settings: Mapping[str, Any], where: str
) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the worker's complaints, each once, and its warnings. Kafka's workers have none."""
    from urllib.parse import quote

    plugin = settings.get("connector.class")
    if not plugin:
        raise KlammError(f"{where}no connector.class")
    answer = worker.call("PUT", f"/connector-plugins/{quote(plugin, safe='')}/config/validate", settings)
    rows = [
        {"key": c["value"]["name"], "value": c["value"]["value"], "error": error}
        for c in answer["configs"]
        for error in _once(c["value"]["errors"])
    ]
    return rows, answer.get("warnings", [])


def _once(errors: list[str]) -> list[str]:
    """Return errors without those that follow from another.

    Connect treats a value that it cannot read as null, and complains of the null, too.
    """
    own = [e for e in dict.fromkeys(errors) if not e.startswith("Invalid value null for configuration ")]
    return own or list(dict.fromkeys(errors))


def _sent(worker: Worker, method: str, path: str, body: dict[str, Any]) -> list[str]:
    """Send a configuration; return the worker's warnings. Raises KlammError; a configuration's errors are lines of it, each once."""
    try:
        answer = worker.call(method, path, body)
    except RestError as e:
        head, *listed = str(e).splitlines()
        if "contains the following" not in head or not listed:
            raise
        by_key: dict[str, list[str]] = {}
        for text in listed[:-1]:  # the last line names the endpoint of `validate`
            by_key.setdefault(_key_of(text), []).append(text)
        name = body.get("name") or "the connector"
        errors = [text for texts in by_key.values() for text in _once(texts)]
        _warn(e.warnings)
        raise KlammError(_sentence(str(name), errors)) from None
    warnings: list[str] = answer.get("warnings", [])
    return warnings


def _key_of(error: str) -> str:
    """Return the key that an error names, as Kafka words it; else the error itself."""
    _, found, rest = error.partition(" for configuration ")
    return rest.partition(":")[0] if found else error


def _sentence(name: str, errors: list[str]) -> str:
    return "\n".join([f"the configuration of {name} has {counted(len(errors), 'error')}:", *errors])


def _printed(settings: dict[str, str], output: ConfigFormat) -> str:
    from klamm.cli.output import yaml

    match output:
        case ConfigFormat.JSON:
            return json.dumps(settings, indent=2) + "\n"
        case ConfigFormat.YAML:
            return yaml(settings)
        case ConfigFormat.PROPERTIES:
            return to_properties(settings)


def _kept(name: str, file: Path) -> str:
    """Copy the file of an edit to the current directory, for its owner alone; return a sentence that says so."""
    kept = Path(f"{name.replace('/', '_')}.edited.properties")
    try:
        write_atomically(kept, file.read_bytes())
    except OSError as e:
        return f"your edit is lost: {kept} cannot be written: {e.strerror}"
    return f"your edit is kept: klamm connector apply {name} -f {kept}"


def register(app: Commands) -> None:
    """Add the commands to `klamm connector`."""
    for command in (create, apply, edit, config, validate):
        app.command()(command)
