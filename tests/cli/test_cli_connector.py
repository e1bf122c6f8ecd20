"""`klamm connector` against a real worker, and the demonstration from start to end."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from support.broker import wait_until
from support.klamm import Server, klamm


@pytest.fixture(scope="module")
def rest(processes, tmp_path_factory):
    data = tmp_path_factory.mktemp("up")
    with Server(
        "up", "--data-dir", str(data), "--broker-port", "0", "--rest-port", "0", "--metrics-port", "0"
    ) as server:
        yield server.ready["rest"]


def test_a_connector_from_json_to_deletion(rest, tmp_path):
    (tmp_path / "in.txt").write_text("one\ntwo\n")
    document = {
        "name": "cli/source",  # a slash must survive the path
        "config": {
            "connector.class": "FileStreamSource", "tasks.max": "1", "file": str(tmp_path / "in.txt"), "topic": "cli",
        },
    }  # fmt: skip
    (tmp_path / "c.json").write_text(json.dumps(document))
    at = ["--url", rest]
    assert klamm("connector", "validate", "-f", str(tmp_path / "c.json"), *at).stdout == "no errors\n"
    (tmp_path / "alone.json").write_text(json.dumps(document["config"]))
    (tmp_path / "named.json").write_text(json.dumps(document["config"] | {"name": "a"}))
    alone = ["connector", "validate", "-f", str(tmp_path / "alone.json"), *at]
    assert klamm(*alone, "cli/source").stdout == "no errors\n"
    other = klamm("connector", "validate", "-f", str(tmp_path / "named.json"), "b", *at)
    assert (other.returncode, other.stderr) == (
        2,
        f"klamm: {tmp_path / 'named.json'}: name is 'a', not 'b'\n",
    )
    nameless = klamm(*alone)
    assert nameless.returncode == 2
    assert "give a NAME, or a file that holds one" in nameless.stderr
    assert klamm("connector", "create", "-f", str(tmp_path / "c.json"), *at).stdout == "created cli/source\n"

    def runs():
        status = klamm("connector", "status", "cli/source", "-o", "json", *at)
        tasks = json.loads(status.stdout)["tasks"] if status.returncode == 0 else []
        return (
            tasks and tasks[0]["state"] == "RUNNING" and (tasks[0].get("progress") or {}).get("records") == 2
        )

    wait_until(runs, "both lines acknowledged", timeout_s=60)
    (row,) = json.loads(klamm("connector", "list", "-o", "json", *at).stdout)
    assert (row["name"], row["type"], row["state"], row["tasks"]) == (
        "cli/source",
        "source",
        "RUNNING",
        ["RUNNING"],
    )
    assert json.loads(klamm("connector", "config", "cli/source", *at).stdout)["topic"] == "cli"
    assert klamm("connector", "delete", "cli/source", *at).returncode == 0
    absent = klamm("connector", "status", "cli/source", *at)
    assert absent.returncode == 1
    assert "cli/source" in absent.stderr


def test_a_bad_configuration_is_the_workers_sentence(rest):
    result = klamm("connector", "create", "x", "-c", "connector.class=FileStreamSource", "--url", rest)
    assert result.returncode == 1
    assert 'Missing required configuration "topic"' in result.stderr


@pytest.mark.usefixtures("processes")
def test_the_demonstration_proves_itself():
    for _ in range(2):  # twice in a row
        run = subprocess.run(
            [sys.executable, "-m", "klamm.demo", "--seconds", "2", "--rate", "2000"],
            capture_output=True,
            text=True,
            timeout=110,
            check=False,
        )
        assert run.returncode == 0, run.stdout + run.stderr
        assert "nothing was lost: 4,000 lines" in run.stdout


def test_a_loss_would_be_seen(tmp_path):
    from klamm.demo.proof import Proof, _file

    for name, text in (("a", "1\n2\n3\n"), ("b", "1\n3\n2\n"), ("c", "1\n2\n3\n")):
        (tmp_path / name).write_text(text)
    a, b, c = (_file(tmp_path / name) for name in "abc")
    assert Proof(a, a, c).complete
    assert not Proof(a, a, b).complete  # as many lines, in another order
