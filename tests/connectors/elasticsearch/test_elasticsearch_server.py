"""The server that the other tests stand on: it keeps its data over a kill, and it has users and HTTPS when told so."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support.elasticsearch import call, documents, require

from klamm.testing.elasticsearch import ElasticsearchFailed, ElasticsearchServer, find
from klamm.testing.elasticsearch_setup import Credentials


@pytest.mark.usefixtures("elasticsearch")
@pytest.mark.timeout(700)
def test_acknowledged_documents_survive_a_kill() -> None:
    with ElasticsearchServer(require()) as server:
        status, _ = call(server, "PUT", "kept/_doc/1", {"a": 1})
        assert status == 201
        url = server.url
        server.kill()
        assert not server.running
        server.start()
        assert server.url == url
        assert documents(server, "kept") == {"1": {"a": 1}}


@pytest.mark.usefixtures("elasticsearch")
@pytest.mark.timeout(300)
def test_credentials_are_asked_for() -> None:
    with ElasticsearchServer(require(), credentials=Credentials("ci", "one two")) as server:
        assert call(server, "PUT", "x/_doc/1", {"a": 1})[0] == 201
        server.credentials = Credentials("ci", "other")
        assert call(server, "GET", "x/_doc/1")[0] == 401
        server.credentials = None
        assert call(server, "GET", "x/_doc/1")[0] == 401


@pytest.mark.usefixtures("elasticsearch")
def test_a_server_that_cannot_start_says_why_and_leaves_nothing() -> None:
    server = ElasticsearchServer(require(), settings={"no.such.setting": "1"})
    with (
        pytest.raises(ElasticsearchFailed, match=r"did not start \(exit code \d+\):[^$]*no\.such\.setting"),
        server,
    ):
        pass
    assert not server.running
    assert not server.directory.exists()


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    assert str(tmp_path) in str(find(tmp_path))


@pytest.mark.usefixtures("processes")
def test_a_tethered_command_ends_with_its_owner() -> None:
    owner = subprocess.Popen(
        [sys.executable, "-m", "klamm.testing.tether", sys.executable, "-c", "import time; time.sleep(60)"],
        stdin=subprocess.PIPE,
    )
    assert owner.stdin is not None
    owner.stdin.close()
    assert owner.wait(60) == 128 + 15


@pytest.mark.usefixtures("processes")
def test_a_tethered_command_gives_its_exit_code_while_its_owner_lives() -> None:
    command = [sys.executable, "-m", "klamm.testing.tether", sys.executable, "-c", "raise SystemExit(3)"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as owner:
        assert owner.wait(60) == 3
