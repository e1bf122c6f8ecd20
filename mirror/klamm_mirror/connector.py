"""The common part of the three connector classes: every key of MirrorMaker 2 gets its verdict (`mm2_keys`)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from functools import cache
from typing import ClassVar

from klamm_base.configdef import ConfigValue
from klamm_mirror.settings.mm2_keys import is_of_records, rule_connector, table
from klamm_mirror.settings.plugins import add_mistakes, own_keys
from klamm_plugins.connector import SourceConnector
from klamm_plugins.original_keys import HONOURED, Ruling, Verdict


class MirrorKeys:
    """The rules of `mm2_keys` for a posted connector."""

    @property
    def names(self) -> Collection[str]:
        return {*table()["connector"], *table()["common"]}

    def rule(self, props: Mapping[str, str]) -> Iterator[tuple[str, Ruling]]:
        """Yields a ruling for each key. One that repeats a setting of its cluster counts as honoured: the ruling on that setting
        says all, and files for several clusters make such keys.
        """
        own = _defined() | own_keys(props)
        for name, value in props.items():
            side, _, rest = name.partition(".")
            kind, _, setting = rest.partition(".")
            repeats = kind != "cluster" and props.get(f"{side}.cluster.{setting}") == value
            yield name, HONOURED if repeats else rule_connector(name, value, own)


class MirrorConnector(SourceConnector):
    """A connector that refuses keys which would change its results, and warns of those without effect."""

    original_keys = MirrorKeys()
    TRANSFORMS: ClassVar[bool] = False
    """True when transforms and converters apply to its records."""

    @classmethod
    def validate(cls, props: Mapping[str, str]) -> list[ConfigValue]:
        return add_mistakes(super().validate(props), props)

    @classmethod
    def warnings(cls, props: Mapping[str, str]) -> dict[str, str]:
        """Returns a warning for each key without effect; the table has Connect's keys, too, so none is left to the worker."""
        found = {}
        for name, ruling in cls.original_keys.rule(props):
            if is_of_records(name) and not cls.TRANSFORMS:
                found[name] = (
                    f"{name} has no effect: only MirrorSourceConnector transforms and converts records"
                )
            elif ruling.verdict is Verdict.WARNED:
                found[name] = ruling.said(name, "")
        return found


@cache
def _defined() -> frozenset[str]:
    """Returns the keys of all three connectors: a file gives each of them the keys of all."""
    from klamm_mirror.checkpoint import config as checkpoint
    from klamm_mirror.heartbeat import config as heartbeat
    from klamm_mirror.source import config as source

    return frozenset(name for module in (checkpoint, heartbeat, source) for name in module.config_def().names)
