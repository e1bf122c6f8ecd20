"""Installs and removes units: the user that the server runs as, its folders, and the checks before it is started."""

from __future__ import annotations

import grp
import os
import pwd
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

from klamm.service import systemd
from klamm.service.kinds import Kind
from klamm.service.needs import written_by
from klamm.service.systemd import Systemd
from klamm.service.unit import Unit
from klamm_base.errors import ConfigError, KlammError

USER: Final = "klamm"
SYSTEM_FOLDER: Final = Path("/var/lib/klamm")
LOG_GROUPS: Final = ("adm", "systemd-journal")
"""Debian's groups of those who may read logs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A service that is to be installed. None stands for the usual choice."""

    kind: Kind
    name: str
    of_user: bool
    config: Path | None = None
    words: tuple[str, ...] = ()
    user: str | None = None
    folder: Path | None = None
    program: Path | None = None
    writable: tuple[Path, ...] = ()
    memory_max: str | None = None
    cpu_quota: str | None = None


_LIMITS: Final = (
    (
        "memory_max",
        re.compile(r"\d+[KMGT]?|\d+(\.\d+)?%|infinity"),
        "give bytes with K, M, G or T, such as 4G, or a part, such as 50%",
    ),
    ("cpu_quota", re.compile(r"[1-9]\d*(\.\d+)?%"), "give a part of one CPU, such as 150%"),
)


def plan(wanted: Wanted) -> Unit:
    """Returns the unit. Raises ConfigError for a configuration that the server would refuse, or that it cannot read."""
    kind = wanted.kind
    if wanted.config is not None and not kind.takes_config:
        raise ConfigError(
            f"klamm {' '.join(kind.command)} takes no configuration file, only options behind --"
        )
    if wanted.config is None and kind.config_needed:
        raise ConfigError(f"a {kind.name} needs its configuration: klamm service install {kind.name} FILE")
    config = wanted.config.absolute() if wanted.config else None
    if config is not None and not config.is_file():
        raise ConfigError(f"{config}: no such file")
    folder = (wanted.folder or (home_folder() if wanted.of_user else SYSTEM_FOLDER)).absolute()
    for name, pattern, right in _LIMITS:
        value = getattr(wanted, name)
        if value is not None and not pattern.fullmatch(value):
            raise ConfigError(f"--{name.replace('_', '-')} {value}: {right}")
    written = [*written_by(kind, config, folder), *(folder / path for path in _data_dirs(wanted))]
    return Unit(
        name=wanted.name,
        kind=kind,
        program=wanted.program or _program(),
        interpreter=Path(sys.executable).resolve(),
        folder=folder,
        config=config,
        words=wanted.words,
        user=None if wanted.of_user else wanted.user or USER,
        groups=tuple(_existing(LOG_GROUPS)) if kind.reads_logs else (),
        writable=tuple(
            p for p in dict.fromkeys((*written, *wanted.writable)) if not p.is_relative_to(folder)
        ),
        memory_max=wanted.memory_max,
        cpu_quota=wanted.cpu_quota,
    )


def _data_dirs(wanted: Wanted) -> list[str]:
    """Returns the folder that `klamm up` was told to write, which no configuration names."""
    words = wanted.words if wanted.kind.name == "up" else ()
    apart = [after for word, after in pairwise(words) if word == "--data-dir"]
    return apart + [word.partition("=")[2] for word in words if word.startswith("--data-dir=")]


def install(unit: Unit, manager: Systemd, *, start: bool) -> Iterator[str]:
    """Makes user and folders, writes and checks the unit, and starts it; yields a sentence for each step. Raises KlammError."""
    said = systemd.verify(unit.text(), unit.file_name, of_user=manager.of_user)
    if said:
        raise KlammError("systemd would not take the unit: " + "; ".join(said))
    if unit.user is not None:
        yield from _make_user(unit.user)
    yield from _make_folders(unit)
    if unit.user is not None:
        _require_readable(unit)
    path = manager.write(unit.file_name, unit.text())
    yield f"wrote {path}"
    if unit.user is not None and (told := systemd.exposure(path)) is not None:
        yield f"systemd-analyze security: exposure {told[0]:g} of 10 ({told[1]})"
    if not manager.runs:
        yield f"systemd does not run here: `systemctl enable --now {unit.name}` starts it where it does"
        return
    manager.call("daemon-reload")
    manager.call("enable", unit.file_name)
    yield f"enabled {unit.file_name}: it starts with the {'session' if manager.of_user else 'system'}"
    if start:
        manager.call("restart", unit.file_name, timeout_s=systemd.START_S)
        yield f"ready: {manager.state(unit.name).get('StatusText', '')}"


