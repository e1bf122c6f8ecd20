from __future__ import annotations

import pytest
from agent.harness import AgentProcess
from support.broker import broker

__all__ = ["broker"]


@pytest.fixture
def agent(tmp_path):
    """Makes agents, each in a folder of its own; those that run at the end are killed."""
    agents = []

    def make(bootstrap, topic, **options):
        agents.append(AgentProcess(tmp_path / f"agent{len(agents)}", bootstrap, topic, **options))
        return agents[-1]

    yield make
    for each in agents:
        each.close()
