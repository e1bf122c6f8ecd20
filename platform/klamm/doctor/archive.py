"""An archive for a support ticket: findings, versions, settings, states and the last lines of logs. Secrets are hidden in all of it."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import tarfile
import time
from collections.abc import Iterable
from dataclasses import asdict
from importlib.metadata import distributions
from pathlib import Path
from typing import Any, Final

from klamm.doctor.finding import Finding
from klamm.doctor.settings import Configured, is_secret, raw_settings, secrets_of
from klamm_base.errors import KlammError
from klamm_base.files import PRIVATE_FILE, write_atomically
from klamm_base.redaction import HIDDEN, Redactor, without_logins

LOG_LINES: Final = 2000


class Archive:
    """Files of an archive. `secrets` are hidden in every one of them, beside those of the settings."""

    def __init__(self, configured: Iterable[Configured], secrets: Iterable[str] = ()) -> None:
        self._files: dict[str, str] = {}
        self._configured = list(configured)
        self._redactor = Redactor(secrets)
        for each in self._configured:
            self.hide(secrets_of(each))

    def hide(self, secrets: Iterable[str]) -> None:
        """Hides further values, also in what was added before."""
        self._redactor.add(secrets)

    def add(self, name: str, content: str) -> None:
        """Adds a text."""
        self._files[name] = content

    def add_json(self, name: str, content: Any) -> None:
        """Adds a document."""
        self.add(name, json.dumps(content, indent=2, default=str))

    def add_usual(self, findings: Iterable[Finding]) -> None:
        """Adds findings, versions and settings."""
        self.add_json("findings.json", [asdict(each) for each in findings])
        self.add("packages.txt", "".join(f"{name}=={version}\n" for name, version in sorted(_packages())))
        for number, each in enumerate(self._configured):
            shown = {n: HIDDEN if is_secret(each, n) else v for n, v in raw_settings(each).items()}
            self.add_json(
                f"settings/{number}-{each.kind}-{each.path.name}.json",
                {"path": str(each.path), "settings": shown},
            )

    def add_journal(self, unit: str, *, of_user: bool) -> None:
        """Adds the last lines of a service's log; without a journal, nothing."""
        if shutil.which("journalctl") is None:
            return
        command = [
            "journalctl",
            *(["--user"] if of_user else []),
            "--no-pager",
            "-n",
            str(LOG_LINES),
            "-u",
            unit,
        ]
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=60, check=False
        )
        self.add(f"logs/{unit}.log", done.stdout or done.stderr)

    def write(self, path: Path) -> None:
        """Writes the archive (.tar.gz), readable by its owner only. Raises KlammError."""
        buffer, now = io.BytesIO(), int(time.time())
        with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
            for name, text in self._files.items():
                content = without_logins(self._redactor.redact(text)).encode()
                info = tarfile.TarInfo(f"klamm-doctor/{name}")
                info.size, info.mtime, info.mode = len(content), now, PRIVATE_FILE
                archive.addfile(info, io.BytesIO(content))
        try:
            write_atomically(path, buffer.getvalue())
        except OSError as e:
            raise KlammError(f"{path}: {e.strerror}") from None


def _packages() -> set[tuple[str, str]]:
    return {(d.metadata["Name"], d.version) for d in distributions()}
