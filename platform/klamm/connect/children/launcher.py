"""The worker's handle on a fork server: starts it, asks it for children, and starts a new one when it
dies.

Lives in the event loop. Invariant: every `Child` that was handed out gets its `exited` result, whatever
happens to the fork server. It gets the result only when its process is gone, with everything that
plugins started beside it in its session. The launcher decides nothing about restarts.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from klamm.connect.children.channel import AsyncChannel, Decoder, Message, encode
from klamm.connect.children.lease import LeaseKeeper
from klamm.connect.children.needs import Needs
from klamm.connect.children.orphans import kill_session
from klamm.connect.children.output import OutputLog
from klamm.connect.children.server_process import Process, ServerProcess, execute
from klamm_base.errors import KlammError

log = logging.getLogger(__name__)

# A fork takes milliseconds; a fork server that is silent for this long hangs and is replaced.
FORK_TIMEOUT_S: Final = 10.0
START_TIMEOUT_S: Final = 30.0
_LINGER_S: Final = 2.0
_DUMP_STEP_S: Final = 0.1
_RECEIVE_BYTES: Final = 64 << 10


class LaunchError(KlammError):
    """The fork server does not start, or is being replaced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exit:
    """The end of a child: exit code, or signal; `lost`: with its fork server, or (and by a signal) with another child of
    its process; `error` when it never began.
    """

    code: int | None = None
    signal: int | None = None
    error: str | None = None
    lost: bool = False

    def __str__(self) -> str:
        if self.lost:
            return "the process was ended with its fork server"
        if self.error:
            return self.error
        if self.signal is None:
            return f"the process exited with code {self.code}"
        name = signal.Signals(self.signal).name
        hint = " (by hand, or by the kernel when memory ran out)" if self.signal == signal.SIGKILL else ""
        return f"the process was killed by {name}{hint}"


class Child:
    """One child process. `exited` is done when its process is gone."""

    def __init__(self, id: int, label: str, server: _Server) -> None:
        loop = asyncio.get_running_loop()
        self.id = id
        self.label = label
        self.pid: int | None = None
        self.exited: asyncio.Future[Exit] = loop.create_future()
        self.forked: asyncio.Future[int] = loop.create_future()
        self.closed: asyncio.Future[None] = loop.create_future()
        self.channel: AsyncChannel | None = None
        self.output: OutputLog | None = None
        self._server = server

    def send(self, message: Message) -> None:
        """Send the child a message; it is dropped when the child is gone."""
        if self.channel is not None:
            self.channel.send(message)

    def kill(self) -> None:
        """Send SIGKILL to the child's whole process group, now."""
        self._server.kill(self.id)

    async def stacks(self, within_s: float) -> str:
        """Returns the stacks of the child's threads, as `faulthandler` writes them; empty when it does not answer
        in time.
        """
        output = self._stacks_output()
        if self.pid is None or output is None or self.exited.done():
            return ""
        output.keep()
        with contextlib.suppress(OSError):
            os.kill(self.pid, signal.SIGQUIT)
        until = asyncio.get_running_loop().time() + within_s
        said = -1
        # The lines are written one by one, so the dump is complete when nothing more comes.
        while said < len(output.kept or ()) or not said:
            said = len(output.kept or ())
            if asyncio.get_running_loop().time() > until:
                break
            await asyncio.sleep(_DUMP_STEP_S)
        return self.last_words()

    def last_words(self) -> str:
        """Returns the stack dump that the child's process wrote, on request or in a crash."""
        output = self._stacks_output()
        return "\n".join(output.kept or ()) if output is not None else ""

    def _stacks_output(self) -> OutputLog | None:
        """Returns the output that gets stacks: in a process that children share, that of the oldest of them."""
        return self._server.oldest_beside(self).output

    def on_closed(self, reason: Exception | None) -> None:
        """Kills the child, because it is useless without its control channel."""
        if not self.closed.done():
            self.closed.set_result(None)
        if isinstance(reason, OSError):
            # The process is gone and did not read everything that was sent. Its killer knows that, and `exited` tells
            # the rest.
            log.debug("[%s] its channel ended: %s", self.label, reason)
            self.kill()
        elif reason is not None:
            log.error("[%s] bad control message, ending it: %s", self.label, reason)
            self.kill()
        # A child that closed its channel and goes on (a plugin closed every descriptor) is beyond control.
        asyncio.get_running_loop().call_later(_LINGER_S, self._end)

    def _end(self) -> None:
        if not self.exited.done():
            self.kill()


