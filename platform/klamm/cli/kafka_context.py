"""The chosen context for Kafka's own command lines: the cluster of one that names none.

Kafka's parsers know no defaults, so the context's address and file stand on the command line as if they had been
written there, and standard error says so. The environment goes before a context that `--context` did not name.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Final

from klamm.cli import connect_scripts
from klamm.cli.chosen_context import chosen_name
from klamm.cli.saved_contexts import environment_name, load
from klamm_base.errors import KlammError

_BOOTSTRAP: Final = ("--bootstrap-server",)
_CONFIG: Final = ("--command-config",)
_PLACES: Final[Mapping[str, tuple[str, ...]]] = {
    "kafka-cluster": ("-b", "--bootstrap-controller", "-C"),
    "kafka-configs": ("--bootstrap-controller",),
    "kafka-consumer-groups": ("--validate-regex",),
    "kafka-features": ("--bootstrap-controller",),
    "kafka-producer-perf-test": ("--command-property", "--producer-props", "--command-config", "--producer.config"),
    "kafka-replica-verification": ("--broker-list",),
}  # fmt: skip
"""Other options that say where a command goes, or that it goes nowhere."""
_CONFIGS: Final[Mapping[str, tuple[str, ...]]] = {
    "kafka-cluster": ("-c", "--config"),
    "kafka-leader-election": ("--admin.config",),
    "kafka-console-producer": ("--producer.config",),
    "kafka-console-consumer": ("--consumer.config",),
    "kafka-consumer-perf-test": ("--consumer.config",),
    "kafka-verifiable-producer": ("--producer.config",),
    "kafka-verifiable-consumer": ("--consumer.config",),
}
"""Older names of --command-config."""
_NO_CLUSTER: Final = frozenset({"kafka-dump-log", "kafka-storage", *connect_scripts.COMMANDS})
_ONLY_HELP: Final = frozenset({"--help", "-h", "--version", "-v"})
_BEHIND: Final = frozenset({"kafka-cluster"})
"""Commands whose options belong to a sub-command."""


def with_context(ctx: Any, name: str, words: Sequence[str]) -> tuple[list[str], str | None]:
    """Return a command line with the context's cluster, and a sentence about it; as it is where it names a cluster.

    Raises KlammError for a context that is unknown, or that `--context` names and that has no bootstrap server.
    """
    if not words or name in _NO_CLUSTER or _ONLY_HELP & set(words):
        return list(words), None
    if _given(words, (*_BOOTSTRAP, *_PLACES.get(name, ()))) or _positional(name, words):
        return list(words), None
    settings, by = _settings(ctx)
    if settings is None or (address := settings.get("bootstrap_server")) is None:
        return list(words), None
    more = [_BOOTSTRAP[0], address]
    config = settings.get("command_config")
    if config and not _given(words, (*_CONFIG, *_CONFIGS.get(name, ()))):
        more += [_CONFIG[0], config]
    whole = [*words, *more] if name in _BEHIND else [*more, *words]
    return whole, f"klamm: {by}: {' '.join(more)}"


def _settings(ctx: Any) -> tuple[Mapping[str, str] | None, str]:
    name, by = chosen_name(ctx)
    variable = environment_name("bootstrap_server")
    if by != "--context" and os.environ.get(variable):
        found = {"bootstrap_server": os.environ[variable]}
        if config := os.environ.get(environment_name("command_config")):
            found["command_config"] = config
        return found, variable
    if name is None:
        return None, ""
    settings = load().get(name)
    if by == "--context" and "bootstrap_server" not in settings:
        raise KlammError(
            f"context {name!r} has no bootstrap server: `klamm context add {name} --replace …`, or give --bootstrap-server"
        )
    return settings, f"context {name!r} ({by})"


def _given(words: Sequence[str], options: Sequence[str]) -> bool:
    """Tell whether one of the options stands there; Kafka's parsers take one hyphen as well as two."""
    names = {option.lstrip("-") for option in options}
    return any(w.startswith("-") and w.lstrip("-").partition("=")[0] in names for w in words)


def _positional(name: str, words: Sequence[str]) -> bool:
    return name == "kafka-e2e-latency" and not any(w.startswith("--") for w in words)
