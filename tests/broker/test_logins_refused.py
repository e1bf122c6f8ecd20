"""Strangers in-process: nobody gets in where logins cannot be made, changes that would lead there are refused, no quota is theirs."""

from __future__ import annotations

import asyncio
import importlib.util
import logging

import pytest
from support.raw import request_frame
from support.secure_kafka import PLAIN

from klamm_base.errors import ConfigError
from klamm_broker.server import metering, sasl_config
from klamm_broker.server.broker import Broker
from klamm_broker.server.config import BrokerConfig
from klamm_broker.server.listener import Server
from klamm_broker.server.login import Login
from klamm_broker.server.sasl_keys import HANDLER, UNSECURED, VALIDATOR
from klamm_broker.server.scram_users import ScramUsers
from klamm_kafka.client import Connection, ConnectionLost
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntityData,
    AlterClientQuotasRequestEntryData,
    OpData,
)
from klamm_kafka.wire.messages.api_versions import ApiVersionsRequest
from klamm_kafka.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from klamm_kafka.wire.messages.metadata import MetadataRequest

JAAS = "listener.name.sasl_plaintext.oauthbearer.sasl.jaas.config"
MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"


@pytest.fixture
async def server(tmp_path):
    config = BrokerConfig.load(
        {
            "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
            "log.dirs": str(tmp_path / "data"),
            "sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER",
            "plain.sasl.jaas.config": f'{PLAIN} required user_bob="bob-secret";',
            f"oauthbearer.{HANDLER}": UNSECURED,
            f"listener.name.late.oauthbearer.{HANDLER}": VALIDATOR,
            "listener.name.late.sasl.oauthbearer.jwks.endpoint.url": "file:/none",
        }
    )
    loop = asyncio.get_running_loop()
    broker = Broker(config, loop)
    server = Server(broker, loop)
    broker.listeners = {listener.name: listener for listener in server.bind()}
    broker.open()
    server.serve()
    yield server
    server.quiesce()
    await server.drain(1)
    await broker.close()


@pytest.fixture
async def admin(server):
    async with await Connection.open("127.0.0.1", server.broker.listeners["PLAINTEXT"].port) as connection:
        yield connection


async def change(admin: Connection, values: dict[str, str]) -> tuple[int, str]:
    configs = [AlterableConfig(name=name, config_operation=0, value=value) for name, value in values.items()]
    asked = AlterConfigsResource(resource_type=4, resource_name="1", configs=configs)
    (answer,) = (await admin.request(IncrementalAlterConfigsRequest(resources=[asked]))).responses
    return answer.error_code, answer.error_message or ""


def port_of(server: Server) -> int:
    port: int = server.broker.listeners["SASL_PLAINTEXT"].port
    return port


async def gets_in(server: Server) -> bool:
    """Returns whether a stranger is answered. One that is neither answered nor sent away raises TimeoutError."""
    try:
        async with asyncio.timeout(30), await Connection.open("127.0.0.1", port_of(server)) as stranger:
            await stranger.request(MetadataRequest(topics=[]))
    except TimeoutError:
        raise
    except (ConnectionLost, OSError):
        return False
    return True


@pytest.mark.parametrize(
    "fault", [ConfigError("a wrong value", key="x"), OSError(28, "No space left on device"), ValueError("a defect")]
)  # fmt: skip
async def test_nobody_gets_in_where_the_logins_cannot_be_made(server, monkeypatch, caplog, fault):
    def broken(*_):
        raise fault

    server._logins.clear()
    monkeypatch.setattr(sasl_config, "make", broken)
    with caplog.at_level(logging.ERROR):
        assert not await gets_in(server)
    assert str(fault) in caplog.text
    assert not server.connections
    assert not server.doors.quotas._by_listener["SASL_PLAINTEXT"], "their places are free again"


async def test_nobody_gets_in_where_the_login_cannot_begin(server, monkeypatch, caplog):
    def broken(*_):
        raise ZeroDivisionError("a defect")

    monkeypatch.setattr(Login, "__init__", broken)
    assert not await gets_in(server)
    assert "a defect" in caplog.text
    assert not server.connections


@pytest.mark.parametrize("skew", ["abc", "-1", "1.5", "9" * 5000, "1_0", ""])
async def test_a_wrong_number_among_the_rules_of_tokens_is_refused(server, admin, skew):
    code, why = await change(admin, {JAAS: f'{MODULE} unsecuredValidatorAllowableClockSkewMs="{skew}";'})
    assert code == ErrorCode.INVALID_REQUEST
    assert JAAS in why
    assert "unsecuredValidatorAllowableClockSkewMs" in why
    assert (await change(admin, {JAAS: f'{MODULE} unsecuredValidatorAllowableClockSkewMs="10";'}))[0] == 0


LATE = {
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,LATE:SASL_PLAINTEXT",
    "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0,LATE://127.0.0.1:0",
}


async def test_a_listener_is_not_added_where_tokens_cannot_be_checked(server, admin, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *a: None if name == "joserfc" else find(name, *a))  # fmt: skip
    code, why = await change(admin, LATE)
    assert code == ErrorCode.INVALID_REQUEST
    assert "joserfc is not installed" in why
    assert "LATE" not in server.broker.listeners


async def test_a_listener_stays_closed_where_the_secret_of_its_logins_cannot_be_kept(
    server, admin, monkeypatch, caplog
):
    def full(_users):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(ScramUsers, "keep_secret", full)
    await change(admin, LATE)
    assert "LATE" not in server.broker.listeners
    assert "stays closed" in caplog.text
    assert "No space left" in caplog.text


async def test_strangers_are_on_nobody_s_account(server, admin, monkeypatch):
    """Their requests would be charged to ANONYMOUS, all together, and every login would be held up."""
    entity, bound = AlterClientQuotasRequestEntityData(entity_type="user", entity_name=None), OpData(key="request_percentage", value=0.001, remove=False)  # fmt: skip
    await admin.request(
        AlterClientQuotasRequest(entries=[AlterClientQuotasRequestEntryData(entity=[entity], ops=[bound])])
    )
    charged = []
    handle = metering.handle
    monkeypatch.setattr(metering, "handle", lambda *args: charged.append(args[1].listener) or handle(*args))
    ask = ApiVersionsRequest(client_software_name="x", client_software_version="1")
    frame = request_frame(ask, 3)
    for _ in range(20):
        reader, writer = await asyncio.open_connection("127.0.0.1", port_of(server))
        writer.write(frame)
        await reader.readexactly(int.from_bytes(await reader.readexactly(4)))
        writer.close()
    assert charged == []
    assert not any(connection.charge or connection._held for connection in server.connections)
