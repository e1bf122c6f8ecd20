"""A worker's config providers and secrets: puts values in place of references, and removes them from
texts.

Configurations keep references (`${file:/etc/db.properties:password}`), and so do topics and answers. A
child gets the values right before it starts; its output is shown without them. Reading providers may
block: `resolve_soon` does it in a thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from klamm_base.configdef import Type, with_prefix
from klamm_base.errors import ConfigError
from klamm_base.redaction import HIDDEN, Redactor, secret_values
from klamm_base.references import Reference, references_in, replaced, with_references
from klamm_plugins.config_provider import ConfigData, ConfigProvider
from klamm_plugins.config_provider_discovery import find_config_provider

log = logging.getLogger(__name__)

PROVIDERS: Final = "config.providers"
RELOAD: Final = "config.action.reload"
RESOLVE_S: Final = 30.0
"""A provider that does not answer in this time counts as failed."""
_USERS: Final = frozenset({"user", "username"})
_CONFIGS: Final = ("connector_config", "task_config", "config")


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """A configuration with values. `found` maps each reference to its value; `ttl_ms` is the shortest life of
    a value.
    """

    config: dict[str, str] = field(repr=False)
    raw: Mapping[str, str] = field(repr=False)
    found: Mapping[Reference, str] = field(default_factory=dict, repr=False)
    ttl_ms: int | None = None

    @property
    def secrets(self) -> list[str]:
        """The values to hide: all but those that only keys of users' names have. A user is called debezium or kafka, and no class
        or topic could be read any more.
        """
        places = [(key, ref) for key, text in self.raw.items() for ref in references_in(text)]
        users = {ref for key, ref in places if key.rpartition(".")[2] in _USERS}
        users -= {ref for key, ref in places if key.rpartition(".")[2] not in _USERS}
        return [value for ref, value in self.found.items() if ref not in users]

    @property
    def reloads(self) -> bool:
        """True when the process that uses a value starts again at the end of the value's life (Kafka's default)."""
        return self.raw.get(RELOAD, "restart").strip().lower() == "restart"

    def references(self, configs: Iterable[Mapping[str, str]]) -> list[dict[str, str]]:
        """Returns configurations that were made from this one, with references instead of values."""
        return with_references(configs, self.raw, self.found)


class Secrets:
    """One per worker. `redact(text)` knows every value that was resolved or that is a secret by name or type."""

    def __init__(self, providers: Mapping[str, ConfigProvider] | None = None) -> None:
        self._providers = dict(providers or {})
        self.redactor = Redactor()
        self._unknown: set[str] = set()
        self._last: dict[Reference, str] = {}

    @classmethod
    def from_properties(cls, props: Mapping[str, str]) -> Secrets:
        """Make the providers that `config.providers` names, in that order. Raises ConfigError naming the property."""
        made: dict[str, ConfigProvider] = {}
        for name in [n.strip() for n in props.get(PROVIDERS, "").split(",") if n.strip()]:
            key = f"{PROVIDERS}.{name}.class"
            prefix = f"{PROVIDERS}.{name}.param."
            params = with_prefix(props, prefix)
            try:
                if made:  # what one needs may be kept by those before it
                    params = cls(made).resolve(params).config
                provider = find_config_provider(props.get(key, "").strip() or name)()
                provider.configure(params)
            except ConfigError as e:
                at = f"{prefix}{e.key}" if e.key else key
                raise ConfigError(f"{at}: {e}", key=at) from None
            made[name] = provider
        return cls(made)

    def resolve(self, config: Mapping[str, str], *, typed: Iterable[str] = ()) -> Resolved:
        """Put values in place of references, and hide them, and the secrets among the other values, from now on.
        Blocks.

        A reference to an unknown provider stays as it is. Raises ConfigError for a value that a provider does
        not have, without showing any value.
        """
        wanted: dict[tuple[str, str], set[str]] = {}
        places: dict[tuple[str, str], str] = {}
        for key, text in config.items():
            for reference in references_in(text):
                if reference.provider in self._providers:
                    place = reference.provider, reference.path
                    wanted.setdefault(place, set()).add(reference.key)
                    places.setdefault(place, key)
                else:
                    self._tell_unknown(reference.provider, key)
        found: dict[Reference, str] = {}
        ttls: list[int] = []
        for (provider, path), keys in wanted.items():
            try:
                data = self._ask(provider, path, keys)
            except ConfigError as e:
                raise ConfigError(
                    f"{places[provider, path]}: {e}", key=places[provider, path]
                ) from e.__cause__
            found |= {Reference(provider, path, key): data.data[key] for key in keys}
            ttls += [] if data.ttl_ms is None else [data.ttl_ms]
        values = {key: replaced(text, found.get) for key, text in config.items()}
        self._last |= found
        resolved = Resolved(config=values, raw=config, found=found, ttl_ms=min(ttls, default=None))
        self.redactor.add(resolved.secrets)
        self.redactor.add(secret_values(values, typed))
        return resolved

    async def order(self, order: dict[str, Any]) -> tuple[dict[str, Any], Resolved]:
        """Returns a child's first message with values in its configurations and the texts to hide, and the
        connector's own configuration with values. Raises ConfigError.
        """
        place, names = ("params", ("config",)) if order["run"] == "call" else ("spec", _CONFIGS)
        spec = dict(order[place])
        parts = {name: await self.resolve_soon(spec[name]) for name in names if name in spec}
        if not parts:
            return order, Resolved(config={}, raw={})
        found: dict[Reference, str] = {}
        for name, part in parts.items():
            spec[name] = part.config
            found |= part.found
        ttl_ms = min((p.ttl_ms for p in parts.values() if p.ttl_ms is not None), default=None)
        own = replace(next(iter(parts.values())), found=found, ttl_ms=ttl_ms)
        return {**order, place: spec, "hide": own.secrets}, own

    async def resolve_soon(self, config: Mapping[str, str]) -> Resolved:
        """`resolve` in a thread, if there is anything to ask for. Raises ConfigError."""
        if not self._providers or not any("${" in text for text in config.values()):
            return self.resolve(config)
        try:
            async with asyncio.timeout(RESOLVE_S):
                return await asyncio.to_thread(self.resolve, config)
        except TimeoutError:
            raise ConfigError(f"the config providers did not answer within {RESOLVE_S:g} s") from None

    def current(self, config: Mapping[str, str]) -> Mapping[str, str]:
        """Returns a configuration with the last known values of its references; asks no provider."""
        if not any("${" in text for text in config.values()):
            return config
        return {key: replaced(text, self._last.get) for key, text in config.items()}

    def redact(self, text: str) -> str:
        """Returns the text without secrets."""
        return self.redactor.redact(text)

    def redacted(self, value: Any) -> Any:
        """Returns a JSON value without secrets in its texts (names of keys stay)."""
        match value:
            case str():
                return self.redact(value)
            case list():
                return [self.redacted(item) for item in value]
            case dict():
                return {key: self.redacted(item) for key, item in value.items()}
            case _:
                return value

    def close(self) -> None:
        for name, provider in self._providers.items():
            try:
                provider.close()
            except Exception:
                log.exception("config provider %s could not be closed", name)

    def _ask(self, name: str, path: str, keys: set[str]) -> ConfigData:
        try:
            data = self._providers[name].get(path, frozenset(keys))
        except ConfigError:
            raise
        except Exception as e:
            raise ConfigError(f"config provider {name} failed: {type(e).__name__}: {e}") from e
        absent = sorted(keys - data.data.keys())
        if absent:
            raise ConfigError(f"{Reference(name, path, absent[0])}: config provider {name} has no such value")
        return data

    def _tell_unknown(self, provider: str, key: str) -> None:
        if provider not in self._unknown:
            self._unknown.add(provider)
            log.warning("%s: ${%s:...} is not replaced: %s has no %s", key, provider, PROVIDERS, provider)


def conceal(rows: Iterable[dict[str, Any]], resolved: Resolved, secrets: Secrets) -> None:
    """Put references back where values were checked in the rows of a validate answer, and remove secrets from
    their sentences.
    """
    typed: list[str] = []
    values: list[dict[str, Any]] = []
    for row in rows:
        definition, value = row["definition"], row["value"]
        name = value["name"]
        values.append(value)
        if definition is not None and definition["type"] == Type.PASSWORD:
            typed.append(name)
        if references_in(resolved.raw.get(name, "")) and value["value"] not in {None, HIDDEN}:
            value["value"] = resolved.raw[name]
    secrets.redactor.add(secret_values(resolved.config, typed))
    for value in values:
        value["errors"] = [secrets.redact(error) for error in value["errors"]]
