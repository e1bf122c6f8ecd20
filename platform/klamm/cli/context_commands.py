"""`klamm context`: named clusters with their logins, Connect workers and schema registries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer

from klamm.cli.common import pairs, reported
from klamm.cli.context import Commands
from klamm.cli.output import Format, FormatOption, print_rows
from klamm_base.errors import ConfigError, KlammError

app = Commands(help="Name clusters and their logins; choose one.", no_args_is_help=True)


def _names(incomplete: str) -> list[str]:
    from klamm.cli.saved_contexts import load

    try:
        return sorted(n for n in load().by_name if n.startswith(incomplete))
    except KlammError:
        return []  # nobody reads an error while they type


Name = Annotated[str, typer.Argument(metavar="NAME", autocompletion=_names, help="The context's name.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """The servers of a context beside its brokers, and the logins for them."""

    rest_url: Annotated[str | None, typer.Option(help="Address of a Connect worker's REST.")] = None
    rest_user: Annotated[
        str | None, typer.Option(metavar="NAME[:PASSWORD]", help="Its login; `NAME:` asks for the password.")
    ] = field(default=None, repr=False)
    rest_token: Annotated[
        str | None, typer.Option(metavar="TOKEN", help="Or a bearer token; - asks for it.")
    ] = field(default=None, repr=False)
    rest_cacert: Annotated[Path | None, typer.Option(help="PEM certificates of its authority.")] = None
    registry_url: Annotated[str | None, typer.Option(help="Address of a schema registry.")] = None
    registry_user: Annotated[
        str | None, typer.Option(metavar="NAME[:PASSWORD]", help="Its login; `NAME:` asks for the password.")
    ] = field(default=None, repr=False)

    def settings(self) -> dict[str, str | None]:
        """Return the settings of a context. Asks for the secrets that are to be asked for."""
        return {
            "rest_url": self.rest_url,
            "rest_user": _asked(self.rest_user, "Password", ":"),
            "rest_token": _asked(self.rest_token, "Token", "-"),
            "rest_cacert": _absolute(self.rest_cacert),
            "registry_url": self.registry_url,
            "registry_user": _asked(self.registry_user, "Registry's password", ":"),
        }


@app.command()
def add(
    places: Places,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Letters, digits, '.', '_' and '-'.")],
    bootstrap_server: Annotated[
        str | None, typer.Option("--bootstrap-server", "-b", help="HOST:PORT of a broker, several by commas.")
    ] = None,
    command_config: Annotated[
        Path | None,
        typer.Option(
            "--command-config",
            readable=False,
            help="A .properties file with client settings; it stays where it is.",
        ),
    ] = None,
    property_: Annotated[
        list[str] | None,
        typer.Option(
            "--property",
            metavar="KEY=VALUE",
            help="A client setting, kept in a file of the context's own; may be given several times.",
        ),
    ] = None,
    replace: Annotated[bool, typer.Option("--replace", help="In place of a context of this name.")] = False,
    use: Annotated[bool, typer.Option("--use", help="Use it from now on.")] = False,
) -> None:
    """Add a context.

    Kept in ~/.config/klamm/contexts.toml (XDG_CONFIG_HOME), which only its owner may read.
    """
    properties = pairs(property_, "--property")
    if properties and command_config:
        raise typer.BadParameter("give --command-config or --property, not both", param_hint="--property")
    if places.rest_user and places.rest_token:
        raise typer.BadParameter("give --rest-user or --rest-token, not both", param_hint="--rest-token")
    with reported():
        from klamm.cli.saved_contexts import changing

        given = {
            "bootstrap_server": _address(bootstrap_server),
            "command_config": _absolute(command_config),
            **places.settings(),
        }
        settings = {k: v for k, v in given.items() if v is not None}
        _check(settings, properties)
        with changing() as contexts:
            if properties:
                settings["command_config"] = str(contexts.own_file(name))
            contexts.add(name, settings, replace=replace)
            if properties:
                _write(contexts.own_file(name), properties)
            else:
                contexts.own_file(name).unlink(missing_ok=True)
            if use:
                contexts.current = name
            contexts.save()
            typer.echo(f"added context {name}" + ("" if use else f"; `klamm context use {name}` chooses it"))


def _address(value: str | None) -> str | None:
    if value is not None:
        from klamm_base.addresses import parse_addresses

        parse_addresses(value)
    return value


def _absolute(path: Path | None) -> str | None:
    """Return the whole path of a file that is there: the context is used from other folders."""
    if path is None:
        return None
    try:
        is_file = path.is_file()
    except PermissionError as e:
        from klamm_base.unreadable import why_unreadable

        raise ConfigError(why_unreadable(path, e), source=str(path)) from None
    if not is_file:
        raise ConfigError(f"{path}: no such file")
    return str(path.absolute())


def _asked(value: str | None, what: str, mark: str) -> str | None:
    """Return the value with what its ending asks for, so that a secret need not be in the list of processes."""
    if value is None or not value.endswith(mark):
        return value
    return value.removesuffix("-") + str(typer.prompt(what, hide_input=True, err=True))


def _check(settings: Mapping[str, str], properties: Mapping[str, str]) -> None:
    """Raise ConfigError for a context that no command can use."""
    from klamm.cli.saved_contexts import GROUPS
    from klamm_base.security import ClientSecurity

    for name in ("rest_url", "registry_url"):
        if not settings.get(name, "http://").startswith(("http://", "https://")):
            raise ConfigError(
                f"--{name.replace('_', '-')} {settings[name]}: write http://HOST:PORT or https://HOST:PORT"
            )
    for address, others in GROUPS.items():
        lonely = [o for o in others if o in settings and address not in settings]
        if lonely or (properties and address == "bootstrap_server" and address not in settings):
            option = lonely[0].replace("_", "-") if lonely else "property"
            raise ConfigError(f"--{option} needs --{address.replace('_', '-')}")
    if not settings:
        raise ConfigError("give --bootstrap-server, --rest-url or --registry-url: a context names a place")
    if properties:
        ClientSecurity.from_properties(properties)


def _write(path: Path, properties: Mapping[str, str]) -> None:
    from klamm_base.files import make_private_folder, write_atomically

    def escaped(text: str) -> str:
        text = text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
        return "\\" + text if text.startswith((" ", "\t", "\f")) else text

    lines = [f"{key}={escaped(value)}\n" for key, value in properties.items()]
    try:
        make_private_folder(path.parent)
        write_atomically(path, "".join(lines).encode())
    except OSError as e:
        raise KlammError(f"cannot write {path}: {e.strerror or e}") from None


@app.command()
def use(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", autocompletion=_names, help="The context's name.")
    ] = None,
    none: Annotated[bool, typer.Option("--none", help="Use no context.")] = False,
) -> None:
    """Choose the context that commands work in by themselves."""
    if (name is None) is not none:
        raise typer.BadParameter("give a name, or --none")
    with reported():
        from klamm.cli.saved_contexts import changing

        with changing() as contexts:
            if name is not None:
                contexts.get(name)
            contexts.current = name
            contexts.save()
        typer.echo("using no context" if name is None else f"using {name}")


@app.command("list")
def list_contexts(ctx: typer.Context, output: FormatOption = Format.TABLE) -> None:
    """List contexts; the one in use is marked."""
    with reported():
        from klamm.cli.chosen_context import chosen_name
        from klamm.cli.saved_contexts import load

        contexts = load()
        used, _ = chosen_name(ctx)
        rows = [
            {"name": name, "used": name == used, **_shown(contexts.by_name[name])}
            for name in sorted(contexts.by_name)
        ]
        columns = ["used", "name", "bootstrap_server", "rest_url", "registry_url"]
        print_rows(rows, columns, output, wide=["command_config", "rest_user", "registry_user"])


@app.command()
def show(
    ctx: typer.Context,
    name: Annotated[
        str | None,
        typer.Argument(metavar="[NAME]", autocompletion=_names, help="Default: the context in use."),
    ] = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """Show a context, and what chose it. Secrets are hidden."""
    with reported():
        from klamm.cli.chosen_context import chosen_name
        from klamm.cli.saved_contexts import load
        from klamm_base.properties import load_properties

        contexts = load()
        used, by = chosen_name(ctx)
        wanted = name or used
        if wanted is None:
            raise KlammError("no context is in use: `klamm context use NAME` chooses one")
        settings = contexts.get(wanted)
        rows = [{"setting": "name", "value": wanted}]
        if wanted == used:
            rows.append({"setting": "chosen_by", "value": by})
        rows += [{"setting": k, "value": v} for k, v in _shown(settings).items() if v is not None]
        own = contexts.own_file(wanted)
        if settings.get("command_config") == str(own):
            rows += [{"setting": k, "value": _hidden(k, v)} for k, v in load_properties(own).items()]
        print_rows(rows, ["setting", "value"], output)


def _shown(settings: Mapping[str, str]) -> dict[str, Any]:
    """Return a context's settings without secrets; None for those that it has not."""
    from klamm.cli.saved_contexts import SETTINGS
    from klamm_base.redaction import HIDDEN, without_logins

    def text(key: str, value: str) -> str:
        if key == "rest_token":
            return HIDDEN
        if key.endswith("_user"):
            user, colon, _ = value.partition(":")
            return user + (f":{HIDDEN}" if colon else "")
        return without_logins(value)

    return {key: text(key, settings[key]) if key in settings else None for key in SETTINGS}


def _hidden(key: str, value: str) -> str:
    from klamm_base.redaction import HIDDEN, secret_values

    return HIDDEN if secret_values({key: value}) else value


@app.command()
def remove(names: Annotated[list[str], typer.Argument(metavar="NAME", autocompletion=_names)]) -> None:
    """Remove contexts, with the properties that were given for them."""
    with reported():
        from klamm.cli.saved_contexts import changing

        with changing() as contexts:
            for name in names:
                contexts.get(name)
            for name in dict.fromkeys(names):
                contexts.remove(name)
                typer.echo(f"removed context {name}")


@app.command()
def rename(name: Name, to: Annotated[str, typer.Argument(metavar="NEW", help="Its new name.")]) -> None:
    """Give a context another name."""
    with reported():
        from klamm.cli.saved_contexts import changing

        with changing() as contexts:
            contexts.rename(name, to)
        typer.echo(f"renamed context {name} to {to}")
