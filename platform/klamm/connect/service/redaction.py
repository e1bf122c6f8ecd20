"""Shows configurations in answers: passwords as `[hidden]`, references to secrets as they are.

The plugins' definitions say which keys are passwords. A child is asked once per class, and for a short
time only: a hanging plugin holds nobody up. All keys that may be the own keys of such a plugin are
hidden, because any of them may be a password. Keys without a definition (client overrides, plugins that
are not installed) are judged by their name. In an address with a login only the password is hidden. A
client may send `[hidden]` back when it changes other keys; the password then stays as it is.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping
from typing import Any, Final

from klamm.connect.children.interface import Children
from klamm.connect.children.supervisor import PluginCallError
from klamm.connect.errors import BadRequest
from klamm.connect.settings.connector_keys import CONNECTOR_CLASS, CONVERTERS
from klamm.connect.settings.limits import CONNECTOR_KEYS
from klamm.connect.settings.restart_policy import ErrorClass
from klamm.connect.validation.definitions import SINK, SOURCE, SOURCE_DEAD_LETTERS
from klamm_base.redaction import HIDDEN, has_hidden_login, is_secret_name, without_logins
from klamm_base.references import references_in

ASK_S: Final = 2.0
ASK_AGAIN_S: Final = 60.0
"""A plugin that could not tell its keys is asked again after this time."""
_NESTED: Final = ("transforms", "predicates")
_CONNECTS: Final = frozenset(
    {
        *SOURCE.names,
        *SINK.names,
        *SOURCE_DEAD_LETTERS.names,
        *(key.name for key in CONNECTOR_KEYS),
        "task.class",
    }
)
"""Connect's own keys: none of them is a password."""
_CONNECTS_PREFIXES: Final = (
    "topic.creation.",
    "transforms.",
    "predicates.",
    *(f"{name}." for name in CONVERTERS),
)
_STAGES: Final = frozenset({"type", "predicate", "negate", "plugin.version"})

Typed = Mapping[str, bool]
"""For each defined key: True if it is a password."""
_SILENT: Final[Typed] = {}
"""The keys of an installed plugin that does not tell them."""


class Redaction:
    """See the module. `children` answer which keys a plugin has; `enabled` is `rest.hide.secrets`."""

    def __init__(self, children: Children, *, enabled: bool) -> None:
        self._children = children
        self._enabled = enabled
        self._typed: dict[str, tuple[float, Typed]] = {}
        self._asking: dict[str, asyncio.Task[Typed]] = {}

    async def hide(
        self, config: Mapping[str, str], connector: Mapping[str, str] | None = None
    ) -> dict[str, str]:
        """Returns the configuration as answers may show it. For a task's, `connector` is its connector's
        configuration.
        """
        if not self._enabled:
            return dict(config)
        typed, silent = await self._keys_of({**(connector or {}), **config})
        return {
            key: HIDDEN if _hides(key, value, typed, silent) else without_logins(value)
            for key, value in config.items()
        }

    def learn(self, config: Mapping[str, str], rows: Iterable[Mapping[str, Any]]) -> None:
        """Takes the keys from a validation of this config, so that no child need be asked."""
        definitions = [row["definition"] for row in rows if row["definition"] is not None]
        typed = {definition["name"]: definition["type"] == "PASSWORD" for definition in definitions}
        for prefix, cls in _plugins_in(config):
            own = {key[len(prefix) :]: secret for key, secret in typed.items() if key.startswith(prefix)}
            if own:
                self._typed[cls] = (float("inf"), own)

    async def _keys_of(self, config: Mapping[str, str]) -> tuple[dict[str, bool], list[str]]:
        """Returns every key that the config's plugins define, by its name in the config, and the prefixes of the
        plugins that do not tell their keys.
        """
        plugins = dict(_plugins_in(config))
        found = await asyncio.gather(*(self._of_class(cls) for cls in plugins.values()))
        parts = list(zip(plugins, found, strict=True))
        typed = {prefix + key: secret for prefix, typed in parts for key, secret in typed.items()}
        return typed, [prefix for prefix, typed in parts if typed is _SILENT]

    async def _of_class(self, cls: str) -> Typed:
        until, typed = self._typed.get(cls, (0.0, {}))
        if time.monotonic() < until:
            return typed
        asking = self._asking.get(cls)
        if asking is None:
            asking = self._asking[cls] = asyncio.create_task(self._ask(cls))
            asking.add_done_callback(lambda _: self._asking.pop(cls, None))
        return await asyncio.shield(asking)

    async def _ask(self, cls: str) -> Typed:
        try:
            rows: list[dict[str, Any]] = await self._children.call(
                "plugin_config", {"plugin": cls}, timeout_s=ASK_S
            )
        except PluginCallError as e:
            # A plugin that is not installed runs nowhere: judge its keys by name. A plugin that hangs or breaks may
            # answer later.
            typed: Typed = {} if e.kind == ErrorClass.CONFIG else _SILENT
            self._typed[cls] = (time.monotonic() + ASK_AGAIN_S, typed)
            return typed
        found = {row["name"]: row["type"] == "PASSWORD" for row in rows}
        self._typed[cls] = (float("inf"), found)
        return found


