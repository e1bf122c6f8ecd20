"""The cluster that an agent delivers to: `cluster.json` keeps its id, so that no later life of the agent delivers elsewhere unasked.

`cluster_id` in agent.toml decides. Without it the agent stays with the cluster of the last time, as long as `bootstrap_servers` names one of the addresses of then.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from klamm_agent.config.agent import ANY, AgentConfig
from klamm_agent.state.registry import StateDir, StateError
from klamm_kafka.client import OneCluster, parse_bootstrap

log = logging.getLogger(__name__)


class Home:
    """An agent's cluster. `say(about, what)` logs sparingly. Raises StateError when `cluster.json` cannot be read."""

    def __init__(self, state: StateDir, config: AgentConfig, say: Callable[[str, str], None]) -> None:
        self._state, self._servers, self._say = state, config.bootstrap_servers, say
        given = config.cluster_id
        try:
            kept = state.cluster()
        except StateError:
            if given is None:
                raise
            kept = None  # it is written anew
        if given is None and kept is not None and _same_place(kept[1], self._servers):
            given = kept[0]
        self.one = OneCluster(
            None if config.cluster_id == ANY else given, strict=config.cluster_id != ANY, learned=self.keep
        )

    def keep(self) -> None:
        """Writes down which cluster the agent delivers to, before anything goes there."""
        state, found = self._state, self.one.found
        kept = state.kept_cluster
        if found is None or (kept == (found, self._servers) and state.knows_cluster):
            return
        if kept is None:
            log.info("delivering to cluster %s", found)
        elif kept[0] != found:
            log.warning("delivering to cluster %s from now on, and no more to %s", found, kept[0])
        try:
            state.save_cluster(found, self._servers)
        except StateError as e:
            self._say(
                "cluster", f"{e}; until it can, another start delivers to whatever cluster answers first"
            )


def _same_place(one: str, other: str) -> bool:
    """Tells whether two lists of bootstrap servers have an address in common."""
    return not {*parse_bootstrap(one)}.isdisjoint(parse_bootstrap(other))
