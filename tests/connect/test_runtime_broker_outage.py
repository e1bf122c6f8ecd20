"""A broker that goes away and comes back: the worker's log tells each once, and counts what its clients said meanwhile."""

from __future__ import annotations

import logging
import re
import time
from pathlib import Path

import pytest
from support.connect_worker import STRING, WorkerProcess, wait_for, worker_properties

from klamm.connect.broker_outages import BrokerOutages, connect
from klamm.testing import EmbeddedBroker

OUTAGE_S = 8
BACK = "is back after"
GONE = (
    "FAIL [p#1] [thrd:b1:9092/1]: b1:9092/1: Disconnected: connection reset by peer (after 9ms in state UP)"
)
REFUSED = (
    "b1:9092/bootstrap: Connect to ipv4#10.0.0.1:9092 failed: Connection refused (after 0ms in state CONNECT)"
)
ADVICE = (
    "FAIL [p#1] [thrd:b1:9092/1]: b1:9092/1: Disconnected while requesting ApiVersion: might be caused by incorrect "
    "security.protocol configuration (connecting to a SSL listener?) or broker version is < 0.10"
)
COORDINATOR = (
    "FAIL [p#1] [thrd:GroupCoordinator]: GroupCoordinator: Disconnected: connection closed by peer: receive 0 after "
    "POLLIN (after 127ms in state UP)"
)
DOWN = "ERROR [p#1] 1/1 brokers are down"


class Hand:
    """Outages of brokers whose reachability, and whose time, the test sets."""

    def __init__(self) -> None:
        self.why: str | None = "Connection refused"
        self.now_s = 100.0
        self.outages = BrokerOutages(try_connect=lambda _: self.why, clock=lambda: self.now_s, pause_s=0)
        self.outages._watching = True  # the test looks itself


def test_an_outage_is_told_once_and_its_messages_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    hand = Hand()
    assert not hand.outages.take(DOWN), "nothing is known of any broker yet"
    assert hand.outages.take(DOWN, "b1:9092")
    assert all(hand.outages.take(each) for each in (GONE, REFUSED, REFUSED, DOWN))
    assert hand.outages.look()
    assert hand.outages.look()
    hand.now_s, hand.why = 108.0, None
    assert not hand.outages.look()
    assert [r.getMessage() for r in caplog.records] == [
        "broker b1:9092 cannot be reached: Connection refused; its clients keep trying",
        "broker b1:9092 is back after 8.0 s; 5 messages of its clients were not logged",
    ]
    assert hand.outages.take(REFUSED), "a straggler"
    assert not hand.outages.look()
    hand.now_s, hand.outages._watching = 120.0, True
    assert hand.outages.take(REFUSED)
    hand.why = "No route to host"
    assert hand.outages.look(), "the next outage"
    assert "No route to host" in caplog.records[-1].getMessage()


