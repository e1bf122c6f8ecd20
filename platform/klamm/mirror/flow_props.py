"""A flow's source connector as the file configures it, for commands that look at both clusters themselves."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from klamm.connect.secrets import Secrets
from klamm.mirror import files
from klamm_base.errors import ConfigError
from klamm_mirror.settings.mm2_config import SOURCE, Flow, connectors_of


def enabled_flow(path: Path, name: str, overrides: list[str] | None = None) -> Flow:
    """Returns a flow of the file that copies topics. Raises ConfigError."""
    flow = files.load(path, overrides, warn=False).flow(name)
    if not flow.enabled:
        raise ConfigError(f"{name} copies no topics: set {name}.enabled=true")
    return flow


def source_props(flow: Flow) -> Mapping[str, str]:
    """Returns the source connector's properties, with secrets in place of their names. Raises ConfigError."""
    return Secrets.from_properties(flow.worker).resolve(flow.connectors[SOURCE]).config


def resolved(flow: Flow) -> dict[str, Mapping[str, str]]:
    """Returns the properties of the connectors that the flow runs, with secrets. Raises ConfigError."""
    secrets = Secrets.from_properties(flow.worker)
    return {name: secrets.resolve(config).config for name, config in connectors_of(flow).items()}
