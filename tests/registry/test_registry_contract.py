"""The OpenAPI document of the registry holds: schemathesis asks whatever it allows, and much that it does not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from support.registry_process import RegistryProcess

from klamm.testing import EmbeddedBroker

# A body that fits its schema may still hold no schema, and nobody has to log in here.
NOT_CHECKED = "positive_data_acceptance,ignored_auth,negative_data_rejection"


def test_no_request_breaks_the_document(broker: EmbeddedBroker, tmp_path: Path) -> None:
    with RegistryProcess(broker.bootstrap, tmp_path) as registry:
        assert registry.ask("POST", "/subjects/a/versions", {"schema": '"int"'})[0] == 200
        command = [
            sys.executable, "-c", "from schemathesis.cli import schemathesis; schemathesis()", "run",
            f"{registry.url}/openapi.json", "--checks", "all", "--exclude-checks", NOT_CHECKED, "--continue-on-failure",
            "--warnings", "off", "--seed", "1", "--phases", "examples,coverage,fuzzing", "--max-examples", "10",
        ]  # fmt: skip
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
            cwd=tmp_path,
            env=os.environ | {"NO_COLOR": "1"},
        )
        assert done.returncode == 0, done.stdout[-8000:] + done.stderr
        assert "Traceback" not in registry.log.read_text()
        assert registry.ask("GET", "/health")[1]["status"] == "healthy"
