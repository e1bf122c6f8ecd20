"""The common part of the three connector classes: every key of MirrorMaker 2 gets its verdict (`mm2_keys`)."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import ClassVar

from klamm_base.configdef import ConfigValue
from klamm_base.redaction import is_secret_name
from klamm_mirror.settings.mm2_keys import Ruling, Verdict, is_of_records, rule_connector
from klamm_mirror.settings.plugins import add_mistakes, own_keys
from klamm_plugins.connector import SourceConnector

log = logging.getLogger(__name__)


class MirrorConnector(SourceConnector):
    """A connector that refuses keys which would change its results, and warns of those without effect."""

    TRANSFORMS: ClassVar[bool] = False
    """True when transforms and converters apply to its records."""

    @classmethod
    def validate(cls, props: Mapping[str, str]) -> list[ConfigValue]:
        values = add_mistakes(super().validate(props), props)
        by_name = {value.name: value for value in values}
        for name, ruling in _rulings(props):
            if ruling.verdict is Verdict.REFUSED:
                value = by_name.setdefault(name, ConfigValue(name=name))
                value.errors.append(ruling.said(name, "…" if is_secret_name(name) else props[name]))
        return list(by_name.values())

    def warn_of_keys(self, props: Mapping[str, str]) -> None:
        """Logs a warning for each key without effect."""
        for name, ruling in _rulings(props):
            if is_of_records(name) and not self.TRANSFORMS:
                log.warning(
                    "%s has no effect: only MirrorSourceConnector transforms and converts records", name
                )
            elif ruling.verdict is Verdict.WARNED:
                log.warning("%s", ruling.said(name, ""))


def _rulings(props: Mapping[str, str]) -> Iterator[tuple[str, Ruling]]:
    """Yields all keys but those that repeat a setting of their cluster, as a file for several clusters makes them."""
    own = _defined() | own_keys(props)
    for name, value in props.items():
        side, _, rest = name.partition(".")
        _, _, setting = rest.partition(".")
        if props.get(f"{side}.cluster.{setting}") != value or name.startswith(f"{side}.cluster."):
            yield name, rule_connector(name, value, own)


def _defined() -> set[str]:
    """Returns the keys of all three connectors: a file gives each of them the keys of all."""
    from klamm_mirror.checkpoint import config as checkpoint
    from klamm_mirror.heartbeat import config as heartbeat
    from klamm_mirror.source import config as source

    return {name for module in (checkpoint, heartbeat, source) for name in module.config_def().names}
