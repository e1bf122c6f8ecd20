"""Addresses as users write them: `bootstrap.servers`, and hosts to listen on."""

from __future__ import annotations

from typing import Final

from klamm_base.configdef import invalid

EVERY_HOST: Final = frozenset({"", "0.0.0.0", "::"})  # noqa: S104 - compared, not bound
"""Hosts of listeners that are every interface, and that no client can connect to."""
_PORT_MAX = 65535


def parse_addresses(text: str) -> list[tuple[str, int]]:
    """Returns the pairs of `host:port,host:port`, IPv6 without its brackets. Raises ConfigError for `bootstrap.servers`."""
    result = []
    for item in text.split(","):
        host, colon, port = item.strip().rpartition(":")
        number = int(port) if port.isascii() and port.isdigit() and len(port) <= len(str(_PORT_MAX)) else 0
        if not colon or host.split() != [host] or not 0 < number <= _PORT_MAX:
            why = f"must look like host:port, with a port from 1 to {_PORT_MAX}"
            raise invalid("bootstrap.servers", repr(item.strip()), why)
        result.append((host.strip("[]"), number))
    return result
