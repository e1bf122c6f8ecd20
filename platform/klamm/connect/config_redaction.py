"""Configurations as answers show them: passwords as `[hidden]`, references to secrets as they are.

Which keys are passwords is what the plugins' definitions say; a child is asked once per class, and for a moment only: a
plugin that hangs holds nobody up. Keys that no definition knows (client overrides, plugins that cannot be asked) are judged
by their name. A client that sends `[hidden]` back, because it changed something else, leaves that password as it is.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from klamm.connect.definitions import CONNECTOR_CLASS, CONVERTERS
from klamm.connect.errors import BadRequest
from klamm.connect.supervisor import PluginCallError
from klamm_base.redaction import HIDDEN, is_secret_name
from klamm_base.references import references_in

if TYPE_CHECKING:
    from klamm.connect.runtime import Runtime

ASK_S: Final = 2.0
ASK_AGAIN_S: Final = 60.0
"""A plugin that could not say is asked again after so long."""
_NESTED: Final = ("transforms", "predicates")

Typed = Mapping[str, bool]
"""Keys that are defined, and whether each is a password."""


class Redaction:
    """See the module. `enabled`: `rest.hide.secrets`."""

    def __init__(self, runtime: Runtime, *, enabled: bool) -> None:
        self._runtime = runtime
        self._enabled = enabled
        self._typed: dict[str, tuple[float, Typed]] = {}
        self._asking: dict[str, asyncio.Task[Typed]] = {}

    async def hide(self, config: Mapping[str, str]) -> dict[str, str]:
        """The configuration as it may be shown."""
        if not self._enabled:
            return dict(config)
        typed = await self._keys_of(config)
        return {key: HIDDEN if _hides(key, value, typed) else value for key, value in config.items()}

    def learn(self, config: Mapping[str, str], rows: Iterable[Mapping[str, Any]]) -> None:
        """Take the keys from a validation of this config: then nobody need be asked."""
        definitions = [row["definition"] for row in rows if row["definition"] is not None]
        typed = {definition["name"]: definition["type"] == "PASSWORD" for definition in definitions}
        for prefix, cls in _plugins_in(config):
            own = {key[len(prefix) :]: secret for key, secret in typed.items() if key.startswith(prefix)}
            if own:
                self._typed[cls] = (float("inf"), own)

    async def _keys_of(self, config: Mapping[str, str]) -> dict[str, bool]:
        """Every key that the config's plugins define, under the name that it has in the config."""
        plugins = dict(_plugins_in(config))
        found = await asyncio.gather(*(self._of_class(cls) for cls in plugins.values()))
        return {
            prefix + key: secret
            for prefix, typed in zip(plugins, found, strict=True)
            for key, secret in typed.items()
        }

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
            rows: list[dict[str, Any]] = await self._runtime.children.call(
                "plugin_config", {"plugin": cls}, timeout_s=ASK_S
            )
        except PluginCallError:
            self._typed[cls] = (time.monotonic() + ASK_AGAIN_S, {})
            return {}
        typed = {row["name"]: row["type"] == "PASSWORD" for row in rows}
        self._typed[cls] = (float("inf"), typed)
        return typed


def unhide(given: Mapping[str, str | None], stored: Mapping[str, str]) -> dict[str, str | None]:
    """A configuration that a client sends, with the stored values of what it sent back as `[hidden]`."""
    for key, value in given.items():
        if value == HIDDEN and key not in stored:
            raise BadRequest(
                f"{key} is {HIDDEN}, which stands for a password in answers; give the password itself, or a reference "
                "to it such as ${file:/etc/secrets.properties:password}"
            )
    return {key: stored[key] if value == HIDDEN else value for key, value in given.items()}


def _plugins_in(config: Mapping[str, str]) -> Iterable[tuple[str, str]]:
    """The classes that a config names, each with the prefix of its keys."""
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


def _hides(key: str, value: str, typed: Typed) -> bool:
    secret = typed[key] if key in typed else is_secret_name(key)
    return secret and bool(value) and not _is_reference(value)


def _is_reference(value: str) -> bool:
    """Whether nothing but references is in it: `user:${file:…}` has a part that is not."""
    return value.strip().startswith("${") and len(references_in(value)) == 1 and value.strip().endswith("}")
