"""The parts that run for the whole soak, each a command of its own: `klamm up`, a second broker, mirror and agent."""

from __future__ import annotations

import re
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Final, Self

import psutil
from support.klamm import Server, up_words

TOPIC: Final = "soak-lines"
"""The agent's topic, which the mirror copies and a sink writes to a file."""

_COMPLAINT: Final = re.compile(r" (?:WARNING|ERROR) +(\S+: .{0,100})")
_AGENT = """\
bootstrap_servers = "{bootstrap}"
state_dir = "{work}/agent"
[[inputs]]
paths = ["{work}/logs/*.log*"]
topic = "{topic}"
"""
_MIRROR = """\
clusters = A, B
A.bootstrap.servers = {source}
B.bootstrap.servers = {target}
A->B.enabled = true
A->B.topics = {topic}, soak-plain, soak-made-.*
A->B.groups = soak-.*
refresh.topics.interval.seconds = 5
refresh.groups.interval.seconds = 5
A->B.sync.topic.deletions = delete
"""


class Parts:
    """Starts all parts below `work`; with `with`, stops them in the opposite order."""

    def __init__(self, work: Path) -> None:
        self._work = work
        self._stack = ExitStack()
        self._servers: dict[str, Server] = {}
        self.bootstrap = self.rest = self.metrics = self.target = ""

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._stack = stack
            self._start()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._stack.close()

    def _start(self) -> None:
        work = self._work
        (work / "logs").mkdir(parents=True)
        up = self._run("up", *up_words(work / "up"))
        self.bootstrap, self.rest, self.metrics = up.ready["broker"], up.ready["rest"], up.ready["metrics"]
        properties = work / "target.properties"
        properties.write_text(f"log.dirs={work}/target\nlisteners=PLAINTEXT://127.0.0.1:0\n")
        self.target = self._run("target broker", "broker", "start", str(properties)).ready["broker"]
        agent = work / "agent.toml"
        agent.write_text(_AGENT.format(bootstrap=self.bootstrap, work=work, topic=TOPIC))
        self._run("agent", "agent", "start", str(agent))
        mirror = work / "mm2.properties"
        mirror.write_text(_MIRROR.format(source=self.bootstrap, target=self.target, topic=TOPIC))
        self._run("mirror", "mirror", "start", str(mirror))

    def _run(self, name: str, *command: str) -> Server:
        server = self._stack.enter_context(Server(*command, timeout_s=120))
        self._servers[name] = server
        return server

    def said(self) -> dict[str, Counter[str]]:
        """Returns by part the warnings and errors that it logged, by their first words, most frequent first."""
        return {
            name: Counter(
                re.sub(r"\d+", "N", found[1]) for line in server.errors if (found := _COMPLAINT.search(line))
            )
            for name, server in self._servers.items()
        }

    def families(self) -> dict[str, list[psutil.Process]]:
        """Returns the processes of each part. Raises AssertionError when a part has ended."""
        found: dict[str, list[psutil.Process]] = {}
        for name, server in self._servers.items():
            assert server.process.poll() is None, f"{name} ended: {''.join(server.errors[-20:])}"
            process = psutil.Process(server.process.pid)
            if name == "up":
                found |= _parts_of_up(process)
            else:
                found[name] = [process, *process.children(recursive=True)]
        return found


def _parts_of_up(up: psutil.Process) -> dict[str, list[psutil.Process]]:
    """Returns broker and worker apart; the supervisor itself counts with the broker."""
    parts: dict[str, list[psutil.Process]] = {"broker": [up], "worker and tasks": []}
    for child in up.children():
        family = [child, *child.children(recursive=True)]
        name = "worker and tasks" if "connect" in " ".join(child.cmdline()) else "broker"
        parts[name] += family
    return parts
