"""`klamm connector` over HTTPS with credentials: progress, dry-run, events; `klamm connect password` and `token`."""

from __future__ import annotations

import json
import subprocess
import uuid
from pathlib import Path

import pytest
from support.certificates import Authority
from support.connect_worker import WorkerProcess, worker_properties
from support.klamm import KLAMM, klamm

from klamm.web.passwords import hash_password, token_digest, verify


@pytest.fixture(scope="module")
def secured(broker, tmp_path_factory):
    """Yields a worker with HTTPS and users, and the words that reach it."""
    directory = tmp_path_factory.mktemp("cli")
    authority = Authority.make(directory)
    users = directory / "users.toml"
    users.write_text(f'[users.ann]\npassword = "{hash_password("pw")}"\nrole = "admin"\n')
    more = {
        "listeners": "https://127.0.0.1:0",
        "ssl.keystore.location": str(authority.issue("worker")),
        "rest.auth.file": str(users),
    }
    worker = WorkerProcess(
        worker_properties(broker.bootstrap, f"cli-{uuid.uuid4().hex[:8]}", **more), directory
    )
    worker.wait_ready()
    yield worker, ["--url", f"https://127.0.0.1:{worker.port}", "--cacert", str(authority.ca)]
    worker.end()


def test_credentials_are_needed_and_taken(secured):
    _, at = secured
    refused = klamm("connector", "list", *at)
    assert (refused.returncode, refused.stderr) == (
        1,
        "klamm: User cannot access the resource. Give --user or --token.\n",
    )
    assert klamm("connector", "list", *at, "--user", "ann:pw").returncode == 0
    assert klamm("connector", "list", *at, "--user", "ann", KLAMM_REST_PASSWORD="pw").returncode == 0
    both = klamm("connector", "list", *at, "--user", "ann:pw", "--token", "x")
    assert (both.returncode, both.stderr) == (2, "klamm: --user and --token: give one of them\n")
    unknown = klamm("connector", "list", *at[:2], "--user", "ann:pw")
    assert unknown.returncode == 1
    assert "CERTIFICATE_VERIFY_FAILED" in unknown.stderr


def test_progress_events_and_a_dry_run(secured, tmp_path: Path):
    worker, at = secured
    at = [*at, "--user", "ann:pw"]
    following = subprocess.Popen(
        [str(KLAMM), "connector", "events", "--connector", "cli", "-o", "json", *at],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        (tmp_path / "in.txt").write_text("one\n")
        settings = {"connector.class": "FileStreamSource", "file": str(tmp_path / "in.txt"), "topic": "cli"}
        hoist = {"transforms": "h", "transforms.h.type": "HoistField$Value", "transforms.h.field": "line"}
        config = tmp_path / "c.json"
        config.write_text(json.dumps({"name": "cli", "config": settings | hoist}))
        samples = tmp_path / "samples.json"
        samples.write_text(json.dumps([{"value": "hi"}]))
        tried = klamm("connector", "dry-run", "cli", "-r", str(samples), "-f", str(config), *at)
        assert tried.returncode == 0, tried.stderr
        assert tried.stdout.startswith("record 0: delivered\n  h (HoistField$Value): ")
        assert klamm("connector", "create", "-f", str(config), *at).returncode == 0
        assert following.stdout is not None
        kinds = [json.loads(following.stdout.readline())["kind"] for _ in range(2)]
        assert kinds[0] == "connector.created"
        shown = klamm("connector", "progress", "cli", "-o", "json", *at)
        assert json.loads(shown.stdout)["name"] == "cli"
        assert klamm("connector", "progress", "cli", *at).stdout.split()[:3] == ["TASK", "STATE", "RECORDS"]
    finally:
        following.kill()
        following.communicate()
    assert "Traceback" not in worker.log


@pytest.mark.usefixtures("processes")
def test_passwords_and_tokens_are_made():
    made = klamm("connect", "password", stdin="pw\npw\n").stdout
    assert verify("pw", made.rpartition('password = "')[2].rstrip('"\n'))
    lines = klamm("connect", "token").stdout.splitlines()
    assert lines[1] == f'sha256 = "{token_digest(lines[0].rpartition(" ")[2])}"'
