"""Addresses to listen on, as the properties of a server give them, and their TLS properties. No I/O."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from klamm_base.configdef import invalid

HTTPS_PREFIX: Final = "listeners.https."


@dataclass(frozen=True, slots=True)
class Listener:
    """An address to listen on. An empty host means every interface, port 0 any free one."""

    scheme: str
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"


def parse_listener(name: str, text: str) -> Listener:
    """Parses `http://HOST:PORT` or `https://HOST:PORT`. Raises ConfigError."""
    try:
        url = urlsplit(text.strip())
        port = url.port
    except ValueError as e:
        raise invalid(name, text, f"not a listener ({e}); write http://HOST:PORT") from None
    if url.scheme.lower() not in {"http", "https"} or port is None or url.path.strip("/") or url.query:
        raise invalid(name, text, "not a listener; write http://HOST:PORT or https://HOST:PORT")
    return Listener(url.scheme.lower(), url.hostname or "", port)


def parse_listeners(name: str, value: Any) -> list[Listener]:
    """Returns the listeners of one property. Raises ConfigError for two on one port."""
    found = [parse_listener(name, item) for item in value or ()]
    taken: dict[tuple[str, int], Listener] = {}
    for listener in found:
        place = (listener.host, listener.port)
        if listener.port and place in taken:
            raise invalid(name, value, f"{taken[place]} and {listener} are the same port")
        taken[place] = listener
    return found


def is_loopback(host: str) -> bool:
    """Returns whether a host means only this machine to itself."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def tls_properties(raw: Mapping[str, str], prefix: str = HTTPS_PREFIX) -> dict[str, str]:
    """Returns the ssl.* properties of a listener: those below `prefix` if there are any, otherwise the
    worker's, as Kafka does.
    """
    own = {k.removeprefix(prefix): v for k, v in raw.items() if k.startswith(prefix + "ssl.")}
    found = own or {k: v for k, v in raw.items() if k.startswith("ssl.")}
    if "ssl.client.authentication" in found:
        found.setdefault("ssl.client.auth", found.pop("ssl.client.authentication"))
    return found
