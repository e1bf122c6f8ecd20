"""The syslog input against real senders: util-linux's logger, Python's SysLogHandler, rsyslog; and against bad ones."""

from __future__ import annotations

import dataclasses
import json
import logging
import logging.handlers
import shutil
import socket
import ssl
import subprocess
import time
from pathlib import Path

import pytest
from agent.harness import AgentProcess
from support.broker import new_topic, wait_until
from support.certificates import Authority

from klamm.testing import EmbeddedBroker
from klamm.testing.topics import TopicReader
from klamm_agent.config.readers import SyslogSettings
from klamm_agent.inputs.syslog import SyslogReader
from klamm_agent.syslog.addresses import Address
from klamm_base.errors import ConfigError

LOGGER = shutil.which("logger")
RSYSLOGD = shutil.which("rsyslogd") or shutil.which("/usr/sbin/rsyslogd")


class Receiver:
    """A reader on free ports, and the events that came."""

    def __init__(self, *listen: str, parse: bool = True, **settings) -> None:
        addresses = tuple(map(Address.parse, listen))
        self.reader = SyslogReader(SyslogSettings(listen=addresses, **settings), parse=parse)
        self.events = []

    @property
    def ports(self) -> list[int]:
        return [int(url.rpartition(":")[2]) for url in self.reader.status()["listen"]]

    def poll(self):
        for events, _ in self.reader.poll(time.monotonic()):
            n = len(events.values)
            rows = zip(
                events.values,
                events.times or [0] * n,
                events.fields or [{}] * n,
                [events.path] * n,
                strict=True,
            )
            self.events += rows
        return self.events

    def wait(self, count: int):
        wait_until(lambda: len(self.poll()) >= count, f"{count} messages, there are {self.events}")
        return self.events

    def texts(self, count: int):
        return [e[0] for e in self.wait(count)]


@pytest.fixture
def receive():
    made = []

    def make(*listen, **settings):
        made.append(Receiver(*listen, **settings))
        return made[-1]

    yield make
    for receiver in made:
        receiver.reader.close()


needs_logger = pytest.mark.skipif(
    LOGGER is None, reason="logger is not installed (Debian: apt-get install bsdutils)"
)


@pytest.mark.usefixtures("processes")
@needs_logger
@pytest.mark.parametrize("options", [["-d"], ["-T"], ["-T", "--octet-count"]], ids=" ".join)
@pytest.mark.parametrize("form", ["--rfc3164", "--rfc5424"])
def test_logger(receive, options, form):
    r = receive("udp://127.0.0.1:0" if "-d" in options else "tcp://127.0.0.1:0", zone=None)
    before = time.time()
    subprocess.run(
        [LOGGER, "-n", "127.0.0.1", "-P", str(r.ports[0]), *options, form, "-t", "shop", "--id=77", "-p", "local0.err", "Größe: 7"],
        check=True,
    )  # fmt: skip
    text, at, fields, path = r.wait(1)[0]
    assert text.decode() == "Größe: 7"
    assert before - 2 < at < time.time() + 2
    syslog = fields["log"]["syslog"]
    assert (syslog["appname"], syslog["procid"], syslog["priority"]) == ("shop", "77", 16 * 8 + 3)
    assert syslog["hostname"] == fields["host"]["name"]
    assert fields["log"]["level"] == "error"
    assert fields["log"]["source"]["address"].startswith("127.0.0.1:")
    assert path == f"syslog://{'udp' if '-d' in options else 'tcp'}:{r.ports[0]}"
    if form == "--rfc5424":
        assert "timeQuality" in syslog["structured_data"]


@pytest.mark.usefixtures("processes")
@needs_logger
def test_logger_on_a_local_socket(receive, tmp_path):
    path = tmp_path / "log.sock"
    r = receive(f"unix://{path}")
    subprocess.run([LOGGER, "-u", str(path), "-t", "cron", "local"], check=True)
    text, _, fields, where = r.wait(1)[0]
    assert (text, where) == (b"local", f"syslog://unix:{path}")
    assert fields["process"]["name"] == "cron"
    assert "source" not in fields["log"]
    r.reader.close()
    assert not path.exists()


