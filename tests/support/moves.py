"""Moves of applications between clusters in tests: a file, the commands, and what they say."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

from support.klamm import KLAMM, klamm
from support.mirror import mirror_file

IDENTITY = {"replication.policy.class": "IdentityReplicationPolicy"}


class Mover:
    """A file with flows between two clusters by alias, and commands over it. `topics` is the flows' pattern."""

    def __init__(
        self, folder: Path, clusters: dict[str, str], topics: str, groups: str, **settings: str
    ) -> None:
        self.aliases = list(clusters)
        a, b = self.aliases
        self.there, self.back = f"{a}->{b}", f"{b}->{a}"
        # The command sets the groups' offsets: a mirror that sets them every second would hide it
        lines = {f"{self.there}.enabled": "true", "topics": topics, "groups": groups,
                 "emit.heartbeats.enabled": "false", "sync.group.offsets.enabled": "false"}  # fmt: skip
        self.path = mirror_file(folder / "mm2.properties", clusters, lines | settings)

    def run(self, command: str, *args: str, flow: str | None = None, code: int = 0) -> Any:
        """Runs a command to its end. Returns its JSON; the error's text for another exit code than 0."""
        words = ("mirror", command, str(self.path), flow or self.there, "-o", "json", *args)
        done = klamm(*words, timeout_s=120)
        assert done.returncode == code, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
        return json.loads(done.stdout) if code == 0 else done.stderr

    def run_offsets(self, flow: str | None = None) -> Any:
        """Returns up to where a flow has copied."""
        done = klamm("mirror", "offsets", "list", str(self.path), flow or self.there, "-o", "json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def killed_at(
        self, step: str, command: str, *args: str, flow: str | None = None, after: bool = False
    ) -> None:
        """Runs a command and kills it (SIGKILL) when a step begins, or right `after` it said what the step found."""
        words = [str(KLAMM), "mirror", command, str(self.path), flow or self.there, *args]
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            assert process.stderr is not None
            for line in process.stderr:
                named = line.split()[1:2] == [step]
                if named and line.rstrip().endswith("…") != after:
                    os.kill(process.pid, signal.SIGKILL)
                    break
            assert process.wait(60) == -signal.SIGKILL, f"it never came to {step}"
