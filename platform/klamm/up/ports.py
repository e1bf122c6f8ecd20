"""Which ports `klamm up` takes: the one asked for, or another when a default is taken."""

from __future__ import annotations

import errno
import socket
from typing import Final

from klamm_base.errors import KlammError

HOST: Final = "127.0.0.1"


def is_free(port: int) -> bool:
    """Whether a server could listen on this loopback port now."""
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
    """A free loopback port of the system's choice."""
    while True:
        with socket.socket() as s:
            s.bind((HOST, 0))
            port = int(s.getsockname()[1])
        if port not in taken:
            return port


def choose(
    asked: int | None, default: int, option: str, taken: frozenset[int] = frozenset()
) -> tuple[int, str | None]:
    """The port to use and, when it is not the default one, a sentence that says so.

    Raises KlammError when the port was asked for (`option`) and is taken; 0 asks for any free one.
    """
    if asked == 0:
        return any_free(taken), None
    port = default if asked is None else asked
    if port not in taken and is_free(port):
        return port, None
    if asked is not None:
        raise KlammError(
            f"{option} {port}: the port is taken on {HOST}; stop who has it (ss -ltnp) or give another"
        )
    other = any_free(taken)
    return other, f"port {port} is taken on {HOST}, using {other} ({option} chooses)"
