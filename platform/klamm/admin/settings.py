"""Client settings of the administrative commands: `--bootstrap-server`, `--command-config`, `--timeout`.

The file sets TLS and SASL, in the names of Java's clients. These commands use our asyncio client.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from klamm.admin.client import TIMEOUT_S, Admin
from klamm_base.errors import ConfigError
from klamm_base.rdkafkasecurity import NO_EFFECT
from klamm_base.security import ClientSecurity

_USED: Final = frozenset({"bootstrap.servers", "client.id", "default.api.timeout.ms", "security.protocol"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """`unused`: keys of the file that have no effect here."""

    bootstrap: str
    client_id: str
    timeout_s: float
    security: ClientSecurity = field(default_factory=ClientSecurity)
    unused: tuple[str, ...] = ()

    def open(self) -> Admin:
        """Return a client that connects when it is first asked."""
        return Admin(
            self.bootstrap, timeout_s=self.timeout_s, client_id=self.client_id, security=self.security
        )


def client_settings(
    bootstrap: str, command_config: Path | None, *, timeout_s: float | None = None, client_id: str = "klamm"
) -> ClientSettings:
    """Return the settings of a command line and its file; the command line wins.

    Raises ConfigError naming file and key.
    """
    props = _load(command_config) if command_config is not None else {}
    source = str(command_config) if command_config is not None else None
    try:
        security = ClientSecurity.from_properties(props)
    except ConfigError as e:
        raise ConfigError(str(e), key=e.key, source=source) from None
    if timeout_s is None:
        timeout_s = _timeout(props.get("default.api.timeout.ms"), source)
    return ClientSettings(
        bootstrap=bootstrap,
        client_id=props.get("client.id", client_id),
        timeout_s=timeout_s,
        security=security,
        unused=tuple(sorted(k for k in props if not _is_used(k, security))),
    )


def _is_used(key: str, security: ClientSecurity) -> bool:
    """Return whether a key has an effect. A key of TLS or SASL has one where the protocol in use is TLS or SASL."""
    if key.startswith("ssl."):
        return security.tls is not None and (key not in NO_EFFECT or key == "ssl.enabled.protocols")
    if key.startswith("sasl."):
        return security.sasl is not None and key not in NO_EFFECT
    return key in _USED


def _timeout(text: str | None, source: str | None) -> float:
    if text is None:
        return TIMEOUT_S
    if not text.strip().isdigit():
        raise ConfigError(
            f"Invalid value {text} for configuration default.api.timeout.ms: Not a number of type INT",
            key="default.api.timeout.ms",
            source=source,
        )
    return int(text) / 1000


def _load(path: Path) -> Mapping[str, str]:
    from klamm_base.properties import load_properties

    return dict(load_properties(path))
