"""mm2.properties from the disk, with the keys that the installed mirror connectors define."""

from __future__ import annotations

import logging
from pathlib import Path

from klamm.connect import definitions
from klamm_base.properties import from_overrides, load_properties
from klamm_mirror.mm2_config import MirrorConfig, parse
from klamm_mirror.plugin import CONNECTORS

log = logging.getLogger(__name__)


def load(path: Path, overrides: list[str] | None = None, *, warn: bool = True) -> MirrorConfig:
    """Read a file and say what in it has no effect. Raises ConfigError."""
    props = load_properties(path).over(from_overrides(overrides or []))
    keys = {name for connector in CONNECTORS for name in connector.config().names}
    config = parse(props, keys | set(definitions.SOURCE.names))
    for warning in config.warnings if warn else ():
        log.warning("%s", warning)
    return config