class Launcher:
    """See the module. `site`: the folder of the environment that is laid over the worker's packages in all children.
    `preload`: modules that the fork server imports, so that no child needs to. `first`: a fork server that waits for us
    already.
    """

    def __init__(
        self, site: str | None = None, preload: Sequence[str] = (), first: ServerProcess | None = None
    ) -> None:
        self._site = site
        self._preload = preload
        self._first = first
        self._server: _Server | None = None
        self._starting: asyncio.Task[_Server] | None = None
        self._next_id = 0
        self._stopped = False

    @property
    def busy(self) -> bool:
        """True while the fork server has children, or starts for one."""
        return self._starting is not None or (self._server is not None and self._server.busy)

    @property
    def pid(self) -> int | None:
        """The fork server's pid."""
        return self._server.process.pid if self._server else None

    async def start(self) -> None:
        """Start the fork server. Raises LaunchError when it does not come up."""
        await self._ready()

    async def stop(self) -> None:
        """End the fork server, and with it every child that is left."""
        self._stopped = True
        if self._starting is not None:
            self._starting.cancel()
            await asyncio.gather(self._starting, return_exceptions=True)
        if self._server is not None:
            await self._server.stop()
            self._server = None

    async def spawn(
        self,
        label: str,
        on_message: Callable[[Message], None],
        needs: Needs | None = None,
        share: str | None = None,
    ) -> Child:
        """Fork a child; its first message tells it what to be. Raises LaunchError.

        `needs` is what the fork server imports before, if it is Klamm's own. Children with the same name as `share` are
        threads of one process.
        """
        while True:
            server = await self._ready()
            self._next_id += 1
            child = Child(self._next_id, label, server)
            try:
                await server.fork(child, on_message, needs, share)
            except TimeoutError:
                log.warning("the fork server (pid %d) does not answer, replacing it", server.process.pid)
                server.end()
                raise LaunchError(f"The fork server did not answer within {FORK_TIMEOUT_S:g} s") from None
            except ConnectionError as e:
                log.info(
                    "the fork server (pid %d) has just ended (%s): the next one is asked",
                    server.process.pid,
                    e,
                )
                await server.ended()
            except OSError as e:
                raise LaunchError(f"Cannot start a process: {e}") from e
            else:
                return child

    async def _ready(self) -> _Server:
        if self._stopped:
            raise LaunchError("The worker is stopping")
        if self._server is not None and not self._server.lost:
            return self._server
        if self._starting is None:
            self._starting = asyncio.create_task(self._start())
            self._starting.add_done_callback(self._started)
        return await asyncio.shield(self._starting)

    async def _start(self) -> _Server:
        begun, self._first = self._first, None
        try:
            return await _Server.start(begun or execute(self._site, self._preload))
        except OSError as e:
            raise LaunchError(f"Cannot start the fork server: {e}") from e

    def _started(self, task: asyncio.Task[_Server]) -> None:
        self._starting = None
        if not task.cancelled() and task.exception() is None:
            self._server = task.result()