def test_a_local_socket_of_a_dead_process_is_replaced_and_one_in_use_is_not(receive, tmp_path):
    path = tmp_path / "log.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as dead:
        dead.bind(str(path))
    receive(f"unix://{path}")
    with pytest.raises(ConfigError, match="Address already in use"):
        receive(f"unix://{path}")


@pytest.mark.parametrize("kind", ["udp", "tcp", "unix"])
def test_pythons_handler(receive, tmp_path, kind):
    path = str(tmp_path / "log.sock")
    r = receive(f"unix://{path}" if kind == "unix" else f"{kind}://127.0.0.1:0")
    handler = logging.handlers.SysLogHandler(
        address=path if kind == "unix" else ("127.0.0.1", r.ports[0]),
        socktype=socket.SOCK_STREAM if kind == "tcp" else socket.SOCK_DGRAM,
        facility="local7",
    )
    logger = logging.getLogger(f"syslog.{kind}")
    logger.propagate = False
    logger.addHandler(handler)
    try:
        logger.warning("one")
        try:
            raise ValueError("two\nlines")
        except ValueError:
            logger.exception("failed")
    finally:
        logger.removeHandler(handler)
        handler.close()
    first, second = r.wait(2)
    assert first[0] == b"one"
    assert first[2]["log"]["level"] == "warning"
    assert second[0].startswith(b"failed\nTraceback")
    assert second[0].endswith(b"ValueError: two\nlines")


