"""The cluster that an agent delivers to: `cluster.json` keeps its id, so that no later life of the agent delivers elsewhere unasked.

`cluster_id` in agent.toml decides. Without it the agent stays with the cluster of the last time, as long as `bootstrap_servers` is what it was then.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from klamm_agent.config.agent import AgentConfig
from klamm_agent.state.registry import StateDir, StateError
from klamm_kafka.client import OneCluster

log = logging.getLogger(__name__)

ANY: Final = "any"
"""The `cluster_id` that lets an agent deliver to whatever cluster answers."""


class Home:
    """An agent's cluster. `say(about, what)` logs sparingly. Raises StateError when `cluster.json` cannot be read."""

    def __init__(self, state: StateDir, config: AgentConfig, say: Callable[[str, str], None]) -> None:
        self._state, self._servers, self._say = state, config.bootstrap_servers, say
        self._kept = state.cluster()
        before, servers = self._kept or (None, "")
        given = config.cluster_id
        if given is None and servers == self._servers:
            given = before
        self.one = OneCluster(
            None if given == ANY else given,
            before=before,
            strict=given != ANY,
            learned=lambda: self.keep(settled=False),
        )

    def keep(self, *, settled: bool) -> None:
        """Writes down which cluster the agent delivers to. `settled`: the write-ahead log has no notes of an agent before any more. While it
        has, and they are of another cluster, `cluster.json` says so: the next start must not take this cluster's word for them.
        """
        found = self.one.found
        if found is None or self._kept == (found, self._servers) or (self.one.moved and not settled):
            return
        try:
            self._state.save_cluster(found, self._servers)
            self._kept = found, self._servers
            log.info("delivering to cluster %s", found)
        except StateError as e:
            self._say("cluster", f"{e}; after a kill the agent delivers to whatever cluster answers first")
