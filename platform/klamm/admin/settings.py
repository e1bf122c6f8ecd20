"""Client settings of the administrative commands: `--bootstrap-server`, `--command-config`, `--timeout`.

The client behind these commands speaks plain TCP. A setting that asks for more is refused by name, because leaving it
out would send what should be secret in the clear, or to nobody.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from klamm.admin.client import TIMEOUT_S, Admin
from klamm_base.errors import ConfigError

_REFUSED: Final = ("sasl.", "ssl.")
_USED: Final = frozenset({"bootstrap.servers", "client.id", "default.api.timeout.ms", "security.protocol"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """`unused`: keys of the file that have no effect here."""

    bootstrap: str
    client_id: str
    timeout_s: float
    unused: tuple[str, ...] = ()

    def open(self) -> Admin:
        """A client that connects when it is first asked."""
        return Admin(self.bootstrap, timeout_s=self.timeout_s, client_id=self.client_id)


def client_settings(
    bootstrap: str, command_config: Path | None, *, timeout_s: float | None = None, client_id: str = "klamm"
) -> ClientSettings:
    """The command line wins over the file. Raises ConfigError naming file and key."""
    props = _load(command_config) if command_config is not None else {}
    source = str(command_config) if command_config is not None else None
    protocol = props.get("security.protocol", "PLAINTEXT")
    if protocol.upper() != "PLAINTEXT":
        raise ConfigError(
            f"security.protocol={protocol} cannot be used: administrative commands speak PLAINTEXT only, TLS and SASL"
            " are not there yet",
            key="security.protocol",
            source=source,
        )
    for key in props:
        if key.startswith(_REFUSED):
            raise ConfigError(
                f"{key} cannot be used: administrative commands speak PLAINTEXT only, TLS and SASL are not there yet",
                key=key,
                source=source,
            )
    if timeout_s is None:
        timeout_s = _timeout(props.get("default.api.timeout.ms"), source)
    return ClientSettings(
        bootstrap=bootstrap,
        client_id=props.get("client.id", client_id),
        timeout_s=timeout_s,
        unused=tuple(sorted(k for k in props if k not in _USED)),
    )


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