@pytest.mark.usefixtures("rsyslog")
@pytest.mark.skipif(
    RSYSLOGD is None or LOGGER is None,
    reason="rsyslogd or logger is not installed (Debian: apt-get install rsyslog bsdutils)",
)
@pytest.mark.parametrize(
    "target", ['protocol="udp"', 'protocol="tcp"', 'protocol="tcp" TCP_Framing="octet-counted"']
)
@pytest.mark.parametrize(
    "template",
    ["RSYSLOG_TraditionalForwardFormat", "RSYSLOG_ForwardFormat", "RSYSLOG_SyslogProtocol23Format"],
)
def test_rsyslog_forwards(receive, tmp_path, target, template):
    r = receive("udp://127.0.0.1:0" if "udp" in target else "tcp://127.0.0.1:0")
    source = tmp_path / "in.sock"
    (tmp_path / "rsyslog.conf").write_text(
        'module(load="imuxsock" SysSock.Use="off")\n'
        f'input(type="imuxsock" Socket="{source}" RateLimit.Interval="0")\n'
        f'action(type="omfwd" target="127.0.0.1" port="{r.ports[0]}" {target} template="{template}")\n'
    )
    process = subprocess.Popen(
        [RSYSLOGD, "-n", "-f", str(tmp_path / "rsyslog.conf"), "-i", str(tmp_path / "pid")],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        wait_until(source.exists, "rsyslog's socket")
        for i in range(20):
            subprocess.run(
                [LOGGER, "-u", str(source), "-t", "shop", "--id=77", "-p", "user.crit", f"message {i}: x"],
                check=True,
            )
        found = r.wait(20)
    finally:
        process.terminate()
        process.wait(60)
    assert [e[0] for e in found] == [b"message %d: x" % i for i in range(20)]
    for _, at, fields, _ in found:
        assert abs(at - time.time()) < 120
        assert fields["log"]["syslog"]["procid"] == "77"
        assert fields["process"] == {"name": "shop", "pid": 77}
        assert fields["log"]["level"] == "critical"
        assert fields["host"]["name"]


def test_tls_with_and_without_a_clients_certificate(receive, tmp_path):
    authority = Authority.make(tmp_path)
    server = authority.issue("localhost")
    r = receive("tls://127.0.0.1:0", tls_certificate=server)
    context = ssl.create_default_context(cafile=str(authority.ca))
    with (
        socket.create_connection(("127.0.0.1", r.ports[0])) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as tls,
    ):
        text = b"x" * 40_000
        for i in range(5):
            message = b"<14>1 - h a - - - %d%b" % (i, text)
            tls.sendall(b"%d %b" % (len(message), message))
        assert r.texts(5) == [b"%d%b" % (i, text) for i in range(5)]
    with socket.create_connection(("127.0.0.1", r.ports[0])) as plain:
        plain.sendall(b"<13>not TLS\n")
        wait_until(lambda: r.reader.status()["connections_failed"] == 1, "the plain connection to be refused")
    strict = receive("tls://127.0.0.1:0", tls_certificate=server, tls_client_ca=authority.ca)
    with socket.create_connection(("127.0.0.1", strict.ports[0])) as plain:
        try:
            with context.wrap_socket(plain, server_hostname="localhost") as tls:
                tls.sendall(b"<13>who am I\n")
                assert tls.recv(1) == b""
        except OSError:
            pass  # TLS 1.3 tells the client when it has already sent
    wait_until(lambda: strict.reader.status()["connections_failed"] == 1, "the nameless client to be refused")
    assert strict.poll() == []


def test_many_connections_are_bounded_and_the_others_go_on(receive):
    r = receive("tcp://127.0.0.1:0", max_connections=3)
    held = [socket.create_connection(("127.0.0.1", r.ports[0])) for _ in range(3)]
    wait_until(lambda: r.reader.status()["connections"] == 3, "three connections")
    with socket.create_connection(("127.0.0.1", r.ports[0])) as fourth:
        fourth.settimeout(60)
        assert fourth.recv(1) == b""
    held[0].sendall(b"<13>one\n<13>no end")
    held.pop(0).close()
    assert r.texts(2) == [b"one", b"no end"], "what has no end is a message when the connection ends"
    wait_until(lambda: r.reader.status()["connections"] == 2, "room")
    with socket.create_connection(("127.0.0.1", r.ports[0])) as next_one:
        next_one.sendall(b"<13>three\n")
        assert r.texts(3)[2] == b"three"
    assert r.reader.status()["connections_refused"] == 1
    for s in held:
        s.close()


def test_idle_connections_are_closed_when_asked(receive):
    r = receive("tcp://127.0.0.1:0", idle_timeout=0.2)

    def closed() -> bool:
        with socket.create_connection(("127.0.0.1", r.ports[0])) as quiet:
            quiet.settimeout(60)
            try:
                quiet.sendall(b"<13>part")
                assert quiet.recv(1) == b""
            except ConnectionError:  # it was idle for too long before it said anything
                return False
        return True

    wait_until(closed, "a connection that is closed behind what it said")
    assert r.texts(1) == [b"part"]


def test_a_sender_waits_while_nobody_takes_and_nothing_is_lost(receive):
    r = receive("tcp://127.0.0.1:0", queue_bytes=65_536, parse=False)
    count, text = 20_000, b"y" * 400
    with socket.create_connection(("127.0.0.1", r.ports[0])) as sender:
        # The kernel may keep 6 MB for the receiver, and as much for a sender that has not said how much
        sender.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65_536)
        sender.setblocking(False)
        data = b"".join(b"<13>%d %b\n" % (i, text) for i in range(count))
        sent, deadline = 0, time.monotonic() + 60
        while time.monotonic() < deadline:  # until nothing more is taken
            try:
                sent += sender.send(data[sent : sent + 65_536])
            except BlockingIOError:
                if r.reader.status()["bytes"] >= 65_536:
                    break
        assert sent < len(data), "the sender should have to wait"
        sender.setblocking(True)
        received = 0
        while sent < len(data):
            sent += sender.send(data[sent : sent + 65_536])
            received = len(r.poll())
    assert [e[0].split(b">")[1].split()[0] for e in r.wait(count)] == [b"%d" % i for i in range(count)]
    assert received <= count


def test_datagrams_that_the_kernel_drops_are_counted(receive):
    r = receive("udp://127.0.0.1:0", queue_bytes=65_536, receive_buffer_bytes=65_536, parse=False)
    count = 3000
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        for i in range(count):
            sender.sendto(b"<13>%d %b" % (i, b"z" * 500), ("127.0.0.1", r.ports[0]))
    lost = []

    def accounted():
        r.poll()
        lost.extend(r.reader.lost())
        return len(r.events) + sum(d.lines for _, d in lost) == count

    wait_until(accounted, "every datagram to have come or to be counted")
    assert lost, "the buffers are too small for them all"
    path, dropped = lost[0]
    assert path == f"syslog://udp://127.0.0.1:{r.ports[0]}"
    assert dropped.end - dropped.start == dropped.lines
    assert r.reader.status()["datagrams_dropped"] == sum(d.lines for _, d in lost)


