"""The OpenAPI document holds: schemathesis asks a worker whatever the document allows, and much that it does not."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.connect_worker import WorkerProcess, worker_properties

# What is left out, and why.
EXCLUDED = (
    ("--exclude-path", "/events"),  # an answer without end
    ("--exclude-operation-id", "install_package"),  # would ask an index for packages of random names
)
# A body that fits its schema may still be no valid configuration; nobody has to log in here.
NOT_CHECKED = "positive_data_acceptance,ignored_auth"


@pytest.fixture(scope="module")
def worker(bootstrap: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerProcess]:
    directory = tmp_path_factory.mktemp("contract")
    running = WorkerProcess(worker_properties(bootstrap, f"contract-{uuid.uuid4().hex[:8]}"), directory)
    running.wait_ready()
    yield running
    running.end()


def schemathesis(worker: WorkerProcess, directory: Path, *options: str) -> str:
    """Run it from outside, as a client of ours would."""
    command = [
        sys.executable, "-c", "from schemathesis.cli import schemathesis; schemathesis()", "run",
        f"http://127.0.0.1:{worker.port}/openapi.json", "--checks", "all", "--exclude-checks", NOT_CHECKED,
        "--continue-on-failure", "--warnings", "off", "--seed", "1",
        *(word for pair in EXCLUDED for word in pair), *options,
    ]  # fmt: skip
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        cwd=directory,
        env=os.environ | {"NO_COLOR": "1"},
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr
    assert "Traceback" not in worker.log
    assert worker.get("/health")["status"] == "healthy"
    return done.stdout


def test_answers_fit_the_document(worker: WorkerProcess, tmp_path: Path) -> None:
    assert "No issues found" in schemathesis(worker, tmp_path, "--phases", "fuzzing", "--max-examples", "1")


def test_no_request_breaks_the_document(worker: WorkerProcess, tmp_path: Path) -> None:
    phases = ("--phases", "examples,coverage,fuzzing")
    assert "No issues found" in schemathesis(worker, tmp_path, *phases, "--max-examples", "30")
