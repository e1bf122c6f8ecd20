"""The choice of ports for `klamm up`: the wanted port, or another when a default port is taken."""

from __future__ import annotations

import contextlib
import errno
import socket
from pathlib import Path
from typing import Final

from klamm_base.errors import KlammError

HOST: Final = "127.0.0.1"
_LISTENING: Final = "0A"  # TCP_LISTEN in /proc/net/tcp


def is_free(port: int) -> bool:
    """Return whether a server could listen on this loopback port now."""
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            s.bind((HOST, port))
        except OSError as e:
            if e.errno in (errno.EADDRINUSE, errno.EACCES):
                return False
            raise
        return True


def any_free(taken: frozenset[int] = frozenset()) -> int:
    """Return a free loopback port of the system's choice."""
    while True:
        with socket.socket() as s:
            s.bind((HOST, 0))
            port = int(s.getsockname()[1])
        if port not in taken:
            return port


def choose(
    asked: int | None, default: int, option: str, taken: frozenset[int] = frozenset()
) -> tuple[int, str | None]:
    """Return the port to use and, when a default port is taken, a sentence that says so.

    Raises KlammError when the user asked for the port (by `option`) and it is taken; 0 asks for any free port.
    """
    if asked == 0:
        return any_free(taken), None
    port = default if asked is None else asked
    if port not in taken and is_free(port):
        return port, None
    who = "another server of this command" if port in taken else holder(port)
    by = f" by {who}" if who else ""
    if asked is not None:
        way = "give" if port in taken else f"stop {'that' if by else 'who has it'} or give"
        raise KlammError(f"{option} {port}: the port is taken on {HOST}{by}; {way} another")
    other = any_free(taken)
    return other, f"port {port} is taken on {HOST}{by}, using {other} ({option} chooses)"


def holder(port: int, proc: Path = Path("/proc")) -> str | None:
    """Return the process that listens on a port, as `process 123 (java)`; None where the system does not tell (not
    Linux, another user's process).
    """
    inodes = {
        fields[9]
        for table in ("tcp", "tcp6")
        for fields in _socket_rows(proc / "net" / table)
        if fields[3] == _LISTENING and int(fields[1].rpartition(":")[2], 16) == port
    }
    wanted = {f"socket:[{inode}]" for inode in inodes}
    for process in sorted(proc.glob("[0-9]*")) if wanted else []:
        if wanted & _open_files(process):
            return f"process {process.name} ({_name(process)})"
    return None


def _socket_rows(table: Path) -> list[list[str]]:
    try:
        return [line.split() for line in table.read_text(encoding="ascii").splitlines()[1:]]
    except OSError:
        return []


def _open_files(process: Path) -> set[str]:
    found = set()
    with contextlib.suppress(OSError):  # it is another user's, or it ended meanwhile
        for link in (process / "fd").iterdir():
            with contextlib.suppress(FileNotFoundError):  # closed meanwhile
                found.add(str(link.readlink()))
    return found


def _name(process: Path) -> str:
    try:
        return (process / "comm").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return "ended meanwhile"
