"""The servers of the day: services of systemd where it runs, else processes of this script."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol

KLAMM: Final = Path(sys.executable).with_name("klamm")
WAIT_S: Final = 120.0


class Stop(Exception):
    """Something was not as it should be; the text says what."""


def say(text: str = "") -> None:
    """Prints a line at once, also into a file."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def run(*words: str, stdin: str = "", show: bool = True) -> str:
    """Runs `klamm`, printing the command and what it said; returns its output. Raises Stop if it fails."""
    if show:
        say("$ klamm " + " ".join(word if " " not in word else f"'{word}'" for word in words))
    done = subprocess.run([str(KLAMM), *words], input=stdin, capture_output=True, text=True, check=False)
    if show:
        for line in (done.stdout + done.stderr).splitlines():
            say("  " + line)
    if done.returncode:
        raise Stop(f"klamm {' '.join(words)}: exit code {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def wait(condition: object, what: str, wait_s: float = WAIT_S) -> None:
    """Waits until `condition()` is true. A command that fails meanwhile is asked again. Raises Stop."""
    assert callable(condition)
    end, why = time.monotonic() + wait_s, ""
    while time.monotonic() < end:
        try:
            if condition():
                return
        except (Stop, OSError) as e:
            why = f": {e}"
        time.sleep(0.2)
    raise Stop(f"after {wait_s:g} s still not: {what}{why}")


class Servers(Protocol):
    """What the day needs of whoever runs the servers. A server is named by its kind."""

    def install(self, kind: str, config: Path, writes: Path | None) -> None: ...

    def start(self, kind: str) -> None: ...

    def stop(self, kind: str) -> None: ...

    def kill(self, kind: str) -> int: ...

    def close(self) -> None: ...


class Services:
    """Services, by `klamm service install`."""

    def __init__(self, place: Path, run_as: str | None, side: str) -> None:
        self._words = ["--directory", str(place / "home"), *(["--run-as", run_as] if run_as else [])]
        self._side = side
        self._installed: list[str] = []

    def install(self, kind: str, config: Path, writes: Path | None) -> None:
        """Installs and starts a server, which may write to a further folder."""
        self._installed.append(kind)
        more = ("--read-write", str(writes)) if writes else ()
        run("service", "install", kind, str(config), self._side, "--name", _unit(kind), *self._words, *more)

    def start(self, kind: str) -> None:
        self._systemctl("start", _unit(kind))

    def stop(self, kind: str) -> None:
        self._systemctl("stop", _unit(kind))

    def kill(self, kind: str) -> int:
        """Kills the process. systemd starts another one; returns its number once it is ready."""
        before = self._pid(kind)
        self._systemctl("kill", "--kill-who=main", "--signal=SIGKILL", _unit(kind))
        wait(lambda: self._pid(kind) not in (0, before), f"another {kind}")
        wait(lambda: self._show(kind, "ActiveState") == "active", f"the {kind} is ready again")
        return self._pid(kind)

    def close(self) -> None:
        for kind in reversed(self._installed):
            run("service", "uninstall", _unit(kind), self._side, show=False)

    def _pid(self, kind: str) -> int:
        return int(self._show(kind, "MainPID") or 0)

    def _show(self, kind: str, key: str) -> str:
        return self._systemctl("show", _unit(kind), f"--property={key}", "--value", show=False).strip()

    def _systemctl(self, *words: str, show: bool = True) -> str:
        command = ["systemctl", *([self._side] if self._side == "--user" else []), *words]
        if show:
            say("$ " + " ".join(command))
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise Stop(f"{' '.join(command)}: {done.stderr.strip()}")
        return done.stdout


class Processes:
    """Processes of this script, which starts one again that was killed."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._configs: dict[str, Path] = {}
        self._running: dict[str, subprocess.Popen[str]] = {}

    def install(self, kind: str, config: Path, writes: Path | None) -> None:
        """Starts a server, which may write everywhere."""
        del writes
        self._configs[kind] = config
        self.start(kind)

    def start(self, kind: str) -> None:
        words = [*_COMMANDS.get(kind, (kind, "start")), str(self._configs[kind])]
        say("$ klamm " + " ".join(words))
        log = (self._place / f"{kind}.log").open("a", encoding="utf-8")
        with log:
            process = subprocess.Popen(
                [str(KLAMM), *words], stdout=subprocess.PIPE, stderr=log, text=True, stdin=subprocess.DEVNULL,
                cwd=self._place,
            )  # fmt: skip
        self._running[kind] = process
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line.startswith("ready "):
            raise Stop(f"the {kind} is not ready: see {self._place / f'{kind}.log'}")
        say("  " + line.strip())

    def stop(self, kind: str) -> None:
        process = self._running.pop(kind)
        process.terminate()
        process.communicate(timeout=WAIT_S)

    def kill(self, kind: str) -> int:
        process = self._running.pop(kind)
        process.kill()
        process.communicate()
        self.start(kind)
        return self._running[kind].pid

    def close(self) -> None:
        for kind in reversed(list(self._running)):
            self.stop(kind)


_COMMANDS: Final[Mapping[str, Sequence[str]]] = {"connect": ("connect", "distributed")}


def _unit(kind: str) -> str:
    return f"klamm-day-{kind}"


def choose(place: Path, run_as: str | None, *, systemd: bool) -> Iterator[Servers | str]:
    """Yields a sentence about who runs the servers, and then that one."""
    import os
    import shutil

    side = "--system" if os.geteuid() == 0 else "--user"
    words = ["systemctl", *([side] if side == "--user" else []), "is-system-running"]
    if systemd and shutil.which("systemctl") is not None:
        state = subprocess.run(words, capture_output=True, text=True, check=False).stdout.strip()
        if state not in ("", "offline", "unknown"):
            yield "systemd runs here: the servers become its services"
            yield Services(place, run_as, side)
            return
    why = "systemd does not run here" if systemd else "without systemd, as asked for"
    yield f"{why}: this script starts the servers itself, and again after a kill; there are no units to see"
    yield Processes(place)
