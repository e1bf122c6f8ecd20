"""The context that a command line works in: settings from it stand behind options and the environment.

`--context` on the command line goes before the environment, as every option does; KLAMM_CONTEXT and the context that
`klamm context use` chose stand behind it. A login belongs to its address: where a command line or the environment
gives another address, the context's login for it is not used.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Final

import typer

from klamm.cli.saved_contexts import GROUPS, SETTINGS, environment_name, load
from klamm_base.errors import KlammError

VARIABLE: Final = "KLAMM_CONTEXT"
_KEY: Final = "klamm.context"
_SETTING_OF: Final = {environment_name(setting): setting for setting in SETTINGS}
_NEEDED: Final = {
    "bootstrap_server": "bootstrap server",
    "rest_url": "REST address",
    "registry_url": "registry",
}
NO_ADDRESS: Final = ""
_WITHOUT: Final = {"rest_url": ("top", "doctor")}
"""Commands that do without an address that the context has not: they get NO_ADDRESS."""


def choose(ctx: Any, name: str) -> None:
    """Remember the context that the command line names for the command behind it."""
    ctx.meta[_KEY] = name


def chosen_name(ctx: Any) -> tuple[str | None, str]:
    """Return the context's name and what chose it; no name where none is chosen."""
    if ctx.meta.get(_KEY):
        return ctx.meta[_KEY], "--context"
    if os.environ.get(VARIABLE):
        return os.environ[VARIABLE], VARIABLE
    return load().current, "klamm context use"


def fill(ctx: Any, parameters: list[Any]) -> None:
    """Give the options that nobody gave the context's values. Raises KlammError."""
    options = {_SETTING_OF[p.envvar]: p for p in parameters if getattr(p, "envvar", None) in _SETTING_OF}
    if not options:
        return
    name, by = chosen_name(ctx)
    if name is None:
        return
    settings = load().get(name)
    for address, others in GROUPS.items():
        if address in options:
            _fill_group(ctx, settings, {s: options[s] for s in (address, *others) if s in options}, name, by)


def _fill_group(
    ctx: Any, settings: Mapping[str, str], options: Mapping[str, Any], name: str, by: str
) -> None:
    address = next(iter(options))
    weak = {"DEFAULT", "ENVIRONMENT"} if by == "--context" else {"DEFAULT"}
    open_ = {s: p for s, p in options.items() if ctx.get_parameter_source(p.name).name in weak}
    if address not in open_:
        return  # another place than the context's
    if address not in settings:
        if options[address].default is None:
            return  # the command needs it only sometimes, and then says so
        if ctx.command.name in _WITHOUT.get(address, ()):
            ctx.params[options[address].name] = NO_ADDRESS
            return
        raise KlammError(
            f"context {name!r} ({by}) has no {_NEEDED[address]}: `klamm context add {name} --replace …`,"
            f" or give {options[address].opts[0]}"
        )
    if options.keys() - open_.keys() & {"rest_user", "rest_token"}:
        open_ = {s: p for s, p in open_.items() if s not in {"rest_user", "rest_token"}}
    for setting, parameter in open_.items():
        given = settings.get(setting)
        ctx.params[parameter.name] = parameter.process_value(ctx, given)


def given_name(ctx: typer.Context, value: str | None) -> str | None:
    """Take `--context` as the name for the command behind it."""
    if value:
        choose(ctx, value)
    return value
