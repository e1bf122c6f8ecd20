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
