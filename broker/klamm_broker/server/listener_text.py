"""The notation of an address in `listeners` and `advertised.listeners`."""

from __future__ import annotations

import re
from typing import Final

from klamm_base.configdef import invalid

_LISTENER: Final = re.compile(r"^([A-Za-z0-9_]+)://(\[[0-9A-Fa-f:.%]+\]|[^\[\]/:]*):(\d+)$")


def parse_listener(name: str, text: str) -> tuple[str, str, int]:
    """Splits `PLAINTEXT://host:port` into (listener name, host, port). Raises ConfigError for the property `name`."""
    match = _LISTENER.match(text)
    if match is None or int(match[3]) > 65535:
        raise invalid(name, text, "must look like PLAINTEXT://127.0.0.1:9092")
    return match[1].upper(), match[2].strip("[]"), int(match[3])
