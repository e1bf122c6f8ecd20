"""The text of a systemd unit (systemd.service(5), systemd.exec(5)). Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from klamm.service.kinds import Kind
from klamm_base.errors import ConfigError

MARK: Final = "# Written by `klamm service install`."
"""The first line of our units. Others are not ours to change."""
START_MAX: Final = "15min"
"""A broker that was killed reads the ends of its logs before it is ready; with many large ones that takes minutes."""
SILENCE_S: Final = 60
STOP_S: Final = 90
"""A worker gives its tasks time to commit; longer than all of our own deadlines."""
FILES_MAX: Final = 1_048_576
TASKS_MAX: Final = 16_384
HOMES: Final = ("/home", "/root", "/run/user")
TEMPORARY: Final = ("/tmp", "/var/tmp")  # noqa: S108 - compared, not written


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """A unit before it is written.

    `program`: the path of `klamm`; `interpreter`: of the Python that runs it, links resolved. `user`: None for a unit of systemd's user manager, which has the rights of its owner and
    can use few of the walls. `writable`: folders that the server writes, beside `folder`, in which it starts.
    """

    name: str
    kind: Kind
    program: Path
    interpreter: Path
    folder: Path
    config: Path | None = None
    words: tuple[str, ...] = ()
    user: str | None = None
    groups: tuple[str, ...] = ()
    writable: tuple[Path, ...] = ()
    memory_max: str | None = None
    cpu_quota: str | None = None

    @property
    def file_name(self) -> str:
        """The name of the file and of the service."""
        return f"{self.name}.service"

    def text(self) -> str:
        """Returns the file."""
        return "\n".join([MARK, *self._about(), "", *self._service(), "", *self._install(), ""])

    def facts(self) -> dict[str, str]:
        """Returns what later commands must know of the unit; it is the second line of the file."""
        found = {"kind": self.kind.name, "program": str(self.program), "folder": str(self.folder)}
        return (
            found
            | ({"config": str(self.config)} if self.config else {})
            | ({"user": self.user} if self.user else {})
        )

    def _about(self) -> Iterator[str]:
        yield "# " + json.dumps(self.facts())
        yield "[Unit]"
        yield f"Description=Klamm: {self.kind.title}"
        if self.user is not None:  # the user manager does not know these
            yield "Wants=network-online.target"
            yield "After=network-online.target time-sync.target"
        # A server that cannot start is tried for ever, with pauses: what it waits for may come back
        yield "StartLimitIntervalSec=0"

    def _service(self) -> Iterator[str]:
        command = [
            str(self.program),
            *self.kind.command,
            *([str(self.config)] if self.config else []),
            *self.words,
        ]
        yield "[Service]"
        yield "Type=notify"
        yield "NotifyAccess=main"
        yield "ExecStart=" + " ".join(map(quoted, command))
        if self.kind.reload:
            yield "ExecReload=/bin/kill -HUP $MAINPID"
        yield f"WorkingDirectory={escaped(str(self.folder))}"
        yield "Environment=PYTHONUNBUFFERED=1"
        yield "Restart=always"
        yield "RestartSec=2"
        yield "RestartPreventExitStatus=2"  # a configuration that cannot be used does not mend itself
        yield f"TimeoutStartSec={START_MAX}"
        yield f"TimeoutStopSec={STOP_S}"
        yield f"WatchdogSec={SILENCE_S}"
        yield "KillMode=mixed"  # the server stops its children in order; what is left is killed at the end
        yield f"LimitNOFILE={FILES_MAX}"
        yield f"TasksMax={TASKS_MAX}"
        if self.memory_max:
            yield f"MemoryMax={self.memory_max}"
        if self.cpu_quota:
            yield f"CPUQuota={self.cpu_quota}"
        yield "OOMPolicy=continue"  # a task that took too much ends alone; its worker restarts it
        yield "UMask=0077"
        yield "NoNewPrivileges=yes"
        if self.user is not None:
            yield from self._walls(self.user)

    def _walls(self, user: str) -> Iterator[str]:
        """Yields what keeps the server from the rest of the system."""
        kind = self.kind
        yield f"User={user}"
        yield f"Group={user}"
        if self.groups:
            yield f"SupplementaryGroups={' '.join(self.groups)}"
        yield "ProtectSystem=strict"
        yield "ReadWritePaths=" + " ".join(quoted(str(p)) for p in (self.folder, *self.writable))
        at_home = kind.reads_logs or self._lies_in(HOMES)
        yield f"ProtectHome={'read-only' if at_home else 'tmpfs'}"
        if kind.own_tmp and not self._lies_in(TEMPORARY):
            yield "PrivateTmp=yes"
        yield from (
            "PrivateDevices=yes", "ProtectClock=yes", "ProtectControlGroups=yes", "ProtectHostname=yes",
            "ProtectKernelLogs=yes", "ProtectKernelModules=yes", "ProtectKernelTunables=yes", "ProtectProc=invisible",
            "LockPersonality=yes", "RestrictNamespaces=yes", "RestrictRealtime=yes", "RestrictSUIDSGID=yes",
            "RemoveIPC=yes", "RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX AF_NETLINK",
            "SystemCallArchitectures=native", "SystemCallFilter=@system-service", "SystemCallErrorNumber=EPERM",
        )  # fmt: skip
        if not kind.reads_logs:
            yield "SystemCallFilter=~@privileged @resources"
        if not kind.jit:
            yield "MemoryDenyWriteExecute=yes"
        # A port below 1024: syslog's 514
        allowed = "CAP_NET_BIND_SERVICE" if kind.reads_logs else ""
        yield f"CapabilityBoundingSet={allowed}"
        yield f"AmbientCapabilities={allowed}"

    def _lies_in(self, folders: tuple[str, ...]) -> bool:
        """Tells whether the server needs anything in these folders."""
        places = [
            self.program,
            self.interpreter,
            self.folder,
            *self.writable,
            *([self.config] if self.config else []),
        ]
        return any(place.is_relative_to(folder) for place in places for folder in folders)

    def _install(self) -> Iterator[str]:
        yield "[Install]"
        yield "WantedBy=" + ("default.target" if self.user is None else "multi-user.target")


def escaped(text: str) -> str:
    """Returns a value in which systemd replaces nothing. Raises ConfigError for what no unit can hold."""
    if any(ord(c) < 32 for c in text):
        raise ConfigError(f"{text!r}: a unit cannot hold control characters; give another path")
    return text.replace("%", "%%")


def quoted(word: str) -> str:
    """Returns a word of a command line or list, as systemd reads it back."""
    safe = escaped(word).replace("\\", "\\\\").replace('"', '\\"').replace("$", "$$")
    return f'"{safe}"' if not word or any(c in " \t'\";\\" for c in word) else safe
