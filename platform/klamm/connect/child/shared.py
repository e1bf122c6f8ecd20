"""A process that a connector and its tasks share, where `task.processes=connector` says so.

Each of them is a member: a thread with a control socket and an output of its own. For the worker it looks like a process
of its own, with the same pid. The fork server sends new members through the door, a socket, and hears there which
have ended. Standard output and standard error, and log records of threads that plugins start, go to the oldest member's
output. SIGTERM stops all members, also one that waits for its order.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import signal
import socket
import sys
import threading
from typing import Final

from klamm.connect.child import main
from klamm.connect.child.control import EXIT_ORPHANED, Control
from klamm.connect.children.channel import Decoder, Message, encode

log = logging.getLogger(__name__)

_RECEIVE_BYTES: Final = 64 << 10
_FDS_PER_MEMBER: Final = 2


class Host:
    """The members of this process. The main thread runs it; each member has a thread."""

    def __init__(self, door: socket.socket) -> None:
        self._door = door
        self._lock = threading.Lock()
        self._outputs: dict[int, int] = {}  # by member, the oldest first
        self._controls: dict[int, Control] = {}
        self._stopped_early: set[int] = set()  # members that SIGTERM found without an order
        self._member = threading.local()
        self._signals_r, self._signals_w = os.pipe()
        os.set_blocking(self._signals_w, False)

    def run(self) -> int:
        """Takes members in until the fork server closes the door, which it does when the last one has ended."""
        main.reset_signals(self._signals_w)
        main.log_to(_Output(self))
        main.tell_stacks()
        decoder, fds = Decoder(), list[int]()
        poller = select.poll()  # with a thousand such processes descriptors are beyond those of select()
        for source in (self._door, self._signals_r):
            poller.register(source, select.POLLIN)
        while True:
            ready = {fd for fd, _ in poller.poll()}
            if self._signals_r in ready and signal.SIGTERM in os.read(self._signals_r, 64):
                self._stop_all()
            if self._door.fileno() not in ready:
                continue
            data, more, _, _ = socket.recv_fds(self._door, _RECEIVE_BYTES, 64)
            if not data:
                return EXIT_ORPHANED if self._outputs else 0
            fds += more
            for message in decoder.feed(data):
                self._admit(message, *fds[:_FDS_PER_MEMBER])
                del fds[:_FDS_PER_MEMBER]

    def _stop_all(self) -> None:
        with self._lock:
            controls = list(self._controls.values())
            self._stopped_early |= self._outputs.keys() - self._controls.keys()
        for control in controls:
            control.ask_to_stop()

    def _admit(self, message: Message, control_fd: int, output_fd: int) -> None:
        with self._lock:
            self._outputs[message["id"]] = output_fd
            if len(self._outputs) == 1:
                main.direct_output(output_fd)
        name = f"member {message['id']}"
        threading.Thread(target=self._live, args=(message["id"], control_fd), name=name, daemon=True).start()

    def _live(self, number: int, control_fd: int) -> None:
        """Runs a member from its order to its end."""
        self._member.number = number
        code = 1
        try:
            code = self._be(number, control_fd)
        except BaseException:
            log.exception("a member of this process ended in an error of Klamm's own")
        finally:
            self._leave(number)
            with contextlib.suppress(OSError):  # the fork server has ended, and so does this process
                self._door.sendall(encode({"event": "ended", "id": number, "code": code}))

    def _be(self, number: int, control_fd: int) -> int:
        channel = main.channel_of(control_fd)
        first = main.first_messages(channel)
        if first is None:
            channel.close()
            return EXIT_ORPHANED
        order, *more = first
        control = Control(channel)
        with self._lock:
            self._controls[number] = control
            stop = number in self._stopped_early
        if stop:
            control.ask_to_stop()
        try:
            return main.live(control, order, more)
        finally:
            with self._lock:
                del self._controls[number]
            control.close()

    def _leave(self, number: int) -> None:
        """Gives up a member's output. The next oldest member takes over what no member says for itself."""
        with self._lock:
            for stream in (sys.stdout, sys.stderr):
                stream.flush()
            output = self._outputs.pop(number)
            self._stopped_early.discard(number)
            heir = next(iter(self._outputs.values()), None)
            if heir is None:
                nowhere = os.open(os.devnull, os.O_WRONLY)
                main.direct_output(nowhere)
                os.close(nowhere)
            else:
                main.direct_output(heir)
            os.close(output)

    def write(self, text: str) -> None:
        """Writes lines to the output of the member whose thread this is."""
        with self._lock:
            output = self._outputs.get(getattr(self._member, "number", -1), 2)
            with contextlib.suppress(OSError):  # the worker does not read it any more
                os.write(output, text.encode(errors="replace"))


class _Output(logging.Handler):
    """Writes each record to the output of its member."""

    def __init__(self, host: Host) -> None:
        super().__init__()
        self._host = host

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._host.write(self.format(record) + "\n")
        except Exception:
            self.handleError(record)


def run(door: socket.socket, name: str, *, parent: int) -> int:
    """Runs the process for the members of a connector, a child of the fork server `parent`; returns the exit code."""
    if not main.begin(parent):
        return EXIT_ORPHANED
    main.set_name(name)
    return Host(door).run()
