"""The installers: uv if it is on the PATH, else pip of this interpreter. Each resolves, builds and
installs.

Both use their own configuration (index, proxy, certificates), and the additions in `Sources`. They run
as processes with a time limit. When they fail, their output is passed on without credentials. Blocks;
for a thread.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

from klamm.environments.errors import ToolFailure, Unresolvable
from klamm.environments.names import canonical

TIMEOUT_S: Final = 900  # a large package over a slow line
_SAID_LINES_MAX: Final = 30
_CREDENTIALS: Final = re.compile(r"(\w+://)[^/\s@]+@")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """The sources of packages, beyond the installer's own configuration. `offline`: from `find_links` only."""

    index_url: str | None = None
    find_links: tuple[str, ...] = ()
    offline: bool = False

    def options(self) -> list[str]:
        found = ["--no-index"] if self.offline else []
        if self.index_url and not self.offline:
            found += ["--index-url", self.index_url]
        for each in self.find_links:
            found += ["--find-links", each]
        return found


class Resolved(NamedTuple):
    """One package of a resolved set: hashes (sha256, hex), and the file's path when it is on this machine."""

    name: str
    version: str
    hashes: tuple[str, ...]
    path: Path | None


class Tool(Protocol):
    """The abilities of an installer."""

    @property
    def name(self) -> str: ...

    def build_wheel(self, folder: Path, into: Path, sources: Sources) -> Path:
        """Build the wheel of a project folder. Raises ToolFailure."""

    def resolve(
        self, requirements: Sequence[str], sources: Sources, *, constraints: str, work: Path
    ) -> list[Resolved]:
        """Returns versions of everything that `requirements` need. Raises Unresolvable, ToolFailure."""

    def install(self, requirements: str, target: Path, sources: Sources, *, work: Path) -> None:
        """Install a locked requirements file, as it is, into an empty folder. Raises ToolFailure."""


def find_tool() -> Tool:
    """Returns uv, or pip. Raises ToolFailure when there is neither."""
    uv = shutil.which("uv")
    if uv is not None:
        return Uv(uv)
    if importlib.util.find_spec("pip") is not None:
        return Pip()
    raise ToolFailure(
        f"Neither uv nor pip is available to install plugins: put uv on the PATH, or run "
        f"{sys.executable} -m ensurepip"
    )


class Pip:
    """pip, as a module of the worker's interpreter."""

    name = "pip"
    _command: Final = (
        sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "--no-color",
    )  # fmt: skip

    def build_wheel(self, folder: Path, into: Path, sources: Sources) -> Path:
        into.mkdir(parents=True, exist_ok=True)
        arguments = [
            "wheel",
            "--quiet",
            "--no-deps",
            "--wheel-dir",
            str(into),
            *sources.options(),
            str(folder),
        ]
        _run([*self._command, *arguments], f"The wheel of {folder} cannot be built", work=into.parent)
        return _only_wheel(into, folder)

    def resolve(
        self, requirements: Sequence[str], sources: Sources, *, constraints: str, work: Path
    ) -> list[Resolved]:
        report = work / "report.json"
        arguments = [
            "install", "--dry-run", "--progress-bar", "off", "--target", str(work / "nowhere"), "--report", str(report),
            "--constraint", str(_write(work / "constraints.txt", constraints)), *sources.options(), *requirements,
        ]  # fmt: skip
        _run([*self._command, *arguments], "The packages cannot be resolved", error=Unresolvable, work=work)
        return [_of_report(entry) for entry in json.loads(report.read_text(encoding="utf-8"))["install"]]

    def install(self, requirements: str, target: Path, sources: Sources, *, work: Path) -> None:
        arguments = [
            "install", "--quiet", "--progress-bar", "off", "--no-deps", "--require-hashes", "--target", str(target),
            *sources.options(), "--requirement", str(_write(work / "requirements.txt", requirements)),
        ]  # fmt: skip
        _run([*self._command, *arguments], "The packages cannot be installed", work=work)


