"""A form from the answer of Connect's `config/validate`. Pure."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from klamm.console.errors import ConsoleError
from klamm_base.redaction import HIDDEN, has_hidden_login, is_secret_name, without_logins

PREFIX: Final = "c."
"""Before the name of each setting in the form."""
NEW_KEY: Final = "new.key"
NEW_VALUE: Final = "new.value"
_CHOICES_MAX: Final = 200
_FIRST: Final[tuple[str, ...]] = ("connector.class", "name", "tasks.max")


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """A setting in the form. `kind`: text, password, boolean, number, list; `choices` are recommended values."""

    name: str
    title: str
    kind: str
    value: str
    default: str | None
    required: bool
    help: str
    importance: str
    errors: tuple[str, ...]
    choices: tuple[str, ...]

    @property
    def id(self) -> str:
        """Returns an id for the page."""
        return "f-" + "".join(c if c.isalnum() else "-" for c in self.name)


_KINDS: Final = {
    "PASSWORD": "password",
    "BOOLEAN": "boolean",
    "INT": "number",
    "LONG": "number",
    "SHORT": "number",
    "LIST": "list",
}


def sorted_groups(answer: Mapping[str, Any], config: Mapping[str, str]) -> list[tuple[str, list[Field]]]:
    """Returns groups with their fields, in the worker's order; then the settings that the worker does not know."""
    groups: dict[str, list[tuple[int, int, Field]]] = {name: [] for name in answer.get("groups", [])}
    known = set()
    for at, info in enumerate(answer["configs"]):
        definition, value = info.get("definition"), info["value"]
        known.add(value["name"])
        if definition is None:
            groups.setdefault("Other settings", []).append((at, at, _field(value["name"], {}, value, config)))
            continue
        if not value.get("visible", True) and value["name"] not in config:
            continue
        group = definition.get("group") or "Settings"
        groups.setdefault(group, []).append(
            (definition.get("order_in_group", -1), at, _field(value["name"], definition, value, config))
        )
    for name in config.keys() - known:
        groups.setdefault("Other settings", []).append((0, 0, _field(name, {}, {}, config)))
    return [
        (name, [f for _, _, f in sorted(rows, key=lambda r: r[:2])]) for name, rows in groups.items() if rows
    ]


def _field(
    name: str, definition: Mapping[str, Any], value: Mapping[str, Any], config: Mapping[str, str]
) -> Field:
    kind = _KINDS.get(definition.get("type", ""), "text")
    if is_secret_name(name) and kind == "text":
        kind = "password"
    choices = [str(v) for v in value.get("recommended_values") or () if v is not None]
    return Field(
        name=name,
        title=definition.get("display_name") or name,
        kind=kind,
        value=config.get(name) or "",
        default=definition.get("default_value"),
        required=bool(definition.get("required")),
        help=definition.get("documentation") or "",
        importance=(definition.get("importance") or "").lower(),
        errors=tuple(value.get("errors") or ()),
        choices=tuple(choices[:_CHOICES_MAX]),
    )


def as_fields(form: Mapping[str, str]) -> dict[str, str]:
    """Returns the configuration of a form's fields: those that are not empty. A field may be a space: a delimiter."""
    found = {k.removeprefix(PREFIX): _typed(v) for k, v in form.items() if k.startswith(PREFIX) and v}
    key = form.get(NEW_KEY, "").strip()
    if key:
        found[key] = _typed(form.get(NEW_VALUE, ""))
    first: dict[str, str] = {k: found[k] for k in _FIRST if k in found}
    return {**first, **{k: v for k, v in found.items() if k not in first}}


def _typed(text: str) -> str:
    """Returns a field without the spaces around it, and with the line ends of everywhere else."""
    text = text.replace("\r\n", "\n")
    return text.strip() or text


def read_config(text: str) -> dict[str, str]:
    """Returns a configuration from JSON: an object of settings, or Connect's `{"name", "config"}`. Raises ConsoleError."""
    try:
        value = json.loads(text)
    except ValueError as e:
        raise ConsoleError(f"JSON: {e}") from None
    if isinstance(value, dict) and isinstance(value.get("config"), dict):
        name = value.get("name")
        value = {**({"name": name} if name else {}), **value["config"]}
    if not isinstance(value, dict):
        raise ConsoleError("JSON: a configuration is an object of settings and their values")
    found: dict[str, str] = {}
    for key, each in value.items():
        if isinstance(each, dict | list):
            raise ConsoleError(f"JSON: the value of {key} must be a text, a number, true, false or null")
        if each is not None:
            found[key] = ("true" if each else "false") if isinstance(each, bool) else str(each)
    return found


def passwords(definitions: Collection[Mapping[str, Any]]) -> set[str]:
    """Returns the keys that a plugin defines as passwords."""
    return {d["name"] for d in definitions if d.get("type") == "PASSWORD"}


def hide(config: Mapping[str, str | None], typed: Collection[str] = ()) -> dict[str, str]:
    """Returns a configuration without its secrets, for a page; `typed` are keys of passwords. References such as ${file:…} are no secrets."""
    return {
        k: HIDDEN
        if v and (k in typed or is_secret_name(k)) and not v.startswith("${")
        else without_logins(v or "")
        for k, v in config.items()
    }


def unhide(config: Mapping[str, str], stored: Mapping[str, str | None]) -> dict[str, str]:
    """Returns a configuration with what is stored in the places where the page showed no secret, or other spaces. Raises ConsoleError
    for a secret that is not known.
    """
    found = {}
    for key, value in config.items():
        before = stored.get(key)
        same = before is not None and value in (HIDDEN, before.strip(), without_logins(before))
        if not same and (value == HIDDEN or has_hidden_login(value)):
            raise ConsoleError(f"{key}: {HIDDEN} stands for a secret that is not shown; give the whole value")
        found[key] = before if same and before is not None else value
    return found
