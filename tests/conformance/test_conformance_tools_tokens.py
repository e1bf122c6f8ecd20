"""Our kafka-delegation-tokens beside Apache's, on one broker."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.secure_broker import SecureBroker
from support.secure_kafka import jaas, property_

from klamm.kafka_tools import run as kafka_tools_of_ours

TOOL = "kafka-delegation-tokens"
CREATE = ("--create", "--max-life-time-period")


@pytest.fixture(scope="module")
def secure(apache_kafka, tmp_path_factory: pytest.TempPathFactory):
    with SecureBroker(tmp_path_factory.mktemp("tokens")) as broker:
        broker.add_user()
        yield broker


@pytest.fixture
def place(secure: SecureBroker, tmp_path: Path) -> tuple[str, ...]:
    settings = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.jaas.config": jaas("SCRAM-SHA-256"),
    }
    file = tmp_path / "ann.properties"
    file.write_text("".join(f"{name}={property_(text)}\n" for name, text in settings.items()))
    return ("--bootstrap-server", secure.sasl_bootstrap, "--command-config", str(file))


def settled(text: str) -> list[str]:
    """Leaves out what differs from token to token."""
    text = re.sub(r"\S{86}==", "<hmac>", text)
    text = re.sub(r"(tokenId : )\S+|^\S{22}(?= <hmac>)", r"\1<id>", text, flags=re.MULTILINE)
    return re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d", "<date>", text).split("\n")


def hmac_of(text: str) -> str:
    found = re.search(r"\S{86}==", text)
    assert found, text
    return found[0]


def test_a_token_from_its_creation_to_its_end(place, kafka_tools, capfd):
    def ours(*args: str) -> tuple[int, str]:
        code = kafka_tools_of_ours.main(TOOL, [*place, *args])
        return code, capfd.readouterr().out

    def theirs(*args: str) -> tuple[int, str]:
        said = kafka_tools.run(TOOL, *place, *args)
        return said.code, said.out

    hmacs = {}
    said: dict[str, list[tuple[int, list[str]]]] = {}
    for name, tool in (("ours", ours), ("theirs", theirs)):
        renewers = ("--renewer-principal", "User:bob", "--renewer-principal", "User:eve")
        created = tool(*CREATE, "-1", *renewers)
        hmacs[name] = hmac_of(created[1])
        steps = [
            created,
            tool(*CREATE, "3600000"),
            tool("--describe", "--owner-principal", "User:nobody", "--owner-principal", "User:x"),
            tool("--describe", "--owner-principal", "User:ann"),
            tool("--renew", "--renew-time-period", "-1", "--hmac", hmacs[name]),
            tool("--expire", "--expiry-time-period", "-1", "--hmac", hmacs[name]),
        ]
        for hmac in re.findall(r"\S{86}==", steps[3][1]):
            tool("--expire", "--expiry-time-period", "-1", "--hmac", hmac)
        said[name] = [(code, settled(out)) for code, out in steps]
    assert said["ours"] == said["theirs"]
    assert [code for code, _ in said["ours"]] == [0] * 6
    made = ours(*CREATE, "-1")
    assert (
        hmac_of(made[1]) in ours("--describe")[1]
    )  # Apache's tool asks for no owner here, and finds no token


@pytest.mark.parametrize(
    "args",
    [
        (),
        ("--create",),
        ("--create", "--renew", "--hmac", "AAAA"),
        ("--renew", "--hmac", "AAAA"),
        ("--renew", "--hmac", "AAAA", "--renew-time-period", "-1"),
        ("--expire", "--hmac", "AAAA", "--expiry-time-period", "-1"),
        (*CREATE, "-1", "--renewer-principal", "bob"),
        (*CREATE, "-1", "--hmac", "AAAA"),
    ],
)
def test_what_it_refuses(args, place, kafka_tools, capfd):
    code = kafka_tools_of_ours.main(TOOL, [*place, *args])
    ours = capfd.readouterr()
    theirs = kafka_tools.run(TOOL, *place, *args)
    assert (code, ours.out) == (theirs.code, theirs.out.rstrip("\n") + "\n" * bool(theirs.out.strip()))
    assert ours.err.splitlines()[0] in theirs.err
