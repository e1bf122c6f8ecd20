"""systemd on this machine: where units lie, and the commands that systemd is asked with."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from klamm.service.unit import MARK
from klamm_base.errors import KlammError
from klamm_base.files import write_atomically

SYSTEM_UNITS: Final = Path("/etc/systemd/system")
ASK_S: Final = 30.0
START_S: Final = 20 * 60.0
_SHOWN: Final = (
    "ActiveState", "SubState", "MainPID", "StatusText", "NRestarts", "MemoryCurrent", "ActiveEnterTimestamp", "Result",
    "UnitFileState",
)  # fmt: skip
_EXPOSURE: Final = re.compile(r"Overall exposure level for \S+: ([\d.]+) (\w+)")


@dataclass(frozen=True, slots=True)
class Installed:
    """A unit of ours that is installed. `facts` are those of `Unit.facts`; `state` is what systemd says of it, empty where systemd does
    not run.
    """

    name: str
    path: Path
    facts: dict[str, str]
    state: dict[str, str]


@dataclass(frozen=True, slots=True)
class Systemd:
    """The system's manager, or with `of_user` the manager of this user's services."""

    of_user: bool

    @property
    def folder(self) -> Path:
        """The folder of units that an administrator (a user) makes."""
        if not self.of_user:
            return SYSTEM_UNITS
        config = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
        return Path(config) / "systemd" / "user"

    @property
    def runs(self) -> bool:
        """Tells whether the manager answers: containers often have none."""
        return shutil.which("systemctl") is not None and self._run("is-system-running", check=False).stdout.strip() not in (
            "", "offline", "unknown",
        )  # fmt: skip

    def call(self, *words: str, timeout_s: float = ASK_S) -> str:
        """Runs systemctl. Raises KlammError in its words."""
        return self._run(*words, timeout_s=timeout_s).stdout

    def _run(
        self, *words: str, check: bool = True, timeout_s: float = ASK_S
    ) -> subprocess.CompletedProcess[str]:
        command = ["systemctl", *(["--user"] if self.of_user else []), "--no-pager", *words]
        return _run(command, check=check, timeout_s=timeout_s)

    def write(self, file_name: str, text: str) -> Path:
        """Writes a unit. Raises KlammError for a file that is not ours, and for one that cannot be written."""
        path = self.folder / file_name
        try:
            if path.exists() and not path.read_text(encoding="utf-8").startswith(MARK):
                raise KlammError(f"{path} was not written by klamm: remove it, or give another --name")
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, text.encode())
            path.chmod(0o644)
        except OSError as e:
            hint = "; run it as root, or with --user" if not self.of_user and os.geteuid() else ""
            raise KlammError(f"{path}: {e.strerror}{hint}") from None
        return path

    def installed(self) -> list[Installed]:
        """Returns our units by name."""
        found, runs = [], self.runs
        for path in sorted(self.folder.glob("*.service")):
            try:
                text = path.read_text(encoding="utf-8", errors="replace")
            except OSError:  # a link into nowhere: a unit that was removed or masked
                continue
            if text.startswith(MARK):
                facts = json.loads(text.splitlines()[1].removeprefix("# "))
                state = self.state(path.stem) if runs else {}
                found.append(Installed(path.stem, path, facts, state))
        return found

    def find(self, name: str) -> Installed:
        """Returns one of our units. Raises KlammError."""
        name = name.removesuffix(".service")
        found = {each.name: each for each in self.installed()}
        if name not in found:
            there = ", ".join(found) or "none"
            raise KlammError(f"no service {name} was installed by klamm in {self.folder} (there: {there})")
        return found[name]

    def state(self, name: str) -> dict[str, str]:
        """Returns what the manager says of a service."""
        lines = self._run("show", f"{name}.service", "--property", ",".join(_SHOWN)).stdout.splitlines()
        return dict(line.split("=", 1) for line in lines if "=" in line)


def verify(text: str, file_name: str, *, of_user: bool) -> list[str]:
    """Returns what `systemd-analyze verify` says of a unit; nothing is good. Without systemd-analyze nothing is said."""
    if shutil.which("systemd-analyze") is None:
        return []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / file_name
        path.write_text(text, encoding="utf-8")
        manager = ["--user"] if of_user else []
        done = _run(
            ["systemd-analyze", *manager, "verify", "--man=no", "--recursive-errors=no", str(path)],
            check=False,
        )
    said = [line.strip() for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    return [line.replace(str(path), file_name) for line in said if file_name in line]


def exposure(path: Path) -> tuple[float, str] | None:
    """Returns systemd's measure of how much of the system a unit can reach: 0 (nothing) to 10, and its word for it. None where
    systemd does not say.
    """
    if shutil.which("systemd-analyze") is None:
        return None
    done = _run(["systemd-analyze", "security", "--offline=yes", "--no-pager", str(path)], check=False)
    told = _EXPOSURE.search(done.stdout)
    return (float(told[1]), told[2]) if told else None


def _run(
    command: Sequence[str], *, check: bool = True, timeout_s: float = ASK_S
) -> subprocess.CompletedProcess[str]:
    env = os.environ | {"LC_ALL": "C.UTF-8", "SYSTEMD_COLORS": "0", "SYSTEMD_PAGER": ""}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=timeout_s, check=False, env=env
        )
    except FileNotFoundError:
        raise KlammError(f"{command[0]} is not here: this system has no systemd") from None
    except subprocess.TimeoutExpired:
        raise KlammError(f"`{' '.join(command)}` did not end within {timeout_s:g} s") from None
    if check and done.returncode:
        said = " ".join(done.stderr.split()) or f"exit code {done.returncode}"
        raise KlammError(f"`{' '.join(command)}`: {said}")
    return done
