"""The machine: versions, descriptors, clock, and the disk of a data folder."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from klamm.doctor.finding import Finding, failed, ok, unknown, warning
from klamm_base.files import exposed
from klamm_base.version import __version__

FILES_MIN: Final = 4096
FILES_GOOD: Final = 100_000
FREE_FAILED: Final = 0.02
FREE_WARNING: Final = 0.10
FREE_BYTES_MIN: Final = 1 << 30
AHEAD_S: Final = 60.0
"""A file from so far in the future says that the clock was set back."""
_POOR_SYSTEMS: Final = {
    "nfs": "locks and fsync over a network are not what a log needs",
    "nfs4": "locks and fsync over a network are not what a log needs",
    "cifs": "locks and fsync over a network are not what a log needs",
    "tmpfs": "it is memory: a restart of the machine loses it",
    "overlay": "it belongs to a container: it is gone with it",
    "vfat": "it has no permissions",
}
_PACKAGES: Final = (
    "aiohttp",
    "confluent-kafka",
    "cramjam",
    "cryptography",
    "google-crc32c",
    "orjson",
    "pluggy",
    "typer",
)


def versions() -> Iterator[Finding]:
    """Yields what is installed."""
    said = f"klamm {__version__}, Python {platform.python_version()}, {platform.system()} {platform.release()} {platform.machine()}"
    if sys.version_info < (3, 11):  # noqa: UP036 - a doctor does not trust the package's own condition
        yield failed("versions", said, "Klamm needs Python 3.11 or later")
        return
    missing = [name for name in _PACKAGES if not _version(name)]
    if missing:
        yield failed("versions", f"{said}; not installed: {', '.join(missing)}", "install klamm again")
    else:
        yield ok("versions", f"{said}; " + ", ".join(f"{name} {_version(name)}" for name in _PACKAGES))


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def descriptors(hard: int | None = None) -> Finding:
    """Looks at the most open files that a process of this user may have: each partition and connection holds some."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1] if hard is None else hard
    if hard == resource.RLIM_INFINITY or hard >= FILES_GOOD:
        return ok(
            "descriptors",
            "a server may open as many files as it likes"
            if hard < 0
            else f"a server may open {hard:,} files",
        )
    advice = "raise `ulimit -Hn`; `klamm service install` sets 1,048,576"
    judge = failed if hard < FILES_MIN else warning
    return judge(
        "descriptors",
        f"a server may open {hard:,} files; {FILES_GOOD:,} suffice for 30,000 partitions",
        advice,
    )


def clock(newest_files: Iterable[Path] = (), now: float | None = None) -> Iterator[Finding]:
    """Yields whether the clock is kept right. Retention, sessions, tokens and certificates go by it."""
    now = time.time() if now is None else now
    ahead = [(path, _mtime(path) - now) for path in newest_files if _mtime(path) - now > AHEAD_S]
    if ahead:
        path, by = max(ahead, key=lambda each: each[1])
        yield failed(
            "clock",
            f"{path} was written {by:,.0f} s in the future: the clock was set back",
            "set the clock right",
        )
        return
    if shutil.which("timedatectl") is None:
        yield unknown("clock", "this system does not say whether its clock is synchronised (no timedatectl)")
        return
    command = ["timedatectl", "show", "--property=NTPSynchronized", "--value"]
    told = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False).stdout.strip()
    if told == "yes":
        yield ok("clock", "the clock is synchronised")
    elif told == "no":
        yield warning("clock", "the clock is not synchronised", "run chrony or systemd-timesyncd")
    else:
        yield unknown("clock", "timedatectl does not say whether the clock is synchronised")


def _mtime(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:  # retention took it
        return 0.0


def disk(folder: Path, mounts: str | None = None) -> Iterator[Finding]:
    """Yields whether a data folder has room, lies on a fit file system, may be written, and is private."""
    check = f"disk {folder}"
    there = next((p for p in (folder, *folder.absolute().parents) if p.exists()), Path("/"))
    try:
        space = os.statvfs(there)
    except OSError as e:
        yield failed(check, f"{folder}: {e.strerror}")
        return
    yield room(
        check, space.f_blocks * space.f_frsize, space.f_bavail * space.f_frsize, space.f_files, space.f_favail
    )
    kind = file_system(there.resolve(), mounts)
    if kind in _POOR_SYSTEMS:
        yield warning(
            check, f"{folder} lies on {kind}: {_POOR_SYSTEMS[kind]}", "use a local disk (ext4, xfs)"
        )
    if there == folder and not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        yield failed(
            check,
            f"{folder} may not be written by user {os.geteuid()}",
            "run klamm doctor as the server's user, or chown it",
        )
    elif (said := exposed(folder)) is not None:
        yield warning(check, said.partition(";")[0], said.partition("; ")[2])


def room(check: str, size: int, free: int, files: int, files_free: int) -> Finding:
    """Judges bytes and files that are free."""
    share = free / size if size else 0.0
    said = f"{free / (1 << 30):,.1f} GiB of {size / (1 << 30):,.1f} are free ({share:.0%})"
    if files and files_free / files < FREE_FAILED:
        return failed(
            check,
            f"{files_free:,} of {files:,} files are left on it",
            "remove files, or make the file system anew",
        )
    advice = "shorten retention (`klamm topic`, log.retention.bytes), or give it a larger disk"
    if share < FREE_FAILED or free < FREE_BYTES_MIN:
        return failed(check, said, advice)
    return warning(check, said, advice) if share < FREE_WARNING else ok(check, said)


def file_system(path: Path, mounts: str | None = None) -> str:
    """Returns the kind of file system on which a path lies, by /proc/mounts; "" where the system does not say."""
    if mounts is None:
        try:
            mounts = Path("/proc/mounts").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""
    found = ("", "")
    for line in mounts.splitlines():
        place, kind = line.split(" ")[1:3]
        place = place.replace("\\040", " ")
        if path.is_relative_to(place) and len(place) >= len(found[0]):
            found = (place, kind)
    return found[1]
