"""[metrics] of agent.toml, checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from klamm_agent.config.values import Values


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsSettings:
    """The settings of [metrics]. Port 0 takes any free port, which `status.json` names."""

    host: str = "127.0.0.1"
    port: int


def read_metrics(v: Values, document: dict[str, Any]) -> MetricsSettings | None:
    """Reads [metrics]; None when the file has no such table. Raises ConfigError."""
    if "metrics" not in document:
        return None
    table = v.table(document, "metrics")
    v.known(table, "metrics", ("host", "port"))
    if "port" not in table:
        raise v.error("metrics", "port", "is missing")
    return MetricsSettings(
        host=v.text(table, "metrics", "host", "127.0.0.1"),
        port=v.number(table, "metrics", "port", 0, least=0, most=65535),
    )
