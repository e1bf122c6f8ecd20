"""Reads mm2.properties from the disk, with the keys that the installed mirror connectors define."""

from __future__ import annotations

import logging
from pathlib import Path

from klamm.connect.secrets import Secrets
from klamm.connect.validation import definitions
from klamm_base.errors import ConfigError
from klamm_base.properties import Properties, from_overrides, load_properties
from klamm_mirror.loops import Route, refuse_loops
from klamm_mirror.mm2_config import SOURCE, Flow, MirrorConfig, connectors_of, parse
from klamm_mirror.plugin import CONNECTORS
from klamm_mirror.source.connector import MirrorSourceConnector

log = logging.getLogger(__name__)


def load(path: Path, overrides: list[str] | None = None, *, warn: bool = True) -> MirrorConfig:
    """Read a file, and log which of its settings have no effect. Raises ConfigError."""
    props = load_properties(path).over(from_overrides(overrides or []))
    keys = {name for connector in CONNECTORS for name in connector.config().names}
    config = parse(props, keys | set(definitions.SOURCE.names))
    for warning in config.warnings if warn else ():
        log.warning("%s", warning)
    for flow in config.flows:
        _check(flow, props)
    refuse_loops([_route(flow) for flow in config.enabled])
    return config


def _route(flow: Flow) -> Route:
    resolved = Secrets.from_properties(flow.worker).resolve(flow.connectors[SOURCE]).config
    return Route.of(MirrorSourceConnector.config().parse(resolved))


def _check(flow: Flow, props: Properties) -> None:
    """Checks the connectors' configurations before anything starts. Raises ConfigError."""
    classes = {connector.__name__: connector for connector in CONNECTORS}
    secrets = Secrets.from_properties(flow.worker)
    for name, config in connectors_of(flow).items():
        for value in classes[name].validate(secrets.resolve(config).config):
            if value.errors:
                key = value.name
                written = next((k for k in (f"{flow.name}.{key}", key) if k in props), key)
                said = secrets.redact(value.errors[0])
                raise ConfigError(f"{flow.name}: {said}", key=key, source=props.source(written))
