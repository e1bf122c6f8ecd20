"""A registry whose login the broker refuses: one line with the broker's words, and it is not ready."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from support.kafka_broker import free_port
from support.secure_kafka import PLAIN

from klamm.registry.node import Node
from klamm.testing import EmbeddedBroker


@pytest.mark.usefixtures("processes")
async def test_a_refused_login_is_told_once_and_at_once(tmp_path, caplog):
    port = free_port()
    config = {
        "listeners": f"PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:{port}",
        "sasl.enabled.mechanisms": "PLAIN",
        "plain.sasl.jaas.config": f'{PLAIN} required user_ann="right";',
    }
    client = {
        "bootstrap.servers": f"127.0.0.1:{port}", "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN",
        "sasl.username": "registry", "sasl.password": "wrong-secret", "log_level": 2,
    }  # fmt: skip
    with EmbeddedBroker(tmp_path / "data", config=config):
        node = Node(
            topic="_schemas", client=client, group="g", replicas=1, level="BACKWARD", leader_eligible=True
        )
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(node.start("http://127.0.0.1:1"), 4)
    (told,) = [r.getMessage() for r in caplog.records if "Authentication failed" in r.getMessage()]
    assert "PLAIN as 'registry': Authentication failed: Invalid username or password" in told
    assert "wrong-secret" not in caplog.text
