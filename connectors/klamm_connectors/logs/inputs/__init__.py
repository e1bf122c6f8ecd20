"""Inputs that are no files: each is a `Reader`, opened by the type of its [[inputs]] table."""

from __future__ import annotations

from klamm_base.errors import ConfigError
from klamm_connectors.logs.config_inputs import Input
from klamm_connectors.logs.events import Reader


def open_reader(config: Input) -> Reader:
    """Raises KlammError when the input cannot be opened."""
    raise ConfigError(f"no input of type {config.type} is known")
