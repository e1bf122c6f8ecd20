"""The fork server: a warm, single-threaded process that forks children and holds the worker's lease.

It is started as `python -m klamm.connect.child.forkserver CONTROL_FD LEASE_FD MODULE…`, with or without an
environment laid over it (`klamm.environments.overlay`), or forked from its worker (`forked`). It imports once what every child needs, with Klamm's
own converters and transforms, the modules that it is told, and Klamm's own connectors when their first child
comes (`warm`); no other plugin. The worker asks for a child with `{"method": "fork",
"id", "needs"}` and two descriptors (the child's control socket, its output); the child's order comes on that control
socket. The fork server answers `{"event": "forked", "id", "pid"}` and, when a child has ended, `{"event":
"exited", "id", "code", "signal", "lost"}`. Requests with the same name as `share` get the same process (`shared`), as long as it
has a child.

Invariant: no child outlives the lease. When the worker closes its sockets, or its pings stop for 1.5 s, the
fork server kills every child's process group and ends. When the fork server dies, the kernel kills the
children (PR_SET_PDEATHSIG) or, on other systems, they end when their control socket closes. The fork server
ignores signals of the terminal or a service manager: the worker decides.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import logging
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from typing import Final, NoReturn

from klamm.connect.child import main, shared, warm
from klamm.connect.child.hosts import HostProcess, Hosts
from klamm.connect.children.channel import ChannelError, Decoder, Message, encode
from klamm.connect.children.lease import LEASE_S, LeaseWatch
from klamm.connect.children.server_process import MODULE, ServerProcess
from klamm_base.forking import fork

log = logging.getLogger(__name__)

# Modules that children use anyway: imported once, so that all share their memory.
PRELOAD: Final = (
    "confluent_kafka",
    "orjson",
    "klamm_plugins.builtin",
    "klamm.connect.child.connector_host",
    "klamm.connect.child.calls",
    "klamm.connect.child.task_host",
)
_FDS_PER_FORK: Final = 2
_SHARED: Final = 0  # no id of the worker's
_RECEIVE_BYTES: Final = 64 << 10


class ForkServer:
    """The fork server's loop. Single-threaded, so that a fork never copies a lock that another thread holds."""

    def __init__(self, control: socket.socket, lease: socket.socket) -> None:
        self._control = control
        self._lease = lease
        self._pid = os.getpid()
        self._decoder = Decoder()
        self._fds: list[int] = []
        self._watch = LeaseWatch(time.monotonic())
        self._children: dict[int, int] = {}  # pid -> the worker's id of it, 0 for a shared process
        self._poller = select.poll()
        self._hosts = Hosts(self._poller)
        self._killed: set[int] = set()  # members for which the worker has a shared process killed
        self._wakeup_r, self._wakeup_w = os.pipe()

    def run(self) -> None:
        """Serves until the lease ends, then kills every child."""
        self._install_signals()
        for source in (self._control, self._lease, self._wakeup_r):
            self._poller.register(source, select.POLLIN)
        try:
            self._control.sendall(encode({"event": "ready", "pid": os.getpid()}))
        except OSError:
            log.info("the worker has ended before its fork server was ready")
            return
        try:
            if not self._lease.recv(_RECEIVE_BYTES):  # the lease begins with the first ping
                return
            watch = self._watch
            watch.pinged(time.monotonic())
            while (remaining := watch.remaining_s(time.monotonic())) > 0:
                asleep = time.monotonic()
                readable = {fd for fd, _ in self._poller.poll(remaining * 1000)}
                now = time.monotonic()
                watch.woke(now, slept_s=now - asleep, meant_s=remaining)
                if self._lease.fileno() in readable:
                    if not (said := self._lease.recv(_RECEIVE_BYTES)):
                        return
                    watch.pinged(time.monotonic(), said)
                if self._wakeup_r in readable:
                    os.read(self._wakeup_r, _RECEIVE_BYTES)
                    self._reap()
                for host in self._hosts.readable(readable):
                    self._hear(host)
                if self._control.fileno() in readable and not self._serve():
                    return
            log.error("no ping from the worker, ending all tasks")
        except (OSError, ChannelError) as e:
            log.warning("ending all tasks: %s", e)
        finally:
            for pid in self._children:
                _kill_group(pid)

    def _install_signals(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        os.set_blocking(self._wakeup_w, False)
        signal.set_wakeup_fd(self._wakeup_w, warn_on_full_buffer=False)
        # The wakeup descriptor is written only if a handler exists; the loop does the reaping.
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def _serve(self) -> bool:
        """Handles the worker's messages; returns False when the worker closed the control socket."""
        data, fds, _, _ = socket.recv_fds(self._control, _RECEIVE_BYTES, 64)
        self._fds += fds
        if not data:
            return False
        for message in self._decoder.feed(data):
            match message["method"]:
                case "fork":
                    self._warm(message)
                    self._fork(message)
                case "kill":
                    self._kill(message["id"])
        return True

    def _warm(self, message: Message) -> None:
        """Imports what the child needs, if that is Klamm's own. Pings of that time wait in the lease's socket."""
        if (needs := message.get("needs")) is not None and warm.warm(*needs):
            self._watch.woke(time.monotonic(), slept_s=LEASE_S, meant_s=0)

    def _fork(self, message: Message) -> None:
        # Descriptors arrive with or before their message, in order.
        control_fd, output_fd = self._fds[:_FDS_PER_FORK]
        del self._fds[:_FDS_PER_FORK]
        if (name := message.get("share")) is not None:
            self._admit(name, message["id"], [control_fd, output_fd])
            return
        try:
            pid = os.fork()
        except OSError as e:
            self._exited(message["id"], code=None, number=None, error=f"Cannot fork: {e.strerror}")
        else:
            if pid == 0:
                self._leave(lambda: main.run(control_fd, output_fd, parent=self._pid))
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.setpgid(pid, pid)  # the child does it too: whoever is first
            self._children[pid] = message["id"]
            self._control.sendall(encode({"event": "forked", "id": message["id"], "pid": pid}))
        os.close(control_fd)
        os.close(output_fd)

    def _leave(self, be: Callable[[], int]) -> NoReturn:
        """Turns this forked process into a child, which runs `be`; never returns."""
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            self._control.close()
            self._lease.close()
            self._hosts.close()
            for fd in (self._wakeup_r, self._wakeup_w, *self._fds):
                os.close(fd)
            code = be()
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            with contextlib.suppress(Exception):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)

    def _admit(self, name: str, child_id: int, fds: list[int]) -> None:
        """Gives the worker's child a place in the process of this name, which is forked if need be."""
        try:
            host = self._hosts.of(name) or self._open(name)
        except OSError as e:
            self._exited(child_id, code=None, number=None, error=f"Cannot fork: {e.strerror}")
        else:
            if host.admit(child_id, fds):
                self._control.sendall(encode({"event": "forked", "id": child_id, "pid": host.pid}))
            else:  # it has just ended
                self._exited(child_id, code=None, number=None, lost=True)
        for fd in fds:
            os.close(fd)

    def _open(self, name: str) -> HostProcess:
        """Forks a shared process."""
        door, inside = socket.socketpair()
        with inside:
            pid = os.fork()
            if pid == 0:
                door.close()
                self._leave(lambda: shared.run(inside, name, parent=self._pid))
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.setpgid(pid, pid)
        self._children[pid] = _SHARED
        host = HostProcess(name, pid, door)
        self._hosts.add(host)
        return host

    def _hear(self, host: HostProcess) -> None:
        """Takes in which members have ended. The process ends with the last one."""
        for child_id, code in host.ended():
            self._killed.discard(child_id)
            self._exited(child_id, code=code, number=None)
        if not host.members or host.closed:
            self._hosts.dismiss(host)

    def _kill(self, child_id: int) -> None:
        if (host := self._hosts.with_member(child_id)) is not None:
            self._killed.add(child_id)
            _kill_group(host.pid)
            return
        for pid, known in self._children.items():
            if known == child_id:
                _kill_group(pid)

    def _reap(self) -> None:
        while self._children:
            # Look first, then kill the rest of its process group while its pid is still taken, then reap.
            status = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if status is None:
                return
            pid = status.si_pid
            _kill_group(pid)
            os.waitpid(pid, 0)
            by_signal = status.si_code != os.CLD_EXITED
            code, number = (None, status.si_status) if by_signal else (status.si_status, None)
            if (child_id := self._children.pop(pid)) != _SHARED:
                self._exited(child_id, code=code, number=number)
                continue
            members = self._hosts.gone(pid)
            culprits = members & self._killed
            self._killed -= culprits
            for child_id in members:  # nobody is to blame for the end of another's process
                self._exited(
                    child_id, code=code, number=number, lost=bool(culprits) and child_id not in culprits
                )

    def _exited(
        self,
        child_id: int,
        *,
        code: int | None,
        number: int | None,
        error: str | None = None,
        lost: bool = False,
    ) -> None:
        notice = {
            "event": "exited", "id": child_id, "code": code, "signal": number, "error": error, "lost": lost,
        }  # fmt: skip
        self._control.sendall(encode(notice))


