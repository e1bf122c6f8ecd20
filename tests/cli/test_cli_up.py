"""`klamm up`: ready line, orderly stop, ports, lock, restart of what dies, nothing left behind."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import urllib.request

import psutil
import pytest
from support.broker import wait_until
from support.klamm import Server, gone, klamm, up_words

pytestmark = pytest.mark.usefixtures("processes")


def up(data_dir, *args):
    return Server(*up_words(data_dir), *args)


def children(server, word):
    """Pids below the server whose command line has the word, the fork server's children left out."""
    found = []
    for process in psutil.Process(server.process.pid).children(recursive=False):
        with contextlib.suppress(psutil.NoSuchProcess):  # it may go while we look
            if process.status() != psutil.STATUS_ZOMBIE and word in process.cmdline():
                found.append(process.pid)
    return found


def test_up_serves_and_leaves_nothing_behind(tmp_path):
    server = up(tmp_path / "data")
    pids = [p.pid for p in psutil.Process(server.process.pid).children(recursive=True)]
    assert klamm("topic", "list", "-b", server.ready["broker"]).returncode == 0
    assert klamm("connector", "list", "--url", server.ready["rest"]).returncode == 0
    assert server.stop(signal.SIGINT) == 0
    assert len(pids) >= 3
    assert all(gone(pid) for pid in pids)
    assert (tmp_path / "data/broker/.kafka_cleanshutdown").exists()


def test_lag_and_rest_proxy_run_when_asked_and_come_back(tmp_path):
    """Each is started by its switch alone, and after a kill at the address of the ready line."""
    with up(tmp_path / "data", "--lag", "--rest-proxy", "--no-console", "--no-registry") as server:
        for word, path in (("lag", "/v3/kafka"), ("rest-proxy", "/v3/clusters")):
            address = server.ready[word] + path
            assert urllib.request.urlopen(address, timeout=30).status == 200
            (pid,) = children(server, "rest" if word == "rest-proxy" else word)
            os.kill(pid, signal.SIGKILL)
            wait_until(lambda pid=pid: gone(pid), "its end")
            wait_until(lambda address=address: _answers(address), f"another {word}")
        pids = [p.pid for p in psutil.Process(server.process.pid).children(recursive=True)]
        assert server.stop(signal.SIGINT) == 0
    assert all(gone(pid) for pid in pids)


def _answers(address):
    try:
        with urllib.request.urlopen(address, timeout=30) as answer:
            return answer.status == 200
    except OSError:
        return False


def test_a_second_up_on_the_same_data_is_told_who_has_it(tmp_path):
    with up(tmp_path / "data") as first:
        port = first.ready["broker"].rpartition(":")[2]
        second = klamm("up", "--data-dir", str(tmp_path / "data"), "--broker-port", port)
        assert second.returncode == 1
        assert second.stderr.startswith(  # and not that the port is taken
            f"klamm: --data-dir {tmp_path / 'data'} is in use by another klamm up (pid {first.process.pid})"
        )


def test_a_file_is_no_data_directory(tmp_path):
    path = tmp_path / "f"
    path.touch()
    result = klamm("up", "--data-dir", str(path))
    assert (result.returncode, result.stderr) == (
        1,
        f"klamm: --data-dir {path} is a file: give a directory\n",
    )


def test_a_setting_that_cannot_be_used_ends_up_with_the_brokers_sentence_and_code(tmp_path):
    result = klamm(*up_words(tmp_path / "data"), KLAMM_NUM_PARTITIONS="many")
    assert result.returncode == 2
    assert "Invalid value many for configuration num.partitions" in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_a_port_that_was_asked_for_and_is_taken_is_named(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        result = klamm("up", "--data-dir", str(tmp_path), "--broker-port", port)
    assert result.returncode == 1
    assert f"--broker-port {port}: the port is taken" in result.stderr


def test_what_dies_is_started_again(tmp_path):
    with up(tmp_path / "data") as server:
        (broker,) = children(server, "broker")
        klamm("produce", "t", "kept", "-b", server.ready["broker"])
        os.kill(broker, signal.SIGKILL)
        wait_until(lambda: any("the broker serves again" in line for line in server.errors), "a new broker")
        assert children(server, "broker") not in ([], [broker])
        shown = klamm("consume", "t", "--from-beginning", "-e", "-b", server.ready["broker"])
        assert shown.stdout == "kept\n"
    assert any("the broker ended (signal SIGKILL)" in line for line in server.errors)


def test_what_it_started_ends_when_it_is_killed(tmp_path):
    server = up(tmp_path / "data")
    pids = [p.pid for p in psutil.Process(server.process.pid).children(recursive=True)]
    server.stop(signal.SIGKILL)
    assert all(gone(pid) for pid in pids)