def test_a_connection_that_ended_is_no_outage(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    hand = Hand()
    hand.why = None
    assert hand.outages.take(GONE)
    assert not hand.outages.look()
    assert [(r.levelname, r.getMessage()) for r in caplog.records] == [
        ("INFO", f"broker b1:9092 can be reached, although a client reported: {GONE}")
    ]


@pytest.mark.parametrize("messages", [[ADVICE], [GONE, ADVICE, GONE]])
def test_advice_about_a_setting_is_a_warning_when_the_broker_can_be_reached(
    messages: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    hand = Hand()
    hand.why = None
    assert all(hand.outages.take(each) for each in messages)
    assert not hand.outages.look()
    assert [(r.levelname, r.getMessage()) for r in caplog.records] == [
        ("WARNING", f"broker b1:9092 can be reached, although a client reported: {ADVICE}")
    ]


def test_a_watch_that_fails_gives_its_messages_back_and_the_next_message_starts_another(
    caplog: pytest.LogCaptureFixture,
) -> None:
    asked: list[str] = []

    def fails_once(address: str) -> str | None:
        asked.append(address)
        if len(asked) == 1:
            raise RuntimeError("no thread for a resolver")
        return None

    outages = BrokerOutages(try_connect=fails_once, pause_s=0)
    assert outages.take(REFUSED)
    wait_for(lambda: not outages._watching, lambda: caplog.text)
    wait_for(lambda: REFUSED in [r.getMessage() for r in caplog.records], lambda: caplog.text)
    assert "no thread for a resolver" in caplog.text
    assert outages.take(GONE)
    wait_for(lambda: len(asked) == 2 and not outages._watching, lambda: caplog.text)


def test_a_broker_without_clients_is_forgotten(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    hand = Hand()
    assert hand.outages.take(REFUSED)
    assert hand.outages.look()
    hand.now_s += 301
    assert not hand.outages.look()
    assert "watching ends" in caplog.records[-1].getMessage()


@pytest.mark.parametrize(
    "text",
    [
        "FAIL [p#1] [thrd:ssl://b1:9093/1]: ssl://b1:9093/1: SSL handshake failed: certificate verify failed",
        "FAIL [p#1] [thrd:b1:9092/1]: b1:9092/1: SASL authentication error: Authentication failed",
        "CONFWARN [p#1] something about a setting",
    ],
)
def test_other_messages_go_to_the_log_as_they_are(text: str) -> None:
    assert not Hand().outages.take(text)


@pytest.mark.parametrize("address", ["b1.example:9092", "[::1]:9092", "10.0.0.1:9092"])
@pytest.mark.parametrize("lead", ["", "sasl_ssl://", "GroupCoordinator: "])
def test_addresses_are_found(address: str, lead: str, caplog: pytest.LogCaptureFixture) -> None:
    hand = Hand()
    assert hand.outages.take(
        f"[thrd:x]: {lead}{address}/3: Connect to ipv4#1.2.3.4:5 failed: Connection refused"
    )
    hand.outages.look()
    assert f"broker {address} cannot be reached" in caplog.text


def test_a_message_without_an_address_counts_for_the_outage_under_way(
    caplog: pytest.LogCaptureFixture,
) -> None:
    hand = Hand()
    assert hand.outages.take(REFUSED)
    assert all(hand.outages.take(COORDINATOR, servers) for servers in ("", "b2:9092"))
    assert hand.outages.look()
    hand.why = None
    assert not hand.outages.look()
    assert [r.getMessage() for r in caplog.records] == [
        "broker b1:9092 cannot be reached: Connection refused; its clients keep trying",
        "broker b1:9092 is back after 0.0 s; 3 messages of its clients were not logged",
    ]
    assert hand.outages.take(COORDINATOR), "a straggler"
    assert not hand.outages.look()


@pytest.mark.parametrize("known", ["taken", "expected", "mentioned"])
@pytest.mark.parametrize("name", ["GroupCoordinator", "GroupCoordinator/1", "TxnCoordinator"])
def test_a_message_without_an_address_suspects_the_known_brokers(
    known: str, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    hand = Hand()
    hand.why = None
    message = COORDINATOR.replace("GroupCoordinator:", f"{name}:")
    assert not hand.outages.take(message), "nothing is known of any broker yet"
    if known == "expected":
        hand.outages.expect("b1:9092")
    elif known == "mentioned":
        hand.outages.expect("b2:9092")
        assert hand.outages.take(GONE)
        assert not hand.outages.look()
        hand.now_s, hand.outages._watching = hand.now_s + 10, True  # the test still looks itself
        caplog.clear()
    assert hand.outages.take(message, "b1:9092" if known == "taken" else "")
    assert not hand.outages.look()
    assert [(r.levelname, r.getMessage()) for r in caplog.records] == [
        ("INFO", f"broker b1:9092 can be reached, although a client reported: {message}")
    ]


@pytest.mark.parametrize("message", [DOWN, COORDINATOR])
def test_servers_may_have_a_protocol(message: str, caplog: pytest.LogCaptureFixture) -> None:
    hand = Hand()
    assert hand.outages.take(message, "SASL_SSL://b1:9092, plaintext://[::1]:9092,b3:9092,")
    assert hand.outages.look()
    assert [r.getMessage().split(" cannot")[0] for r in caplog.records] == [
        "broker b1:9092", "broker [::1]:9092", "broker b3:9092",
    ]  # fmt: skip


def test_a_port_where_nobody_listens_cannot_be_reached() -> None:
    assert connect("127.0.0.1:1") == "Connection refused"


@pytest.mark.parametrize(
    "address", ["kafka..local:9092", f"{'k' * 64}.local:9092", "127.0.0.1:99999", "kafka"]
)
def test_an_address_that_is_none_cannot_be_reached(address: str) -> None:
    assert connect(address)


@pytest.mark.usefixtures("processes")
def test_an_outage_of_the_broker_takes_a_handful_of_lines(tmp_path: Path) -> None:
    source, sink = tmp_path / "in.txt", tmp_path / "out.txt"
    source.write_text("one\n")
    patient = {
        "session.timeout.ms": "60000",
        "heartbeat.interval.ms": "3000",
        "offset.flush.interval.ms": "60000",
    }
    connectors = {
        "src": {"connector.class": "FileStreamSource", "file": str(source), "topic": "t"},
        "snk": {"connector.class": "FileStreamSink", "file": str(sink), "topics": "t"},
    }
    with EmbeddedBroker(tmp_path / "broker") as broker:
        worker = WorkerProcess(
            worker_properties(broker.bootstrap, "outage", **patient), tmp_path
        ).wait_ready()
        try:
            for name, config in connectors.items():
                body = {"name": name, "config": config | {"value.converter": STRING}}
                assert worker.request("POST", "/connectors", body).status == 201
            wait_for(lambda: sink.exists() and sink.read_text() == "one\n", lambda: worker.log)
            before = len(worker.log)
            broker.kill()
            time.sleep(OUTAGE_S)  # the outage itself
            broker.start()
            wait_for(lambda: BACK in worker.log[before:], lambda: worker.log)
            with source.open("a") as file:
                file.write("two\n")
            wait_for(lambda: sink.read_text().endswith("two\n"), lambda: worker.log)
            said = worker.log[before:].splitlines()
        finally:
            worker.stop()
    about_broker = [line for line in said if f"broker {broker.bootstrap} " in line]
    assert [("cannot be reached" in line, BACK in line) for line in about_broker] == [
        (True, False),
        (False, True),
    ]
    found = re.search(r"is back after ([\d.]+) s; (\d+) messages", about_broker[1])
    assert found is not None
    assert float(found[1]) >= OUTAGE_S - 1
    assert int(found[2]) > 10
    assert len(said) <= 7, "\n".join(said)
    assert not [line for line in said if "rdkafka" in line]