def test_an_address_in_use_is_an_error(receive):
    r = receive("tcp://127.0.0.1:0")
    with pytest.raises(
        ConfigError, match=rf"cannot listen on tcp://127\.0\.0\.1:{r.ports[0]}: Address already in use"
    ):
        receive(f"tcp://127.0.0.1:{r.ports[0]}")


@needs_logger
def test_an_agent_receives_and_delivers_what_had_arrived_when_it_is_stopped(tmp_path, broker):
    topic = new_topic(broker)
    a = AgentProcess(tmp_path / "agent", broker.bootstrap, topic)
    path = a.folder / "s.sock"
    a.config.write_text(
        f'bootstrap_servers = "{broker.bootstrap}"\nstate_dir = "state"\n'
        f'[[inputs]]\ntype = "syslog"\nlisten = ["unix://{path}", "udp://127.0.0.1:0"]\ntopic = "{topic}"\n'
    )
    try:
        assert a.start() == "ready agent files=0\n"
        for i in range(5):
            subprocess.run([LOGGER, "-u", str(path), "-t", "shop", f"message {i}"], check=True)
        assert a.stop() == 0
    finally:
        a.close()
    with TopicReader(broker.bootstrap, topic) as reader:
        reader.wait_for(5)
        values = [m.value() for m in reader.seen]
    assert [v.rpartition(b"shop: ")[2] for v in values] == [b"message %d" % i for i in range(5)]
    status = json.loads((a.state / "status.json").read_text())
    assert status["streams"][0]["messages"] == 5
    assert not Path(path).exists()


@pytest.mark.usefixtures("processes")
@pytest.mark.parametrize("when", ["broker_away", "always"])
def test_a_spool_keeps_syslog_over_a_broker_that_is_away_and_a_kill(tmp_path, when):
    """Lines that the status calls spooled survive `kill -9` and arrive when the broker is back: syslog cannot be read again."""
    broker = EmbeddedBroker(tmp_path / "broker").start()
    topic, count = new_topic(broker), 20_000
    a = AgentProcess(tmp_path / "agent", broker.bootstrap, topic)
    path = a.folder / "s.sock"
    a.config.write_text(
        f'bootstrap_servers = "{broker.bootstrap}"\nstate_dir = "state"\n[spool]\nwhen = "{when}"\n'
        f'[[inputs]]\ntype = "syslog"\nlisten = ["unix://{path}"]\ntopic = "{topic}"\n'
    )
    try:
        a.start()
        broker.stop()
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.connect(str(path))
            for i in range(count):
                sender.send(b"<14>%d" % i)
        wait_until(
            lambda: a.status().get("spool_records") == count,
            f"the spool: {a.status()}",
            timeout_s=60,
        )
        wait_until(
            lambda: a.status()["waiting_for"] == "broker", "the status to say why nothing is acknowledged"
        )
        a.kill()
        broker.start()
        a.start()
        with TopicReader(broker.bootstrap, topic) as reader:
            reader.wait_for(count)
            wait_until(lambda: a.status().get("spool_records") == 0, "the spool to be empty")
            reader.read()
            assert [m.value() for m in reader.seen] == [b"<14>%d" % i for i in range(count)]
        assert a.stop() == 0
    finally:
        a.close()
        broker.stop()


def test_one_round_of_many_connections_does_not_go_beyond_the_queue(receive):
    receiver = receive("tcp://127.0.0.1:0", parse=False, queue_bytes=65_536)
    senders = [socket.create_connection(("127.0.0.1", receiver.ports[0])) for _ in range(20)]
    try:
        wait_until(lambda: receiver.reader.status()["connections"] == 20, "connections")
        line = b"x" * 999 + b"\n"
        for sender in senders:
            sender.sendall(line * 200)
        listener = receiver.reader._listener
        # The queue counts more than the bytes of its messages, so it may be full before as many were read
        wait_until(lambda: listener._size >= 65_536, "a full queue")
        # From now on: before, a connection could be idle that has still to send
        listener._limits = dataclasses.replace(listener._limits, idle=0.1)
        time.sleep(0.3)  # longer than that: what they sent is read all the same
        assert receiver.reader.status()["bytes"] <= 65_536 + 2 * 256 * 1024
        assert len(receiver.wait(20 * 200)) == 20 * 200
    finally:
        for sender in senders:
            sender.close()
