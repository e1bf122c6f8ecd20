"""Addresses to listen on: `udp://host:port`, `tcp://host:port`, `tls://host:port`, `unix:///path`, and their sockets."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from klamm_base.errors import ConfigError

KINDS: Final = ("udp", "tcp", "tls", "unix")
_NET: Final = re.compile(r"(udp|tcp|tls)://(\[[0-9A-Fa-f:.%\w]+\]|[^\[\]:/\s]*):(\d{1,5})")
_UNIX: Final = re.compile(r"unix://(/.+)")
_BACKLOG: Final = 512
_UNIX_PATH_MAX: Final = 107  # bytes; the kernel takes no more
_SO_RCVBUFFORCE: Final = 33  # Linux; Python has no name for it


@dataclass(frozen=True, slots=True)
class Address:
    kind: str
    host: str
    """A name or number, or a unix socket's path. Empty: all addresses, of both families."""
    port: int = 0

    @classmethod
    def parse(cls, text: str) -> Address:
        """Reads an address. Raises ValueError with what is right."""
        if (net := _NET.fullmatch(text)) is not None and int(net[3]) < 65_536:
            return cls(net[1], net[2].strip("[]"), int(net[3]))
        if (unix := _UNIX.fullmatch(text)) is not None:
            if len(os.fsencode(unix[1])) > _UNIX_PATH_MAX:
                raise ValueError(f"a unix socket's path has {_UNIX_PATH_MAX} bytes at most")
            return cls("unix", unix[1])
        raise ValueError("udp://HOST:PORT, tcp://HOST:PORT, tls://HOST:PORT or unix:///PATH is expected")

    def shown_port(self, sock: socket.socket) -> str:
        """Returns port or path, for people and for the `path` of events."""
        return self.host if self.kind == "unix" else str(sock.getsockname()[1])

    def shown(self, sock: socket.socket) -> str:
        if self.kind == "unix":
            return f"unix://{self.host}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.kind}://{host}:{self.shown_port(sock)}"

    def remove(self, sock: socket.socket) -> None:
        """Removes a unix socket's name."""
        if self.kind == "unix":
            with contextlib.suppress(OSError):
                Path(self.host).unlink()


def bind(address: Address, buffer: int) -> socket.socket:
    """Opens a non-blocking socket that listens; `buffer`: bytes of the kernel's receive buffer (0: its default). Raises ConfigError."""
    try:
        sock = _bind_unix(address) if address.kind == "unix" else _bind_net(address)
    except OSError as e:
        where = address.host if address.kind == "unix" else f"{address.kind}://{address.host}:{address.port}"
        raise ConfigError(f"cannot listen on {where}: {e.strerror or e}") from e
    if buffer:
        for option in (
            _SO_RCVBUFFORCE,
            socket.SO_RCVBUF,
        ):  # the first needs a privilege and knows no upper bound
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, option, buffer)
                break
    if address.kind in {"tcp", "tls"}:
        sock.listen(_BACKLOG)
    sock.setblocking(False)
    return sock


def _bind_net(address: Address) -> socket.socket:
    stream = address.kind != "udp"
    family, _, _, _, where = socket.getaddrinfo(
        address.host or None,
        address.port,
        type=socket.SOCK_STREAM if stream else socket.SOCK_DGRAM,
        flags=socket.AI_PASSIVE,
    )[0]
    both = not address.host and socket.has_dualstack_ipv6()
    if both:
        family, where = socket.AF_INET6, ("::", address.port, 0, 0)
    sock = socket.socket(family, socket.SOCK_STREAM if stream else socket.SOCK_DGRAM)
    try:
        if stream:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, not both)
        sock.bind(where)
    except BaseException:
        sock.close()
        raise
    return sock


def _bind_unix(address: Address) -> socket.socket:
    """Binds a unix socket. It replaces the socket of a process that is gone, but not one that somebody listens on."""
    path = Path(address.host)
    if path.exists() and stat.S_ISSOCK(path.stat().st_mode):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe:
            try:
                probe.connect(address.host)
            except ConnectionRefusedError:
                path.unlink()
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        sock.bind(address.host)
        path.chmod(0o666)  # as /dev/log: every user may log
    except BaseException:
        sock.close()
        raise
    return sock


def udp_drops(sock: socket.socket) -> int | None:
    """Returns how many datagrams found no room in this socket's buffer; None where the kernel does not tell (not Linux)."""
    inode = str(os.fstat(sock.fileno()).st_ino).encode()
    name = "udp6" if sock.family == socket.AF_INET6 else "udp"
    try:
        lines = Path(f"/proc/self/net/{name}").read_bytes().splitlines()[1:]
    except OSError:
        return None
    for line in lines:
        columns = line.split()
        if len(columns) > 12 and columns[9] == inode:
            return int(columns[-1])
    return None
