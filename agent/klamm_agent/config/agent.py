"""agent.toml: the inputs, the producer and the agent's own settings, checked.

Every error is one sentence with the file, the line and the key; an unknown key is an error.
"""

from __future__ import annotations

import socket
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from klamm_agent.config.inputs import Input, read_input
from klamm_agent.config.metrics import MetricsSettings, read_metrics
from klamm_agent.config.producer import OURS, ProducerSettings, producer_settings
from klamm_agent.config.spool import SpoolSettings, read_spool
from klamm_agent.config.values import Values, dotted
from klamm_base.addresses import parse_addresses
from klamm_base.errors import ConfigError

ANY: Final = "any"
"""The `cluster_id` that lets an agent deliver to whatever cluster answers."""
_OF_AGENT: Final = (
    "id", "scan_interval_ms", "checkpoint_interval_ms", "host_metadata", "bandwidth", "nice", "max_open_files",
    "exactly_once",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentConfig:
    """A checked agent.toml. `ignored` has (name, reason) for each setting of [producer] without an effect."""

    bootstrap_servers: str
    state_dir: Path
    inputs: tuple[Input, ...]
    producer: ProducerSettings = field(default_factory=ProducerSettings)
    cluster_id: str | None = None
    queue_bytes: int = 64 * 1024 * 1024
    agent_id: str = ""
    scan_interval: float = 1.0
    checkpoint_interval: float = 1.0
    host_metadata: bool = False
    bandwidth: int | None = None
    nice: int | None = None
    max_open_files: int = 512
    exactly_once: bool = True
    metrics: MetricsSettings | None = None
    spool: SpoolSettings | None = None
    ignored: tuple[tuple[str, str], ...] = ()

    @classmethod
    def load(cls, path: Path) -> AgentConfig:
        """Reads and checks a file. Raises ConfigError."""
        try:
            text = path.read_text(encoding="utf-8")
            document = tomllib.loads(text)
        except OSError as e:
            raise ConfigError(f"cannot be read: {e.strerror}", source=str(path)) from e
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as e:
            raise ConfigError(f"is not TOML: {e}", source=str(path)) from e
        return _agent(Values(str(path), text, path.parent), document)


def state_dir_of(path: Path) -> Path | None:
    """Returns the state directory of a file that may have errors elsewhere; None when the file does not say."""
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8")).get("state_dir")
    except (OSError, ValueError):  # bad TOML and bad UTF-8 raise ValueErrors
        return None
    return path.parent / found if isinstance(found, str) and found else None


def _agent(v: Values, document: dict[str, Any]) -> AgentConfig:
    v.known(
        document,
        "",
        (
            "bootstrap_servers", "cluster_id", "state_dir", "queue_bytes", "inputs", "producer", "agent", "spool", "metrics",
        ),
    )  # fmt: skip
    tables = document.get("inputs")
    if not isinstance(tables, list) or not tables or not all(isinstance(t, dict) for t in tables):
        raise v.error("", "inputs", "is missing: at least one [[inputs]] table with paths and topic")
    producer = v.table(document, "producer")
    agent = v.table(document, "agent")
    v.known(agent, "agent", _OF_AGENT)
    config, ignored = _producer(v, producer)
    inputs = tuple(read_input(v, t, f"inputs[{i}]") for i, t in enumerate(tables))
    if len(stdins := [i for i, found in enumerate(inputs) if found.type == "stdin"]) > 1:
        raise v.error(f"inputs[{stdins[1]}]", "type", "= 'stdin': only one input can read standard input")
    ids = [found.id for found in inputs]
    for i, given in enumerate(ids):
        if given and given in ids[:i]:
            raise v.error(f"inputs[{i}]", "id", f"= {given!r}: another input has this id")
    state_dir = v.base / v.text(document, "", "state_dir")
    return AgentConfig(
        bootstrap_servers=_servers(v, document),
        cluster_id=_cluster_id(v, document),
        state_dir=state_dir,
        spool=read_spool(v, document, state_dir),
        queue_bytes=v.number(document, "", "queue_bytes", 64 * 1024 * 1024, least=1024 * 1024),
        inputs=inputs,
        producer=config,
        ignored=ignored,
        host_metadata=v.flag(agent, "agent", "host_metadata", default=False),
        agent_id=v.text(agent, "agent", "id", socket.gethostname()),
        nice=v.number(agent, "agent", "nice", 0, least=-20, most=19) if "nice" in agent else None,
        max_open_files=v.number(agent, "agent", "max_open_files", 512, least=1, most=1_000_000),
        exactly_once=v.flag(agent, "agent", "exactly_once", default=True),
        metrics=read_metrics(v, document),
        scan_interval=v.number(agent, "agent", "scan_interval_ms", 1000, least=10) / 1000,
        checkpoint_interval=v.number(agent, "agent", "checkpoint_interval_ms", 1000, least=10, most=3_600_000)
        / 1000,
        bandwidth=v.number(agent, "agent", "bandwidth", 0, least=1024) if "bandwidth" in agent else None,
    )


def _producer(v: Values, table: dict[str, Any]) -> tuple[ProducerSettings, tuple[tuple[str, str], ...]]:
    props = {}
    for name, value in dotted(table):
        if name in OURS:
            raise v.error("producer", name, f"cannot be set: {OURS[name]}")
        if isinstance(value, (dict, list)):
            raise v.error("producer", name, "must be a text, a number, true or false")
        props[name] = str(value).lower() if isinstance(value, bool) else str(value)
    try:
        settings, ignored = producer_settings(props)
    except ConfigError as e:
        line = v.line("producer", e.key or "")
        raise ConfigError(str(e), key=e.key, source=f"{v.name}:{line}" if line else v.name) from None
    return settings, tuple(ignored)


def _cluster_id(v: Values, document: dict[str, Any]) -> str | None:
    if "cluster_id" not in document:
        return None
    text = document["cluster_id"]
    if not isinstance(text, str) or not text or any(c.isspace() for c in text):
        raise v.error("", "cluster_id", f'= {text!r}: the id of a cluster is expected, or "any"')
    if text.lower() == ANY != text:
        raise v.error("", "cluster_id", f'= {text!r}: did you mean "any"?')
    return text


def _servers(v: Values, document: dict[str, Any]) -> str:
    text = v.text(document, "", "bootstrap_servers")
    for item in text.split(","):
        try:
            parse_addresses(item)
        except ConfigError:
            raise v.error("", "bootstrap_servers", f"= {text!r}: {item.strip()!r} is not host:port") from None
    return text