def uninstall(name: str, manager: Systemd) -> Iterator[str]:
    """Stops a service and removes its unit. Raises KlammError. Data and configuration stay."""
    found = manager.find(name)
    if manager.runs:
        manager.call("disable", "--now", found.path.name, timeout_s=systemd.START_S)
        yield f"stopped and disabled {found.path.name}"
    try:
        found.path.unlink()
    except OSError as e:
        raise KlammError(f"{found.path}: {e.strerror}") from None
    if manager.runs:
        manager.call("daemon-reload")
    yield f"removed {found.path}; its data and configuration stay"


def _program() -> Path:
    """Returns the `klamm` beside this Python: a link that is changed later starts the new version."""
    found = Path(sys.executable).parent / "klamm"
    if not found.is_file():
        other = shutil.which("klamm")
        if other is None:
            raise KlammError(f"{found} does not exist: install klamm into an environment, or give --program")
        found = Path(other)
    return found.absolute()


def home_folder() -> Path:
    """Returns the folder of a user's services."""
    data = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(data) / "klamm"


def _existing(groups: Sequence[str]) -> Iterator[str]:
    known = {g.gr_name for g in grp.getgrall()}
    yield from (g for g in groups if g in known)


def _make_user(name: str) -> Iterator[str]:
    try:
        pwd.getpwnam(name)
    except KeyError:
        pass
    else:
        return
    command = ["useradd", "--system", "--user-group", "--no-create-home", "--home-dir", str(SYSTEM_FOLDER)]
    command += ["--shell", "/usr/sbin/nologin", "--", name]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise KlammError(
            f"the user {name} cannot be made: {done.stderr.strip()}; make it, or give --run-as USER"
        )
    yield f"made the system user {name}"


def _make_folders(unit: Unit) -> Iterator[str]:
    """Makes the folders that are not there, for the server's user. Those that are there stay as they are."""
    owner = pwd.getpwnam(unit.user) if unit.user is not None else None
    for folder in (unit.folder, *unit.writable):
        if folder.exists():
            if owner is not None and not _may(folder, owner, os.R_OK | os.W_OK | os.X_OK):
                raise KlammError(
                    f"{folder}: the user {owner.pw_name} may not write there; `chown -R {owner.pw_name}: {folder}`, or give --run-as"
                )
            continue
        try:
            folder.mkdir(mode=0o700, parents=True)
            if owner is not None:
                os.chown(folder, owner.pw_uid, owner.pw_gid)
        except OSError as e:
            raise KlammError(f"{folder}: {e.strerror}") from None
        yield f"made {folder}"


def _require_readable(unit: Unit) -> None:
    """Raises KlammError where the server's user cannot reach its program or configuration."""
    assert unit.user is not None, "asked for"
    owner = pwd.getpwnam(unit.user)
    for path, what in (
        (unit.program, "the program"),
        (unit.interpreter, "its Python"),
        (Path(sys.prefix), "its environment"),
    ):
        _require(path, owner, what, "install klamm where all may read it, such as /opt/klamm")
    if unit.config is not None:
        _require(
            unit.config,
            owner,
            "the configuration",
            f"`chgrp {unit.user} {unit.config}; chmod 640 {unit.config}`",
        )


def _require(path: Path, owner: pwd.struct_passwd, what: str, mend: str) -> None:
    for each in (*reversed(path.parents), path):
        wanted = os.R_OK if each == path else os.X_OK
        if not _may(each, owner, wanted):
            raise KlammError(
                f"{path}: the user {owner.pw_name} may not read {what} ({each} forbids it); {mend}, or give --run-as"
            )


def _may(path: Path, owner: pwd.struct_passwd, wanted: int) -> bool:
    """Tells what the mode of a file grants to a user (access(2) tells of the calling user only)."""
    if owner.pw_uid == 0:
        return True
    found = path.stat()
    if found.st_uid == owner.pw_uid:
        granted = stat.S_IMODE(found.st_mode) >> 6
    elif found.st_gid in os.getgrouplist(owner.pw_name, owner.pw_gid):
        granted = stat.S_IMODE(found.st_mode) >> 3
    else:
        granted = stat.S_IMODE(found.st_mode)
    return granted & wanted == wanted
