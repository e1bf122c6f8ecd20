"""The fork server's side of processes that several of the worker's children share (`shared`): their doors and members."""

from __future__ import annotations

import select
import socket
from collections.abc import Collection, Iterator
from typing import Final

from klamm.connect.children.channel import ChannelError, Decoder, encode

_RECEIVE_BYTES: Final = 64 << 10


class HostProcess:
    """A shared process: its pid, our end of its door, and the worker's ids of its members."""

    def __init__(self, name: str, pid: int, door: socket.socket) -> None:
        self.name = name
        self.pid = pid
        self.door = door
        self.members: set[int] = set()
        self.closed = False
        self._decoder = Decoder()

    def admit(self, child_id: int, fds: list[int]) -> bool:
        """Sends a member in. Returns False when the process is gone."""
        try:
            socket.send_fds(self.door, [encode({"id": child_id})], fds)
        except OSError:
            return False
        self.members.add(child_id)
        return True

    def ended(self) -> Iterator[tuple[int, int]]:
        """Yields members that have ended, with their exit codes."""
        try:
            data = self.door.recv(_RECEIVE_BYTES)
            messages = self._decoder.feed(data)
        except (OSError, ChannelError):
            data, messages = b"", []
        self.closed = not data  # its end will be reaped
        for message in messages:
            if message["id"] in self.members:
                self.members.discard(message["id"])
                yield message["id"], message["code"]


class Hosts:
    """The shared processes, and which of them take members. Their doors are registered with `poller`."""

    def __init__(self, poller: select.poll) -> None:
        self._poller = poller
        self._by_name: dict[str, HostProcess] = {}
        self._by_pid: dict[int, HostProcess] = {}
        self._by_door: dict[int, HostProcess] = {}

    def of(self, name: str) -> HostProcess | None:
        return self._by_name.get(name)

    def add(self, host: HostProcess) -> None:
        self._by_name[host.name] = self._by_pid[host.pid] = host

        self._by_door[host.door.fileno()] = host
        self._poller.register(host.door, select.POLLIN)

    def readable(self, fds: Collection[int]) -> list[HostProcess]:
        """Returns the processes whose doors are among these descriptors."""
        return [host for fd in fds if (host := self._by_door.get(fd)) is not None]

    def with_member(self, child_id: int) -> HostProcess | None:
        return next((host for host in self._by_pid.values() if child_id in host.members), None)

    def dismiss(self, host: HostProcess) -> None:
        """Closes the door: the process ends, and takes no more members."""
        if self._by_name.get(host.name) is host:
            del self._by_name[host.name]
        if self._by_door.pop(host.door.fileno(), None) is not None:
            self._poller.unregister(host.door)
            host.door.close()

    def gone(self, pid: int) -> set[int]:
        """Forgets a process that has ended; returns the members that it had."""
        host = self._by_pid.pop(pid)
        self.dismiss(host)
        return host.members

    def close(self) -> None:
        """Closes all doors here, in a process that was forked."""
        for host in self._by_door.values():
            host.door.close()
