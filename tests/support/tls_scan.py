"""SSLyze, a TLS scanner, at a port of this machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

PACKAGE: Final = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "klamm-sslyze"
PROTOCOLS: Final = {
    "ssl_2_0": "--sslv2", "ssl_3_0": "--sslv3", "tls_1_0": "--tlsv1", "tls_1_1": "--tlsv1_1",
    "tls_1_2": "--tlsv1_2", "tls_1_3": "--tlsv1_3",
}  # fmt: skip
ATTACKS: Final = ("--heartbleed", "--openssl_ccs", "--robot", "--reneg", "--fallback", "--compression", "--ems", "--elliptic_curves")  # fmt: skip


def require() -> None:
    """Skips where there is no SSLyze for this Python."""
    tag = f"{sys.version_info.major}.{sys.version_info.minor}"
    if not list(PACKAGE.glob(f"{tag}-*")):
        pytest.skip(f"SSLyze is not in {PACKAGE}; tests/peers/fetch_sslyze.sh fetches it")


class Scan:
    """The findings of the scanner. `complaints` are Mozilla's against the profile *intermediate*, by their subject."""

    def __init__(self, port: int, work: Path) -> None:
        report = work / "scan.json"
        command = [
            sys.executable, "-m", "sslyze", f"--json_out={report}", "--mozilla_config=intermediate",
            *PROTOCOLS.values(), *ATTACKS, f"127.0.0.1:{port}",
        ]  # fmt: skip
        ran = subprocess.run(command, env=os.environ | {"PYTHONPATH": str(PACKAGE)}, capture_output=True, text=True, timeout=300, check=False)  # fmt: skip
        assert report.exists(), ran.stderr[-2000:]
        (found,) = json.loads(report.read_text())["server_scan_results"]
        self._found: dict[str, Any] = found["scan_result"]
        said = ran.stdout.partition("COMPLIANCE AGAINST")[2]
        self.complaints = dict(line.strip()[2:].split(": ", 1) for line in said.splitlines() if line.strip().startswith("* "))  # fmt: skip

    def __getitem__(self, name: str) -> dict[str, Any]:
        """Returns the answer to one question; one that the scanner could not ask is an error."""
        found = self._found[name]
        assert found["status"] == "COMPLETED", (name, found["error_reason"], found["error_trace"])
        answer: dict[str, Any] = found["result"]
        return answer

    def suites(self, protocol: str) -> set[str]:
        """Returns the suites that the server takes with a version: `tls_1_2`."""
        taken = self[f"{protocol}_cipher_suites"]["accepted_cipher_suites"]
        return {suite["cipher_suite"]["name"] for suite in taken}
