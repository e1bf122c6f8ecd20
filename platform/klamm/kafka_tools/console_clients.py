"""Client settings of `kafka-console-producer` and `kafka-console-consumer`, from options, files and properties."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from klamm.kafka_tools.options import Options, UsageError, say
from klamm_base.clientconfig import translate
from klamm_base.properties import load_properties


def key_values(words: Sequence[str]) -> dict[str, str]:
    """Return `key=value` words as a mapping. Raises UsageError."""
    result = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not key:
            raise UsageError(f"Invalid command line properties: {word} must be key=value")
        result[key] = value
    return result


def properties(options: Options, names: Sequence[str]) -> dict[str, str]:
    """Return the properties of the one option that was given; warns of the older names."""
    return key_values(options.all(_one_of(options, names) or names[0]))


def _one_of(options: Options, names: Sequence[str]) -> str | None:
    given = [n for n in names if options.has(n)]
    if len(given) > 1:
        raise UsageError(f"Options --{given[1]} and --{given[0]} cannot be specified together.")
    if given and given[0] != names[0]:
        say(
            f"Option --{given[0]} is deprecated and will be removed in a future version. Use --{names[0]} instead."
        )
    return given[0] if given else None


def file_and_properties(options: Options, kind: Literal["producer", "consumer"]) -> dict[str, str]:
    """Return client settings in Java's names: the file, and over it the command line."""
    name = _one_of(options, ("command-config", f"{kind}.config"))
    path = options.get(name) if name else None
    found: Mapping[str, str] = load_properties(Path(path)) if path else {}
    return {**found, **properties(options, ("command-property", f"{kind}-property"))}


def librdkafka(java: Mapping[str, str], kind: Literal["producer", "consumer"]) -> dict[str, Any]:
    """Return settings for librdkafka; warns of those without effect there."""
    translated = translate(java, kind)
    for name, why in translated.ignored:
        say(f"{name} has no effect: {why}")
    return {"log_level": 2, **translated.config}
