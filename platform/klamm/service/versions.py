"""Versions beside each other, and the switch from one to another with a way back.

    PREFIX/versions/20261124T101500Z/        an environment, named by when it was made
    PREFIX/current  -> versions/…            what services run
    PREFIX/previous -> versions/…            what `rollback` returns to

A service that was installed from PREFIX/current/bin/klamm runs the version to which `current` points when it starts. The link is
replaced at once: a process that is killed leaves either.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from klamm_base.errors import KlammError

CURRENT: Final = "current"
PREVIOUS: Final = "previous"
MAKE_S: Final = 1800.0


@dataclass(frozen=True, slots=True)
class Version:
    """An environment with a version of Klamm. `role`: current, previous, or empty."""

    path: Path
    version: str
    role: str = ""

    @property
    def name(self) -> str:
        """The name of its folder, which begins with when it was made."""
        return self.path.name


@dataclass(frozen=True, slots=True)
class Versions:
    """The versions under one folder."""

    prefix: Path

    @property
    def program(self) -> Path:
        """The path of `klamm` that services run, whichever version it is."""
        return self.prefix / CURRENT / "bin" / "klamm"

    def running(self) -> Path | None:
        """Returns `program` where this process runs from it: then a service follows upgrades."""
        current = self.link(CURRENT)
        return (
            self.program if current is not None and current.resolve() == Path(sys.prefix).resolve() else None
        )

    def all(self) -> list[Version]:
        """Returns the versions, the oldest first."""
        roles = {self.link(role): role for role in (PREVIOUS, CURRENT)}
        found = [program.parent.parent for program in sorted((self.prefix / "versions").glob("*/bin/klamm"))]
        return [Version(path, _version(path), roles.get(path, "")) for path in found]

    def link(self, role: str) -> Path | None:
        """Returns the environment to which a link points; None: there is none."""
        link = self.prefix / role
        return (self.prefix / link.readlink()) if link.is_symlink() else None

    def make(self, requirements: Sequence[str], now: datetime) -> Version:
        """Makes an environment from requirements of pip: names with versions, wheels or folders. Raises KlammError.

        It is made where it stays, since its scripts hold its path; without the `klamm` in it, it counts as nothing.
        """
        for requirement in requirements:
            _check(requirement)
        path = self.prefix / "versions" / now.strftime("%Y%m%dT%H%M%SZ")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            run([sys.executable, "-m", "venv", str(path)])
            pip = [str(path / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "--quiet"]
            run([*pip, "install", *requirements])
            if not (path / "bin" / "klamm").is_file():
                raise KlammError(f"{' '.join(requirements)}: there is no klamm in it")
        except OSError as e:
            raise KlammError(f"{e.filename or path}: {e.strerror}") from None
        except BaseException:
            shutil.rmtree(path, ignore_errors=True)
            raise
        return Version(path, _version(path))

    def switch(self, to: Path) -> None:
        """Lets services run this version from their next start on. The version before it becomes `previous`."""
        before = self.link(CURRENT)
        if before == to:
            return
        if before is not None:
            self._point(PREVIOUS, before)
        self._point(CURRENT, to)

    def put_back(self, current: Path | None, previous: Path | None) -> None:
        """Lets both links point where they did before a change that failed; None: there was none."""
        for role, to in ((CURRENT, current), (PREVIOUS, previous)):
            if to is None:
                (self.prefix / role).unlink(missing_ok=True)
            elif self.link(role) != to:
                self._point(role, to)

    def _point(self, role: str, to: Path) -> None:
        new = self.prefix / f".{role}-{os.getpid()}"
        new.unlink(missing_ok=True)
        new.symlink_to(to.relative_to(self.prefix))
        new.replace(self.prefix / role)

    def remove(self, version: Version) -> None:
        """Removes a version that no link points to."""
        assert not version.role, "in use"
        shutil.rmtree(version.path)


@dataclass(frozen=True, slots=True)
class Steps:
    """The parts of a change of versions that reach services, for `change`. `check` raises KlammError where the new version cannot read
    the data; it is called while nothing writes.
    """

    stop: Callable[[], None]
    check: Callable[[Path], None]
    start: Callable[[], None]


def change(versions: Versions, to: Path, steps: Steps) -> Iterator[str]:
    """Stops the services, checks the data with another version, switches and starts; goes back where any of it fails.

    Yields a sentence for each step. Raises KlammError when it went back, with the reason.
    """
    before, previous = versions.link(CURRENT), versions.link(PREVIOUS)
    yield "stopping the services"
    try:
        steps.stop()
        yield f"{to.name}: reading the data"
        steps.check(to)
        versions.switch(to)
        yield f"{to.name}: starting the services"
        steps.start()
    except BaseException as e:
        versions.put_back(before, previous)
        try:
            steps.start()
        except KlammError as again:
            raise KlammError(
                f"{e}; and the services do not start with {_name(before)} either: {again}"
            ) from None
        if isinstance(e, KlammError):
            raise KlammError(f"{e}; went back to {_name(before)}, whose services run") from None
        raise
    yield f"{to.name}: the services are ready; `klamm service rollback` returns to {_name(before)}"


def _version(environment: Path) -> str:
    """Returns the version of Klamm in an environment, as its package's folder is called."""
    found = [p.name for p in environment.glob("lib/python*/site-packages/klamm-*.dist-info")]
    return found[0].removeprefix("klamm-").removesuffix(".dist-info") if found else "unknown"


def _check(requirement: str) -> None:
    """Raises KlammError for a path where nothing is, before an environment is made for it. pip judges the rest."""
    text = requirement.partition("[")[0].strip()
    is_path = text.startswith((".", "/", "~")) or (text.endswith((".whl", ".tar.gz")) and "@" not in text)
    if is_path and "://" not in text and not Path(text).exists():
        raise KlammError(f"{text}: no such file or folder")


def _name(path: Path | None) -> str:
    return path.name if path is not None else "what was there before"


def run(command: Sequence[str]) -> str:
    """Runs a command; returns what it printed. Raises KlammError in its words."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=MAKE_S, check=False)
    if done.returncode:
        said = " ".join(done.stderr.split()[-60:]) or f"exit code {done.returncode}"
        raise KlammError(f"`{' '.join(command)}`: {said}")
    return done.stdout
