"""Reads mm2.properties from the disk, with the keys that the installed mirror connectors define."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from klamm.connect.config import WORKER_CONFIG
from klamm.connect.secrets import Secrets
from klamm.connect.validation import definitions
from klamm.mirror.plugin_check import Errors, errors_in_child, errors_of
from klamm_base.configdef import ConfigValue
from klamm_base.errors import ConfigError
from klamm_base.properties import Properties, from_overrides, load_properties
from klamm_mirror.plugin import CONNECTORS
from klamm_mirror.provenance.config import ORIGIN
from klamm_mirror.provenance.loops import Route, other_ways, refuse_loops
from klamm_mirror.settings.mm2_config import SOURCE, Flow, MirrorConfig, connectors_of, parse
from klamm_mirror.settings.plugins import without_plugins
from klamm_mirror.source.connector import MirrorSourceConnector

log = logging.getLogger(__name__)


def load(
    path: Path, overrides: list[str] | None = None, *, warn: bool = True, plugins: bool = False
) -> MirrorConfig:
    """Read a file, and log which of its settings have no effect. `plugins`: look for the classes of plugin packages that
    it names, too, which takes a process. Raises ConfigError.
    """
    props = load_properties(path).over(from_overrides(overrides or []))
    keys = {name for connector in CONNECTORS for name in connector.config().names}
    config = parse(props, keys | set(definitions.SOURCE.names), WORKER_CONFIG.names)
    for warning in config.warnings if warn else ():
        log.warning("%s", warning)
    _raise_all([each for flow in config.flows for each in _mistakes(flow, props, plugins=plugins)])
    routes = [_route(flow) for flow in config.enabled]
    refuse_loops(routes)
    return _with_other_ways(config, other_ways(routes))


def placed(error: ConfigError, flow: Flow, path: Path, overrides: list[str] | None = None) -> ConfigError:
    """Returns the error of a flow's connector with the place of its key in the file. Raises ConfigError."""
    props = load_properties(path).over(from_overrides(overrides or []))
    place = _place(error.key, flow, props) if error.key is not None else None
    return ConfigError(f"{flow.name}: {error}", key=error.key, source=place)


def _with_other_ways(config: MirrorConfig, ways: Mapping[str, Mapping[str, Sequence[str]]]) -> MirrorConfig:
    """Tells flows which records of other origins come to their target by another flow. What the file says counts more."""

    def told(flow: Flow) -> Flow:
        keys = {ORIGIN.format(alias): ",".join(topics) for alias, topics in ways.get(flow.name, {}).items()}
        return replace(flow, connectors={**flow.connectors, SOURCE: keys | dict(flow.connectors[SOURCE])})

    return replace(config, flows=tuple(told(flow) if flow.name in ways else flow for flow in config.flows))


def _route(flow: Flow) -> Route:
    resolved = Secrets.from_properties(flow.worker).resolve(flow.connectors[SOURCE]).config
    return Route.of(MirrorSourceConnector.config().parse(without_plugins(resolved)))


def _mistakes(flow: Flow, props: Properties, *, plugins: bool) -> list[ConfigError]:
    """Checks the configurations of worker and connectors before anything starts. Raises ConfigError for a secret."""
    secrets = Secrets.from_properties(flow.worker)
    worker = WORKER_CONFIG.validate(secrets.resolve(flow.worker).config)
    found = _located(_errors(worker), flow, props, secrets, prefix=f"{flow.target}.")
    configs = {name: secrets.resolve(config).config for name, config in connectors_of(flow).items()}
    for config in configs.values():
        found += _located(_errors(definitions.SOURCE.validate(config)), flow, props, secrets)
    names_plugin = any(without_plugins(config) != config for config in configs.values())
    if plugins and names_plugin:
        errors = errors_in_child(configs)
    else:  # plugin code runs in children, which validate again
        errors = errors_of({name: without_plugins(config) for name, config in configs.items()})
    return found + _located(errors, flow, props, secrets)


def _raise_all(mistakes: Sequence[ConfigError]) -> None:
    """Raises one ConfigError that names all mistakes. A line of the file that several flows or connectors use counts once."""
    first: dict[tuple[str | None, str], ConfigError] = {}
    for each in mistakes:
        first.setdefault((each.key, each.source or str(each)), each)
    if first:
        found = [*first.values()]
        raise ConfigError("; ".join(map(str, found)), key=found[0].key)


def _errors(values: Iterable[ConfigValue]) -> Errors:
    return [(value.name, error) for value in values for error in value.errors]


def _of_client(key: str, flow: Flow) -> list[str]:
    """Returns the other names in the file for a client's setting, `source.consumer.…` or `target.producer.…`."""
    side, _, rest = key.partition(".")
    alias = {"source": flow.source, "target": flow.target}.get(side)
    kind, _, name = rest.partition(".")
    if alias is None or not name:
        return []
    own = [
        f"{flow.name}.{kind}.{name}",
        f"{flow.name}.{side}.cluster.{rest}",
        f"{flow.name}.{kind}.override.{name}",
    ]
    return [*own, f"{alias}.{rest}", f"{alias}.{name}", f"{kind}.{name}", name]


def _located(
    errors: Errors, flow: Flow, props: Properties, secrets: Secrets, *, prefix: str | None = None
) -> list[ConfigError]:
    """Returns errors with their places. `prefix` begins the keys in the file; a flow's name does for connectors."""
    return [
        ConfigError(
            f"{flow.name}: {secrets.redact(error)}", key=key, source=_place(key, flow, props, prefix=prefix)
        )
        for key, error in errors
    ]


def _place(key: str, flow: Flow, props: Properties, *, prefix: str | None = None) -> str | None:
    names = [f"{prefix or f'{flow.name}.'}{key}", key, *_of_client(key, flow)]
    return props.source(next((name for name in names if name in props), key))