def _kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)  # in case it has not become a group yet


def load(more: Sequence[str]) -> None:
    """Imports what all children need, and more modules."""
    for name in (*PRELOAD, *more):
        importlib.import_module(name)
    warm.warm_clients()
    # The collector never traverses frozen objects, so their pages stay shared after a fork.
    gc.collect()
    gc.freeze()


def serve(control_fd: int, lease_fd: int) -> None:
    """Serves the worker at the other end of these sockets, until its lease ends."""
    control, lease = socket.socket(fileno=control_fd), socket.socket(fileno=lease_fd)
    for sock in (control, lease):
        sock.set_inheritable(False)
    ForkServer(control, lease).run()


def forked(more: Sequence[str]) -> ServerProcess:
    """Imports what children need in this process, the worker, and forks the fork server. It waits for its launcher.

    The fork shares the memory of what both need. Only the first fork server can be one: later the worker has threads.
    Raises OSError.
    """
    load(more)
    control, control_peer = socket.socketpair()
    lease, lease_peer = socket.socketpair()
    fds = (control_peer.fileno(), lease_peer.fileno())
    with control_peer, lease_peer:
        process = fork(lambda: serve(*fds), title=MODULE, output=2, keep=fds)
    return ServerProcess(process, control, lease)


if __name__ == "__main__":
    load(sys.argv[3:])
    serve(int(sys.argv[1]), int(sys.argv[2]))
