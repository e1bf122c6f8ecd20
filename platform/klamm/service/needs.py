"""The folders that a server writes, by its configuration. Each configuration is read as the server reads it, so
one that cannot be used is found before it is installed.
"""

from __future__ import annotations

from pathlib import Path

from klamm.service.kinds import Kind


def written_by(kind: Kind, config: Path | None, folder: Path) -> list[Path]:
    """Returns the folders that a server with this configuration writes; relative ones are those of `folder`, in which it starts.

    Raises ConfigError for a configuration that cannot be used.
    """
    found = {
        "up": lambda: [folder / "klamm-data"],
        "broker": lambda: _broker(config),
        "connect": lambda: _worker(config),
        "mirror": lambda: _mirror(config),
        "agent": lambda: _agent(config),
        "console": lambda: _console(config),
        "registry": lambda: _registry(config),
        "lag": lambda: _lag(config),
        "rest": lambda: _rest(config),
    }[kind.name]()
    return [folder / path for path in found]


def _broker(config: Path | None) -> list[Path]:
    from klamm_base.properties import layered
    from klamm_broker.server.config import BrokerConfig

    return [Path(p) for p in BrokerConfig.load(layered(config)).log_dirs]


def _worker(config: Path | None) -> list[Path]:
    from klamm.connect.config import WorkerConfig
    from klamm_base.properties import layered

    props = layered(config)
    WorkerConfig.from_properties(props, props.source)
    return []


def _mirror(config: Path | None) -> list[Path]:
    from klamm.mirror import files

    assert config is not None, "asked for"
    files.load(config, None)
    return []


def _agent(config: Path | None) -> list[Path]:
    from klamm_agent.config.agent import AgentConfig

    assert config is not None, "asked for"
    loaded = AgentConfig.load(config)
    return [loaded.state_dir]


def _console(config: Path | None) -> list[Path]:
    from klamm.console.settings import read_settings
    from klamm_base.properties import layered

    read_settings(layered(config))
    return []


def _registry(config: Path | None) -> list[Path]:
    from klamm.registry.config import RegistryConfig
    from klamm_base.properties import layered

    RegistryConfig.from_properties(layered(config))
    return []


def _lag(config: Path | None) -> list[Path]:
    from klamm.lag.server import http_config
    from klamm.lag.settings import parse
    from klamm_base.properties import layered

    props = layered(config)
    http_config().parse(props)
    return [parse(props).history_dir]


def _rest(config: Path | None) -> list[Path]:
    from klamm.restproxy.config import ProxyConfig
    from klamm_base.properties import layered

    ProxyConfig.from_properties(layered(config))
    return []