class _Server:
    """One fork server process and its children."""

    def __init__(self, process: Process, control: socket.socket, keeper: LeaseKeeper) -> None:
        self.process = process
        self.lost = False
        self._stopping = False
        self._control = control
        self._keeper = keeper
        self._decoder = Decoder()
        self._children: dict[int, Child] = {}
        self._loop = asyncio.get_running_loop()
        self._ready: asyncio.Future[None] = self._loop.create_future()
        self._ended = asyncio.Event()
        self._loop.add_reader(control, self._readable)

    @property
    def busy(self) -> bool:
        return bool(self._children)

    @classmethod
    async def start(cls, begun: ServerProcess) -> _Server:
        begun.control.setblocking(False)
        keeper = LeaseKeeper(begun.lease)
        keeper.start()
        server = cls(begun.process, begun.control, keeper)
        try:
            await asyncio.wait_for(asyncio.shield(server._ready), START_TIMEOUT_S)
        except BaseException as e:
            await server.stop()
            if isinstance(e, TimeoutError):
                raise LaunchError(f"The fork server did not start within {START_TIMEOUT_S:g} s") from e
            raise
        return server

    async def fork(
        self, child: Child, on_message: Callable[[Message], None], needs: Needs | None, share: str | None
    ) -> None:
        ours, theirs = socket.socketpair()
        try:
            child.channel = await AsyncChannel.open(ours, on_message, child.on_closed)
        except BaseException:
            ours.close()
            theirs.close()
            raise
        output_r, output_w = os.pipe()
        output = child.output = OutputLog(child.label, output_r)
        child.exited.add_done_callback(lambda _: output.finish())
        self._children[child.id] = child
        try:
            request = encode({"method": "fork", "id": child.id, "needs": needs, "share": share})
            await self._send(request, [theirs.fileno(), output_w])
            theirs.close()
            os.close(output_w)
            output_w = -1
            await asyncio.wait_for(asyncio.shield(child.forked), FORK_TIMEOUT_S)
        except BaseException:
            theirs.close()
            if output_w >= 0:
                os.close(output_w)
            child.channel.close()
            self._settle(child.id, Exit(lost=True))
            raise

    def oldest_beside(self, child: Child) -> Child:
        """Returns the oldest child in the process of this one."""
        beside = [each for each in self._children.values() if each.pid is not None and each.pid == child.pid]
        return min(child, *beside, key=lambda each: each.id) if beside else child

    def kill(self, child_id: int) -> None:
        if self.lost or child_id not in self._children:
            return
        try:
            self._control.send(encode({"method": "kill", "id": child_id}))
        except OSError as e:
            # The socket is full or broken, so the fork server hangs or is dead; its end ends the children.
            log.warning("the fork server (pid %d) takes no requests (%s), replacing it", self.process.pid, e)
            self.end()

    def end(self) -> None:
        """Send SIGKILL. Popen's own `kill` might reap the process, whose pid must stay taken until `_bury` is done
        with it.
        """
        if self.process.returncode is None:
            os.kill(self.process.pid, signal.SIGKILL)

    async def ended(self) -> None:
        """Ends the process, if it has not ended, and waits until it and its children are settled."""
        self.end()
        await self._ended.wait()

    async def stop(self) -> None:
        self._stopping = True
        # Without its lease the fork server kills what is left and leaves.
        self._keeper.close()
        try:
            await asyncio.wait_for(self._ended.wait(), 2)
        except TimeoutError:
            self.end()
            await self._ended.wait()

    async def _send(self, data: bytes, fds: list[int]) -> None:
        deadline = self._loop.time() + FORK_TIMEOUT_S
        while not self.lost:
            try:
                # A message of some 200 bytes on a local stream is sent as a whole or not at all.
                socket.send_fds(self._control, [data], fds)
            except BlockingIOError:
                if self._loop.time() > deadline:
                    raise TimeoutError from None
                await asyncio.sleep(0.02)
            else:
                return
        raise ConnectionResetError("its control socket is closed")

    def _readable(self) -> None:
        try:
            data = self._control.recv(_RECEIVE_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._on_lost()
            return
        for message in self._decoder.feed(data):
            self._on_message(message)

    def _on_message(self, message: Message) -> None:
        match message["event"]:
            case "ready":
                self._ready.set_result(None)
            case "forked":
                child = self._children.get(message["id"])
                if child is not None and not child.forked.done():
                    child.pid = message["pid"]
                    child.forked.set_result(message["pid"])
            case "exited":
                how = Exit(
                    code=message["code"],
                    signal=message["signal"],
                    error=message["error"],
                    lost=message["lost"],
                )
                self._settle(message["id"], how)

    def _settle(self, child_id: int, how: Exit) -> None:
        child = self._children.pop(child_id, None)
        if child is None:
            return
        if not child.forked.done():
            child.forked.set_result(-1)
        if not child.exited.done():
            child.exited.set_result(how)

    def _on_lost(self) -> None:
        self.lost = True
        self._loop.remove_reader(self._control)
        self._control.close()
        self._lost_task = self._loop.create_task(self._bury())

    async def _bury(self) -> None:
        """Kill the rest of the fork server's session, reap it, then settle its children once their sockets show
        that they are gone. The kernel ends the children with the fork server, but not the processes that they
        have started.
        """
        if self._children:
            level = logging.DEBUG if self._stopping else logging.WARNING
            log.log(
                level, "the fork server (pid %d) ended with %d tasks", self.process.pid, len(self._children)
            )
        pids = [child.pid for child in self._children.values() if child.pid is not None]
        await asyncio.to_thread(kill_session, self.process.pid, pids)
        await asyncio.to_thread(self.process.wait)
        await asyncio.to_thread(self._keeper.close)
        waiting = [c.closed for c in self._children.values() if c.channel is not None]
        if waiting:
            await asyncio.wait(waiting, timeout=5)
        for child_id in list(self._children):
            self._settle(child_id, Exit(lost=True))
        if not self._ready.done():
            code = self.process.returncode
            self._ready.set_exception(LaunchError(f"The fork server ended at its start (exit {code})"))
        with contextlib.suppress(OSError):
            self._control.close()
        self._ended.set()
