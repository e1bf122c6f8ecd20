"""Warnings about a connector's configuration: keys that change nothing, which are no errors in Kafka. Pure.

The connector itself judges its own keys in a child (`Connector.warnings`, `original_keys`). This module judges those of Connect:
of converters, transforms, predicates, topic creation and clients. What is left is a key that nobody knows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Set
from dataclasses import dataclass, field

from klamm.connect.settings.connector_keys import CONVERTERS
from klamm.connect.settings.limits import CONNECTOR_KEYS
from klamm.connect.settings.override_policy import ignored_overrides
from klamm.connect.validation import definitions, topic_creation
from klamm.connect.validation.stages import unknown_keys
from klamm_base.properties import suggestion
from klamm_base.redaction import shown_name


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A connector's own answer: its `warnings` by key, the further keys that it takes, and names to suggest."""

    warnings: Mapping[str, str] = field(default_factory=dict)
    taken: Collection[str] = ()
    names: Collection[str] = ()


def config_warnings(
    config: Mapping[str, str],
    known: Set[str],
    own: Judged,
    *,
    kind: str,
    worker: Mapping[str, str],
    worker_keys: Collection[str],
) -> list[str]:
    """Returns a sentence for each key that has no effect or that nobody knows, in the configuration's order. `known` are the keys
    of the validate answer, `kind` is source or sink, `worker_keys` are the names of a worker's settings.
    """
    ours = {*CONNECTOR_KEYS.names, *definitions.SOURCE_DEAD_LETTERS.names}
    found = {
        **dict(_converter_keys(config, known)),
        **dict(_topic_creation_keys(config, known, kind)),
        **dict(unknown_keys(config, known | {*own.taken})),
        **ignored_overrides(config, worker),
        **own.warnings,
    }
    suggested = (known | ours | {*own.names}) - config.keys()
    for name in config:
        if name in found or name in known or name in ours or name in own.taken:
            continue
        if name.startswith(topic_creation.PREFIX):
            continue  # a topic configuration
        if name in worker_keys:
            found[name] = f"{name} has no effect here: it is a setting of workers"
        else:
            found[name] = (
                f"{shown_name(name)} is a setting neither of this connector nor of Connect{suggestion(name, suggested)}"
            )
    return [found[name] for name in dict.fromkeys([*config, *found]) if name in found]


def _converter_keys(config: Mapping[str, str], known: Set[str]) -> Iterator[tuple[str, str]]:
    """Yields settings that no converter gets."""
    for converter in CONVERTERS:
        for name in config:
            if name in known or not name.startswith(f"{converter}."):
                continue
            if converter not in config:
                yield (
                    name,
                    f"{name} has no effect without {converter}: the worker's converter has the worker's settings",
                )
            else:
                unset = {k for k in known if k.startswith(f"{converter}.")} - config.keys()
                yield name, f"{name} is not a setting of this converter{suggestion(name, unset)}"


def _topic_creation_keys(config: Mapping[str, str], known: Set[str], kind: str) -> Iterator[tuple[str, str]]:
    """Yields settings of topics that no group has."""
    groups = [topic_creation.DEFAULT, *topic_creation.group_names(config)]
    for name in config:
        if name in known or not name.startswith(topic_creation.PREFIX):
            continue
        if kind == "sink":
            yield name, f"{name} has no effect: only source connectors create topics"
        elif not any(name.startswith(f"{topic_creation.PREFIX}{group}.") for group in groups):
            given = name.removeprefix(topic_creation.PREFIX).partition(".")[0]
            hint = suggestion(given, groups)
            yield name, f"{name} has no effect: {topic_creation.GROUPS} does not list {given}{hint}"