class Uv:
    """uv, told to work for the worker's interpreter."""

    name = "uv"

    def __init__(self, path: str) -> None:
        self._path = path

    def build_wheel(self, folder: Path, into: Path, sources: Sources) -> Path:
        into.mkdir(parents=True, exist_ok=True)
        arguments = ["build", "--quiet", "--wheel", "--python", sys.executable, "--out-dir", str(into)]
        _run(
            [self._path, *arguments, *sources.options(), str(folder)],
            f"The wheel of {folder} cannot be built",
            work=into.parent,
        )
        return _only_wheel(into, folder)

    def resolve(
        self, requirements: Sequence[str], sources: Sources, *, constraints: str, work: Path
    ) -> list[Resolved]:
        lock = work / "pylock.toml"
        arguments = [
            "pip", "compile", "--quiet", "--python", sys.executable, "--no-header", "--output-file", str(lock),
            "--constraint", str(_write(work / "constraints.txt", constraints)), *sources.options(),
            str(_write(work / "requirements.in", "".join(f"{r}\n" for r in requirements))),
        ]  # fmt: skip
        _run([self._path, *arguments], "The packages cannot be resolved", error=Unresolvable, work=work)
        packages = tomllib.loads(lock.read_text(encoding="utf-8")).get("packages", [])
        return [_of_pylock(entry) for entry in packages]

    def install(self, requirements: str, target: Path, sources: Sources, *, work: Path) -> None:
        arguments = [
            "pip", "install", "--quiet", "--python", sys.executable, "--no-deps", "--require-hashes",
            "--compile-bytecode", "--target", str(target), *sources.options(),
            "--requirements", str(_write(work / "requirements.txt", requirements)),
        ]  # fmt: skip
        _run([self._path, *arguments], "The packages cannot be installed", work=work)


def _of_report(entry: dict[str, Any]) -> Resolved:
    """Reads an entry of pip's installation report (version 1)."""
    metadata, info = entry["metadata"], entry["download_info"]
    archive = info.get("archive_info") or {}
    found = (archive.get("hashes") or {}).get("sha256")
    path = _local_path(info["url"])
    return _resolved(metadata["name"], metadata["version"], [found] if found else [], path)


def _of_pylock(entry: dict[str, Any]) -> Resolved:
    """Reads a package of a pylock.toml (PEP 751)."""
    files = [*entry.get("wheels", []), *(entry[k] for k in ("sdist", "archive") if k in entry)]
    hashes = [f["hashes"]["sha256"] for f in files if "sha256" in f.get("hashes", {})]
    path = None
    for file in files:
        path = path or (Path(file["path"]) if "path" in file else _local_path(file.get("url", "")))
    if path is not None and not path.is_absolute():
        path = None
    return _resolved(entry["name"], entry["version"], hashes, path)


def _resolved(name: str, version: str, hashes: Iterable[str], path: Path | None) -> Resolved:
    found = tuple(sorted(set(hashes)))
    if not found and path is None:
        raise ToolFailure(
            f"{name} {version} comes without a sha256 hash (from a repository of sources?); install a wheel of it"
        )
    return Resolved(canonical(name), version, found, path)


def _local_path(url: str) -> Path | None:
    from urllib.parse import unquote, urlsplit

    parts = urlsplit(url)
    return Path(unquote(parts.path)) if parts.scheme == "file" else None


def _only_wheel(into: Path, folder: Path) -> Path:
    found = list(into.glob("*.whl"))
    if len(found) != 1:
        raise ToolFailure(f"{folder} made {len(found)} wheels where one was expected")
    return found[0]


def _write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def _run(
    command: Sequence[str], what: str, *, work: Path, error: type[ToolFailure | Unresolvable] = ToolFailure
) -> None:
    environment = os.environ | {"PYTHONWARNINGS": "ignore", "PIP_REQUIRE_VIRTUALENV": "0"}
    # pip puts an environment together in a temporary folder, and moves it: beside its target it is not written twice.
    environment["TMPDIR"] = str(work)
    try:
        done = subprocess.run(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ToolFailure(f"{what}: {Path(command[0]).name} did not end within {TIMEOUT_S} s") from None
    except OSError as e:
        raise ToolFailure(f"{what}: {command[0]}: {e.strerror}") from e
    if done.returncode != 0:
        raise error(f"{what}: {_said(done.stdout, done.stderr)}")


def _said(out: str, err: str) -> str:
    """Returns what an installer said of its failure: its errors, and pip's lines on the cause of a conflict."""
    lines = [
        line.rstrip()
        for line in err.splitlines()
        if line.strip() and not line.startswith("ERROR: Resolution")
    ]
    cause = out.partition("The conflict is caused by:")[2]
    for line in cause.splitlines():
        if line and not line.startswith(" "):
            break
        if line.strip():
            lines.append(line.strip())
    text = "\n".join(
        line.removeprefix("ERROR: ").removeprefix("error: ") for line in lines[-_SAID_LINES_MAX:]
    )
    return redacted(text) or "it did not say why"


def redacted(text: str) -> str:
    """Returns a text without the credentials that an index's address may hold."""
    return _CREDENTIALS.sub(r"\1", text)
