"""The OpenAPI document holds: schemathesis asks a proxy whatever the document allows, and much that it does not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.rest_proxy_process import RestProxyProcess

from klamm.testing import EmbeddedBroker

# A body that fits its schema may still name a topic or a schema that is not there; nobody has to log in here.
NOT_CHECKED = "positive_data_acceptance,ignored_auth"


@pytest.mark.parametrize("phases", ["fuzzing"])
def test_answers_fit_the_document(broker: EmbeddedBroker, tmp_path: Path, phases: str) -> None:
    with RestProxyProcess(broker.bootstrap, tmp_path / "proxy") as proxy:
        command = [
            sys.executable, "-c", "from schemathesis.cli import schemathesis; schemathesis()", "run",
            f"{proxy.url}/openapi.json", "--checks", "all", "--exclude-checks", NOT_CHECKED, "--continue-on-failure",
            "--warnings", "off", "--seed", "1", "--phases", phases, "--max-examples", "1",
        ]  # fmt: skip
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=300, check=False, cwd=tmp_path,
            env=os.environ | {"NO_COLOR": "1"},
        )  # fmt: skip
        assert done.returncode == 0, done.stdout[-8000:] + done.stderr
        assert "No issues found" in done.stdout
        assert "Traceback" not in proxy.log.read_text()
        assert proxy.ask("GET", "/health") == (200, {"status": "healthy"})