def unhide(given: Mapping[str, str | None], stored: Mapping[str, str]) -> dict[str, str | None]:
    """Returns a client's configuration with the stored values in place of each `[hidden]`, also within addresses."""
    back = {key for key, value in given.items() if value is not None and _was_shown(value, stored.get(key))}
    for key, value in given.items():
        if value is not None and key not in back and has_hidden_login(value):
            raise BadRequest(
                f"{key} has {HIDDEN} in place of a password, and is not what is stored otherwise; give the whole address, "
                "or keep the password in a key of its own or a reference such as ${file:/etc/secrets.properties:password}"
            )
        if value == HIDDEN and key not in stored:
            raise BadRequest(
                f"{key} is {HIDDEN}, which stands for a password in answers; give the password itself, or a reference "
                "to it such as ${file:/etc/secrets.properties:password}"
            )
    return {key: stored[key] if key in back else value for key, value in given.items()}


def has_hidden(config: Mapping[str, str | None]) -> bool:
    """Returns whether a client sends back something that was hidden from it."""
    return any(v is not None and (v == HIDDEN or has_hidden_login(v)) for v in config.values())


def _was_shown(value: str, stored: str | None) -> bool:
    """Returns whether `value` is the stored value as an answer shows it, and the stored value has a secret."""
    if stored is None:
        return False
    return value == HIDDEN or (has_hidden_login(value) and value == without_logins(stored))


def _plugins_in(config: Mapping[str, str]) -> Iterable[tuple[str, str]]:
    """Yields the classes that a config names, each with the prefix of its keys."""
    if config.get(CONNECTOR_CLASS):
        yield "", config[CONNECTOR_CLASS]
    for name in CONVERTERS:
        if config.get(name):
            yield f"{name}.", config[name]
    for kind in _NESTED:
        for alias in config.get(kind, "").split(","):
            cls = config.get(f"{kind}.{alias.strip()}.type")
            if cls:
                yield f"{kind}.{alias.strip()}.", cls


def _hides(key: str, value: str, typed: Typed, silent: Iterable[str]) -> bool:
    secret = typed[key] if key in typed else is_secret_name(key) or _is_of(key, silent)
    return secret and bool(value) and not _is_reference(value)


def _is_of(key: str, silent: Iterable[str]) -> bool:
    """Returns whether a key may be an own key of the plugins with these prefixes."""
    if key in _CONNECTS:
        return False
    for prefix in silent:
        if prefix and key.startswith(prefix):
            return key.removeprefix(prefix) not in _STAGES
        if not prefix and not key.startswith(_CONNECTS_PREFIXES):
            return True
    return False


def _is_reference(value: str) -> bool:
    """Returns whether a value is one reference and nothing else; `user:${file:…}` is not."""
    return value.strip().startswith("${") and len(references_in(value)) == 1 and value.strip().endswith("}")
