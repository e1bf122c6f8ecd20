"""Start and stop of the process: ready line, signals, draining, what a stop leaves on the disk."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack

import psutil
import pytest
from support.broker import new_topic, wait_until
from support.kafka_broker import free_port
from support.klamm import gone
from support.raw import RawClient, batch, fetch_request, produce_request, request_frame

from klamm.testing import BrokerFailed, EmbeddedBroker
from klamm_broker.server.doors import ACCEPT_PAUSE_S
from klamm_kafka.wire.messages.fetch import FetchRequest
from klamm_kafka.wire.messages.metadata import MetadataRequest

pytestmark = pytest.mark.usefixtures("processes")


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_signals_stop_cleanly(tmp_path, name):
    broker = EmbeddedBroker(tmp_path / "data").start()
    process = psutil.Process(broker.pid)
    process.send_signal(getattr(signal, name))
    assert broker.stop() == 0
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()
    assert "Traceback" not in broker.log_text


def test_stop_answers_parked_fetches_and_takes_no_new_requests(tmp_path):
    broker = EmbeddedBroker(tmp_path / "data").start()
    topic = new_topic(broker)
    with RawClient(broker.port) as client:
        client.send(fetch_request(topic, max_wait_ms=600_000), 11)
        with RawClient(broker.port) as other:
            other.request(MetadataRequest(topics=[]), 12)  # so that the fetch has been read
        assert broker.stop() == 0  # which does not wait for the ten minutes of the poll
        assert client.receive(FetchRequest, 11)[1].responses[0].partitions[0].error_code == 0
        client.wait_closed()


def test_stop_does_not_wait_for_a_peer_that_does_not_read(tmp_path):
    broker = EmbeddedBroker(tmp_path / "data").start()
    topic = new_topic(broker)
    with RawClient(broker.port, receive_buffer=4096) as client:
        for _ in range(12):
            client.request(produce_request(topic, batch(bytes(900_000))), 9)
        client.sock.sendall(request_frame(fetch_request(topic), 11) * 3)
        wait_until(lambda: client.sock.recv(1, socket.MSG_PEEK), "the answer begins")
        assert broker.stop() == 0


def test_output_is_one_ready_line(tmp_path):
    command = [
        sys.executable,
        "-m",
        "klamm_broker.server",
        "listeners=PLAINTEXT://127.0.0.1:0",
        f"log.dirs={tmp_path}/d",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        line = process.stdout.readline()
        host, _, port = line.removeprefix("ready broker=").strip().rpartition(":")
        with RawClient(int(port)) as client:
            advertised = client.request(MetadataRequest(topics=[]), 12).brokers[0]
        assert (host, advertised.host, advertised.port) == ("127.0.0.1", "127.0.0.1", int(port))
        process.terminate()
        assert process.stdout.read() == ""
        assert process.wait(60) == 0


def test_localhost_serves_every_address_of_it(tmp_path):
    port = free_port()
    command = [
        sys.executable,
        "-m",
        "klamm_broker.server",
        f"listeners=PLAINTEXT://localhost:{port}",
        f"log.dirs={tmp_path}/d",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout.readline() == f"ready broker=127.0.0.1:{port}\n"
        for family, _, _, _, address in socket.getaddrinfo("localhost", port, type=socket.SOCK_STREAM):
            with socket.socket(family, socket.SOCK_STREAM) as sock:
                sock.connect(address)
        process.terminate()
        process.wait(60)


def test_bad_configuration_is_a_sentence(tmp_path):
    with pytest.raises(
        BrokerFailed, match=r"exit code 1\)(.|\n)*no listener of that name in listeners"
    ) as caught:
        EmbeddedBroker(tmp_path / "data", config={"advertised.listeners": "SSL://h:1"}).start()
    assert "Traceback" not in str(caught.value)


def test_clean_restart_keeps_records_and_kill_recovers_them(tmp_path):
    with EmbeddedBroker(tmp_path / "data") as broker:
        topic = new_topic(broker)
        for round_number, end in enumerate((broker.stop, broker.kill, broker.stop)):
            with RawClient(broker.port) as client:
                answer = client.request(produce_request(topic, batch(b"x" * 100)), 9)
                assert answer.responses[0].partition_responses[0].base_offset == round_number
            end()
            broker.start()
        with RawClient(broker.port) as client:
            got = client.request(fetch_request(topic), 11).responses[0].partitions[0]
            assert (got.high_watermark, len(got.records)) == (3, 3 * len(batch(b"x" * 100)))


def test_finished_segments_reach_the_disk_in_the_background(tmp_path):
    """After a kill, recovery begins at the segments that were not forced to disk, so it need not read all."""
    config = {
        "log.segment.bytes": "1048576",
        "log.flush.scheduler.interval.ms": "50",
        "log.flush.offset.checkpoint.interval.ms": "50",
        "log.flush.interval.ms": "9223372036854775807",
    }
    with EmbeddedBroker(tmp_path / "data", config=config) as broker:
        topic = new_topic(broker)
        with RawClient(broker.port) as client:
            for _ in range(4):
                client.request(produce_request(topic, batch(bytes(900_000))), 9)
        checkpoint = tmp_path / "data" / "recovery-point-offset-checkpoint"

        def recovery_point():
            lines = checkpoint.read_text().splitlines() if checkpoint.exists() else []
            return next((int(line.split()[2]) for line in lines if line.startswith(f"{topic} 0 ")), 0)

        wait_until(lambda: recovery_point() >= 3, "the recovery point of three finished segments")


def test_running_out_of_file_descriptors_stops_accepting_for_a_while_only(tmp_path):
    with EmbeddedBroker(tmp_path / "data") as broker, RawClient(broker.port) as before:
        before.request(MetadataRequest(topics=[]), 12)
        process = psutil.Process(broker.pid)
        soft, hard = process.rlimit(psutil.RLIMIT_NOFILE)
        assert soft == min(hard, 1 << 20), "the broker takes what it may have"
        process.rlimit(psutil.RLIMIT_NOFILE, (process.num_fds() + 2, hard))
        clients = [RawClient(broker.port) for _ in range(6)]
        since = time.monotonic()
        wait_until(lambda: "cannot accept" in broker.log_text, "a log line")
        before.request(MetadataRequest(topics=[]), 12)
        said = broker.log_text.count("cannot accept")
        assert said <= 3 + (time.monotonic() - since) / ACCEPT_PAUSE_S, "it does not spin"
        process.rlimit(psutil.RLIMIT_NOFILE, (soft, hard))
        for client in clients:
            with client:
                assert client.request(MetadataRequest(topics=[]), 12).brokers


def test_idle_memory(tmp_path):
    broker = EmbeddedBroker(tmp_path / "data", config={"offsets.topic.num.partitions": "50"})
    with broker:
        with RawClient(broker.port) as client:
            client.request(MetadataRequest(topics=[]), 4)
        assert psutil.Process(broker.pid).memory_info().rss < 50_000_000


def test_an_idle_connection_costs_little_memory(tmp_path):
    with EmbeddedBroker(tmp_path / "data") as broker, ExitStack() as stack:
        clients = [stack.enter_context(RawClient(broker.port)) for _ in range(400)]
        clients[0].request(MetadataRequest(topics=[]), 12)
        before = psutil.Process(broker.pid).memory_info().rss
        for client in clients:
            client.request(MetadataRequest(topics=[]), 12)
        assert (psutil.Process(broker.pid).memory_info().rss - before) / len(clients) < 40_000


def test_embedded_broker_ends_with_the_process_that_started_it(tmp_path):
    script = (
        "import sys, os; from pathlib import Path; from klamm.testing import EmbeddedBroker\n"
        "b = EmbeddedBroker(Path(sys.argv[1])).start(); print(b.pid, flush=True); os.kill(os.getpid(), 9)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "data")], capture_output=True, text=True, check=False
    )
    pid = int(done.stdout)
    assert gone(pid)
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()
