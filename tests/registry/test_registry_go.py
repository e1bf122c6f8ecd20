"""Confluent's Go client and its serializers against our registry. The program is go-client/main.go, built once per session."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from support.broker import new_name
from support.registry_process import RegistryProcess

from klamm.testing import EmbeddedBroker

SOURCE = Path(__file__).with_name("go-client")
pytestmark = [pytest.mark.usefixtures("go_runtime"), pytest.mark.timeout(900)]


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns the program; skips where its modules can neither be found nor fetched."""
    go = shutil.which("go") or "go"
    modules = subprocess.run(
        [go, "mod", "download"], cwd=SOURCE, capture_output=True, text=True, timeout=400, check=False
    )
    if modules.returncode:
        pytest.skip(f"`go mod download` in {SOURCE} failed: {modules.stderr.strip()[-300:]}")
    built = tmp_path_factory.mktemp("go-client") / "client"
    command = [go, "build", "-mod=readonly", "-buildvcs=false", "-o", str(built), "."]
    built_by = subprocess.run(command, cwd=SOURCE, capture_output=True, text=True, timeout=400, check=False)
    assert built_by.returncode == 0, built_by.stderr
    return built


def test_client_and_serializers_of_go(program: Path, broker: EmbeddedBroker, tmp_path: Path) -> None:
    with RegistryProcess(broker.bootstrap, tmp_path) as registry:
        command = [str(program), registry.url, new_name()]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr + registry.log.read_text()
    found = json.loads(done.stdout)
    assert '"default":1' in found.pop("schema")
    assert found == {
        "distinct": True, "version": 1, "latest": 2, "fits": False, "refused": True, "level": "FULL", "versions": [1, 2],
        "subjects": 1, "contexts": ["."], "deleted": [1, 2], "avro": True, "json": True, "protobuf": True,
    }  # fmt: skip
