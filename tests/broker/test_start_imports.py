"""A broker imports what it serves with at its start, and what most brokers never use at its first use."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from klamm_broker.coordinator import records
from klamm_broker.coordinator.share import records as share_records
from klamm_broker.coordinator.streams import records as streams_records

START = """
import asyncio, sys
from klamm_broker.api import registry
from klamm_broker.server import main
from klamm_broker.server.broker import Broker
from klamm_broker.server.config import BrokerConfig

async def start(directory):
    registry.load()
    broker = Broker(BrokerConfig.load({"log.dirs": directory}), asyncio.get_running_loop())
    broker.open()
    print(*sys.modules)
    await broker.close()

asyncio.run(start(sys.argv[1]))
"""
AT_FIRST_USE = (
    "klamm_broker.coordinator.share.",
    "klamm_broker.coordinator.streams.",
    "klamm_broker.security.acl",
    "klamm_broker.security.authorizer",
    "klamm_broker.security.kerberos_names",
    "klamm_broker.security.sasl.",
    "klamm_broker.security.tokens",
    "klamm_broker.server.acl_file",
    "klamm_broker.server.client_telemetry",
    "klamm_broker.server.login",
    "klamm_broker.server.sasl_config",
    "klamm_broker.server.scram_users",
    "klamm_broker.server.share_",
    "klamm_broker.server.token_file",
    "klamm_broker.telemetry.",
)
SETTINGS = {
    "klamm_broker.coordinator.share.config",
    "klamm_broker.coordinator.streams.config",
    "klamm_broker.server.share_group_keys",
}


@pytest.mark.usefixtures("processes")
def test_start_without_what_is_not_used(tmp_path: Path):
    ran = subprocess.run(
        [sys.executable, "-c", START, str(tmp_path)], capture_output=True, text=True, check=True
    )
    loaded = set(ran.stdout.split()) - SETTINGS
    assert "klamm_broker.api.api_78_share_fetch" in loaded
    assert [name for name in sorted(loaded) if name.startswith(AT_FIRST_USE)] == []


def test_records_find_their_kind():
    """The numbers by which a kind's module is found are those that the module reads."""
    assert set(records._SHARE_KEYS) == set(share_records.ShareRecord.types)
    assert set(records._STREAMS_KEYS) == set(streams_records.StreamsRecord.types)
