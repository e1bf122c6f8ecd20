"""A standalone worker: alone, configured by files, with its source offsets in a file (Kafka: ConnectStandalone).

Its connectors come from the files of the command line and over REST; those made over REST are gone with the process.
The cluster holds the data, and nothing of the worker.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from klamm.connect.config import OFFSET_FILE, WorkerConfig
from klamm.connect.errors import RequestError
from klamm.connect.herding.group_adapter import SoleMember
from klamm.connect.service.connectors import ConnectService
from klamm.connect.settings.connector_keys import NAME
from klamm.connect.topics.config_topic import TargetState
from klamm.connect.topics.local_storage import LocalStorage
from klamm.connect.worker import Worker
from klamm.web import process
from klamm_base.errors import ConfigError
from klamm_base.properties import Properties, load_properties
from klamm_base.service_manager import say_ready

log = logging.getLogger(__name__)

# The settings that a distributed worker requires and this one does not use.
_NOT_NEEDED: Final = {
    "group.id": "standalone",
    "config.storage.topic": "config",
    "offset.storage.topic": "offset",
    "status.storage.topic": "status",
}
_STATES: Final = {
    "RUNNING": TargetState.STARTED,
    "PAUSED": TargetState.PAUSED,
    "STOPPED": TargetState.STOPPED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectorFile:
    """A connector as its file describes it."""

    path: Path
    name: str
    config: dict[str, str]
    initial_state: TargetState | None = None


def worker_config(given: Mapping[str, str], where: Callable[[str], str | None] | None = None) -> WorkerConfig:
    """Returns a standalone worker's properties, checked. Raises ConfigError."""
    origin = where or (given.source if isinstance(given, Properties) else lambda _key: None)
    if not given.get(OFFSET_FILE, "").strip():
        raise ConfigError(
            f'Missing required configuration "{OFFSET_FILE}" which has no default value: the file that keeps source '
            "offsets",
            key=OFFSET_FILE,
        )
    sources = {key: at for key in given if (at := origin(key)) is not None}
    config = WorkerConfig.from_properties(Properties({**_NOT_NEEDED, **given}, sources), origin)
    if config.transactional_leader:
        raise ConfigError(
            "exactly.once.source.support needs a distributed worker: a standalone one keeps offsets in a file",
            key="exactly.once.source.support",
        )
    return replace(config, standalone=True)


def read_connector(path: Path) -> ConnectorFile:
    """Reads a connector's file: properties, a JSON object of them, or {"name", "config", "initial_state"} as
    POST takes it.

    Raises ConfigError.
    """
    if path.suffix.lower() != ".json":
        return _connector(path, dict(load_properties(path)))
    try:
        given = json.loads(path.read_text(encoding="utf-8"))
    except OSError as e:
        raise ConfigError(f"{path}: {e.strerror}") from None
    except ValueError as e:
        raise ConfigError(f"{path} is not JSON: {e}") from None
    if not isinstance(given, dict):
        raise ConfigError(f"{path} must hold an object, not {type(given).__name__}")
    if isinstance(given.get("config"), dict):
        unknown = given.keys() - {"name", "config", "initial_state"}
        if unknown:
            raise ConfigError(f"{path}: {min(unknown)!r} is unknown; there are name, config, initial_state")
        config = _strings(path, given["config"])
        if given.get("name") is not None:
            config[NAME] = str(given["name"])
        return _connector(path, config, given.get("initial_state"))
    return _connector(path, _strings(path, given))


def _strings(path: Path, config: Mapping[str, Any]) -> dict[str, str]:
    found: dict[str, str] = {}
    for key, value in config.items():
        if isinstance(value, dict | list) or value is None:
            raise ConfigError(f"{path}: the value of {key} must be a string", key=key)
        found[key] = value if isinstance(value, str) else json.dumps(value)
    return found


def _connector(path: Path, config: dict[str, str], state: Any = None) -> ConnectorFile:
    name = config.get(NAME, "").strip()
    if not name:
        raise ConfigError(f"{path}: name is missing; it says what the connector is called", key=NAME)
    if state is not None and str(state).upper() not in _STATES:
        raise ConfigError(f"{path}: initial_state must be one of {', '.join(_STATES)}, not {state!r}")
    initial = None if state is None else _STATES[str(state).upper()]
    return ConnectorFile(path=path, name=name, config=config, initial_state=initial)


class StandaloneWorker(Worker):
    """See the module."""

    def __init__(self, config: WorkerConfig, connectors: Sequence[ConnectorFile]) -> None:
        super().__init__(config)
        self._connectors = connectors
        self._sole: SoleMember | None = None
        self._storage = LocalStorage(Path(config[OFFSET_FILE]))

    async def start(self) -> None:
        """Bind REST, wait for the broker, read the offsets, run the connectors of the files."""
        service = await self._serve(self._storage)
        runtime = service.runtime
        await runtime.start()
        self._sole = SoleMember(runtime.group_adapter)
        runtime.cluster.group = self._sole
        await self._sole.start()
        service.ready = True
        for each in self._connectors:
            await _create(service, each)

    async def wait(self) -> None:
        """Wait for ever, because no other worker can take over."""
        assert self._sole is not None, "started"
        await self._sole.ended()

    async def stop(self) -> None:
        if self._sole is not None:
            await self._sole.stop()
        await super().stop()


async def _create(service: ConnectService, each: ConnectorFile) -> None:
    try:
        await service.create(each.name, dict(each.config), each.initial_state)
    except RequestError as e:
        raise ConfigError(f"{each.path}: connector {each.name} cannot be created: {e}") from None


def main(config: WorkerConfig, connectors: Sequence[ConnectorFile]) -> int:
    """Run the worker until SIGTERM or SIGINT; returns the exit codes of a distributed worker."""

    async def run() -> None:
        worker = StandaloneWorker(config, connectors)
        await process.serve(worker, lambda: say_ready(f"ready rest={worker.printed_url}"))

    return process.main(run())
