"""Reads mm2.properties from the disk, with the keys that the installed mirror connectors define."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from klamm.connect.config import WORKER_CONFIG
from klamm.connect.secrets import Secrets
from klamm.connect.validation import definitions
from klamm_base.errors import ConfigError
from klamm_base.properties import Properties, from_overrides, load_properties
from klamm_mirror.plugin import CONNECTORS
from klamm_mirror.provenance.config import ORIGIN
from klamm_mirror.provenance.loops import Route, other_ways, refuse_loops
from klamm_mirror.settings.mm2_config import SOURCE, Flow, MirrorConfig, connectors_of, parse
from klamm_mirror.settings.plugins import without_plugins
from klamm_mirror.source.connector import MirrorSourceConnector

log = logging.getLogger(__name__)


def load(path: Path, overrides: list[str] | None = None, *, warn: bool = True) -> MirrorConfig:
    """Read a file, and log which of its settings have no effect. Raises ConfigError."""
    props = load_properties(path).over(from_overrides(overrides or []))
    keys = {name for connector in CONNECTORS for name in connector.config().names}
    config = parse(props, keys | set(definitions.SOURCE.names), WORKER_CONFIG.names)
    for warning in config.warnings if warn else ():
        log.warning("%s", warning)
    for flow in config.flows:
        _check(flow, props)
    routes = [_route(flow) for flow in config.enabled]
    refuse_loops(routes)
    return _with_other_ways(config, other_ways(routes))


def _with_other_ways(config: MirrorConfig, ways: Mapping[str, Mapping[str, Sequence[str]]]) -> MirrorConfig:
    """Tells flows which records of other origins come to their target by another flow. What the file says counts more."""

    def told(flow: Flow) -> Flow:
        keys = {ORIGIN.format(alias): ",".join(topics) for alias, topics in ways.get(flow.name, {}).items()}
        return replace(flow, connectors={**flow.connectors, SOURCE: keys | dict(flow.connectors[SOURCE])})

    return replace(config, flows=tuple(told(flow) if flow.name in ways else flow for flow in config.flows))


def _route(flow: Flow) -> Route:
    resolved = Secrets.from_properties(flow.worker).resolve(flow.connectors[SOURCE]).config
    return Route.of(MirrorSourceConnector.config().parse(without_plugins(resolved)))


def _check(flow: Flow, props: Properties) -> None:
    """Checks the connectors' configurations before anything starts. Raises ConfigError."""
    classes = {connector.__name__: connector for connector in CONNECTORS}
    secrets = Secrets.from_properties(flow.worker)
    for name, config in connectors_of(flow).items():
        # Plugin code runs in children, which validate again.
        for value in classes[name].validate(without_plugins(secrets.resolve(config).config)):
            if value.errors:
                key = value.name
                written = next((k for k in (f"{flow.name}.{key}", key) if k in props), key)
                said = secrets.redact(value.errors[0])
                raise ConfigError(f"{flow.name}: {said}", key=key, source=props.source(written))
