"""The process of a fork server: a new interpreter, or a fork of the worker (`klamm.connect.child.forkserver.forked`)."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from klamm_base.forking import Forked

MODULE: Final = "klamm.connect.child.forkserver"

Process = subprocess.Popen[bytes] | Forked


@dataclass(frozen=True, slots=True)
class ServerProcess:
    """A fork server, and our ends of its sockets."""

    process: Process
    control: socket.socket
    lease: socket.socket


def execute(site: str | None, preload: Sequence[str]) -> ServerProcess:
    """Starts an interpreter, with the environment in the folder `site` laid over our packages. Raises OSError."""
    command = [sys.executable, "-m", *(("klamm.environments.overlay", site) if site else ()), MODULE]
    control, control_peer = socket.socketpair()
    lease, lease_peer = socket.socketpair()
    fds = (control_peer.fileno(), lease_peer.fileno())
    try:
        # Takes milliseconds, and happens once.
        process = subprocess.Popen(
            [*command, *map(str, fds), *preload],
            pass_fds=fds,
            stdin=subprocess.DEVNULL,
            stdout=2,  # the worker's standard output is for its `ready` line
            start_new_session=True,
        )
    except OSError:
        control.close()
        lease.close()
        raise
    finally:
        control_peer.close()
        lease_peer.close()
    return ServerProcess(process, control, lease)
