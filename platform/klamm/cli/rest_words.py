"""Kafka's longest error of a Connect worker in few words. Pure."""

from __future__ import annotations

import re
from typing import Final

_UNKNOWN: Final = re.compile(
    r"Failed to find any class that implements Connector and which name matches (?P<name>[^\s,;]+)"
    r"(?P<ours>(; did you mean [^\s?]+\?|;) `klamm connector plugins` lists all)?"
    r"(, available connectors are: (?P<known>(?:PluginDesc\{[^}]*\}(?:, )?)*))?"
)
_CLASS: Final = re.compile(r"klass=class ([^\s,]+)")


def shortened(text: str) -> str:
    """Return a text in which an unknown connector is said in few words, with a suggestion."""
    return _UNKNOWN.sub(_unknown, text)


def _unknown(found: re.Match[str]) -> str:
    from klamm_base.properties import suggestion

    said = f"no connector {found['name']}"
    if found["ours"]:
        return f"{said}{found['ours']}"
    aliases = sorted({_alias(name) for name in _CLASS.findall(found["known"] or "")})
    hint = suggestion(_alias(found["name"]), aliases)
    return f"{said}{hint or ';'} `klamm connector plugins` lists all"


def _alias(name: str) -> str:
    """Return the short name that Connect takes for a class, too: `FileStreamSink`."""
    simple = re.split(r"[.:]", name)[-1]
    return simple.removesuffix("Connector") or simple
