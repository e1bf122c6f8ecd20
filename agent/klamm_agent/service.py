"""`klamm agent start`: an agent and its metrics, and a new agent at each reload.

A reload reads and checks the whole configuration first. An error in it is logged, and the old configuration stays. Otherwise the
agent ends as if it was stopped, and the next agent goes on where it was, under the same lock: positions stay, and what was not
acknowledged in time is read again.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from klamm_agent.agent import Agent
from klamm_agent.config.agent import AgentConfig
from klamm_agent.inputs.streams import Kept
from klamm_agent.metrics import Metrics
from klamm_agent.stages import patience
from klamm_agent.state.registry import StateDir
from klamm_base.errors import ConfigError, KlammError
from klamm_base.hangup import Terminal
from klamm_base.service_manager import service_manager

log = logging.getLogger(__name__)


class Service:
    """The agent's process. Raises KlammError when it cannot begin; signal handlers may call `stop` and `hang_up`."""

    def __init__(self, path: Path, stats_interval: float = 30.0) -> None:
        self._path, self._stats_interval = path, stats_interval
        patience.enable()
        self._config = AgentConfig.load(path)
        self._terminal = Terminal()
        self._stopping = self._asked = False
        self._started, self._reloads, self._error = time.time(), 0, ""
        self._metrics: Metrics | None = None
        self._state = StateDir(self._config.state_dir)
        try:
            self._agent = self._begin(self._config)
        except BaseException:
            self._state.close()
            raise

    def stop(self) -> None:
        """Ends `run`."""
        self._stopping = True
        service_manager().stopping()
        self._agent.stop()

    def hang_up(self) -> None:
        """Reloads; or ends, when the terminal that started the agent is gone."""
        if self._terminal.gone:
            self.stop()
        else:
            self._asked = True

    def run(self, ready: Callable[[int], None]) -> bool:
        """Runs until stopped; returns whether everything was delivered. `ready` gets the number of files, again after each reload."""
        try:
            self._serve_metrics(self._config)
            while True:
                delivered = self._agent.run(ready, self._next)
                if self._stopping or not self._agent.replaced:
                    return delivered
                self._replace()
        finally:
            if self._metrics is not None:
                self._metrics.close()
            self._state.close()

    def _begin(self, config: AgentConfig, kept: Kept | None = None) -> Agent:
        if config.nice is not None:
            _be_nice(config.nice)
        return Agent(config, self._stats_interval, state=self._state, about=self._about, kept=kept)

    def _about(self) -> dict[str, Any]:
        """Returns what the status document says of the process."""
        return {
            "config": str(self._path.absolute()),
            "started": self._started,
            "reloads": self._reloads,
            "reload_error": self._error,
            "metrics_port": self._metrics.port if self._metrics is not None else None,
        }

    def _next(self) -> AgentConfig | None:
        """Returns a new configuration to take over, if a reload was asked for; the agent calls this in each turn."""
        manager = service_manager()
        manager.alive()
        if not self._asked:
            return None
        self._asked = False
        manager.reloading()
        try:
            config = AgentConfig.load(self._path)
            if config.state_dir != self._config.state_dir:
                raise ConfigError(
                    "state_dir cannot be changed by a reload: start the agent again", source=str(self._path)
                )
        except KlammError as e:
            self._error = str(e)
            log.error("not reloaded, the old configuration stays: %s", e)  # noqa: TRY400 - it says all
            manager.ready(f"not reloaded: {e}")
            return None
        self._waiting = config
        log.info("reloading %s", self._path)
        return config

    def _replace(self) -> None:
        config, kept = self._waiting, self._agent.kept
        try:
            self._serve_metrics(config)
            self._agent = self._begin(config, kept)
        except KlammError as e:
            self._error = str(e)
            log.error("the new configuration cannot be used, going on with the old one: %s", e)  # noqa: TRY400
            self._serve_metrics(self._config)
            self._agent = self._begin(self._config, kept)
        else:
            self._config, self._error = config, ""
            self._reloads += 1
        for _, _, reader in kept:  # left over from the old configuration, after an error
            reader.close()
        if self._stopping:  # a signal came meanwhile
            self._agent.stop()

    def _serve_metrics(self, config: AgentConfig) -> None:
        if self._metrics is not None:
            if self._metrics.settings == config.metrics:
                return
            self._metrics.close()
            self._metrics = None
        if config.metrics is not None:
            self._metrics = Metrics(config.metrics, lambda: self._agent.status)


def _be_nice(nice: int) -> None:
    try:
        os.setpriority(os.PRIO_PROCESS, 0, nice)
    except OSError as e:
        log.warning("[agent] nice = %d has no effect: %s", nice, e.strerror)
