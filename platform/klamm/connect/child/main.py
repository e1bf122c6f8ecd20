"""A child's life: from the fork to its exit code.

The fork server calls it in the fresh child. It sets the process up (signals, death with its parent, output),
takes the first message, which names its role, and reports how the role ended. Exit codes: 0 stopped as asked,
1 failed (a `failed` event said why), 70 orphaned.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable
from typing import Final

from klamm.connect.child import failure
from klamm.connect.child.control import EXIT_ORPHANED, Control
from klamm.connect.children.channel import BlockingChannel, Message
from klamm_base.forking import set_command_line

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_NAME: Final = 15
_LIBC: Final = ctypes.CDLL(None) if sys.platform == "linux" else None


def run(control_fd: int, output_fd: int, *, parent: int) -> int:
    """Runs the child of fork server `parent`; returns the exit code."""
    if not begin(parent):
        return EXIT_ORPHANED
    direct_output(output_fd)
    os.close(output_fd)
    log_to(logging.StreamHandler(sys.stderr))
    tell_stacks()
    channel = channel_of(control_fd)
    first = first_messages(channel)
    if first is None:
        return EXIT_ORPHANED
    order, *more = first
    set_name(order["label"])
    control = Control(channel)
    reset_signals(control.signals_fd)
    return live(control, order, more)


def begin(parent: int) -> bool:
    """Binds the process's life to its fork server's. Returns False if that has ended."""
    if _LIBC is not None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        return False  # it died before the line above took effect
    with contextlib.suppress(PermissionError):
        os.setpgid(0, 0)  # the fork server does it too: whoever is first
    return True


def channel_of(control_fd: int) -> BlockingChannel:
    """Returns the channel to the worker at a descriptor."""
    sock = socket.socket(fileno=control_fd)
    sock.set_inheritable(False)
    return BlockingChannel(sock)


def live(control: Control, order: Message, more: list[Message]) -> int:
    """Runs the role that the order names, to its end; returns its exit code. `more` are messages that came with it."""
    control.paused = bool(order.get("spec", {}).get("paused"))
    control.start(more)
    return _be(order, control)


def _be(order: Message, control: Control) -> int:
    secrets: list[str] = list(order.get("hide", ()))
    try:
        _role(order["run"])(control, order, secrets)
    except BaseException as e:  # sys.exit() in a plugin is a failure like any other
        control.notify("failed", **failure.notice(e, secrets))
        return 1
    return 0


def _role(name: str) -> Callable[[Control, Message, list[str]], None]:
    """Returns a role's function. Only its module is imported (or preloaded): a child runs one of them."""
    match name:
        case "source" | "sink":
            from klamm.connect.child.task_host import run_task

            return run_task
        case "connector":
            from klamm.connect.child.connector_host import run_connector

            return run_connector
        case "call":
            from klamm.connect.child.calls import run_call

            return run_call
    raise ValueError(f"a child cannot be a {name!r}")


def first_messages(channel: BlockingChannel) -> list[Message] | None:
    """Returns the order and what came with it, such as a quick change of the worker's mind. None: the worker
    is gone.
    """
    while (messages := channel.receive()) is not None:
        if messages:
            return messages
    return None


def reset_signals(signals_fd: int) -> None:
    """Replaces the fork server's signal settings.

    SIGTERM (a service manager sends it to all processes) stops gracefully; SIGINT (from a terminal) is
    ignored, since the worker acts on it. The control thread acts on SIGTERM: a handler in the main thread
    might wait for a lock that the main thread holds.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: None)
    signal.set_wakeup_fd(signals_fd, warn_on_full_buffer=False)


def tell_stacks() -> None:
    """Makes SIGQUIT, as Java's, and a crash write the stacks of all threads to the output.

    This happens in C, so it works while a plugin holds the interpreter. The worker sends SIGQUIT before it
    kills a task that hangs.
    """
    faulthandler.enable(file=2, all_threads=True)
    faulthandler.register(signal.SIGQUIT, file=2, all_threads=True, chain=False)


def direct_output(output_fd: int) -> None:
    """Makes standard output and standard error lead to a descriptor."""
    os.dup2(output_fd, 1)
    os.dup2(output_fd, 2)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]


def log_to(handler: logging.Handler) -> None:
    """Makes this the only handler, of lines for the worker."""
    handler.setFormatter(_ForWorker())
    root = logging.getLogger()
    for old in root.handlers[:]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(logging.INFO)


class _ForWorker(logging.Formatter):
    """Formats each line as `<level>logger: text`; the worker logs it again at that level (`output`)."""

    def format(self, record: logging.LogRecord) -> str:
        lead = f"<{record.levelno:02d}>{record.name}: "
        return "\n".join(lead + line for line in super().format(record).splitlines())


def set_name(label: str) -> None:
    """Sets the name in `ps -o comm` and `top` (the label's last 15 bytes, which tell tasks apart) and in `ps
    aux`.
    """
    if _LIBC is not None:
        _LIBC.prctl(_PR_SET_NAME, ctypes.c_char_p(label.encode()[-15:]), 0, 0, 0)
        set_command_line(f"klamm connect: {label}".encode())
