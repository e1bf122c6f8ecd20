"""A long line to a server: `line.c`, compiled when it is first needed. Its own CPU time belongs to nobody's figures."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Self

from bench.servers import Server


@cache
def compiled() -> Path:
    """Returns the compiled program. Raises RuntimeError without a C compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        raise RuntimeError("a long line needs a C compiler: install gcc")
    program = Path(tempfile.mkdtemp(prefix="klamm-line-")) / "line"
    source = Path(__file__).with_name("line.c")
    subprocess.run([compiler, "-O2", "-o", str(program), str(source)], check=True)
    return program


class Line:
    """A line to the server's advertised port. `use` sets its length; without it, it is short and has no limit."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self._server.advertised_port}"

    def __enter__(self) -> Self:
        self.use()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def use(self, *, round_trip_ms: float = 0, bytes_per_s: int = 0, window: int = 0) -> None:
        """Replaces the line by another. Connections end."""
        self._stop()
        ports = str(self._server.advertised_port), str(self._server.port)
        self._process = subprocess.Popen(
            [str(compiled()), *ports, str(round_trip_ms / 2), str(bytes_per_s), str(window)],
            stdout=subprocess.PIPE,
        )
        _wait_for(self._server.advertised_port)

    def passed(self) -> tuple[int, int, int, int]:
        """Returns what has passed so far: bytes and pieces to the server, bytes and pieces back."""
        assert self._process is not None
        assert self._process.stdout is not None
        self._process.send_signal(signal.SIGUSR1)
        up, up_pieces, down, down_pieces = self._process.stdout.readline().split()
        return int(up), int(up_pieces), int(down), int(down_pieces)

    def _stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


def _wait_for(port: int) -> None:
    deadline = time.monotonic() + 10
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)


class Sender(Server):
    """A server that only sends, as fast as it can: it measures what a line gives."""

    name = "sender"

    def command(self) -> list[str]:
        raise NotImplementedError("it runs in a thread")

    def start(self) -> float:
        listener = socket.create_server(("127.0.0.1", self.port))
        threading.Thread(target=self._serve, args=(listener,), daemon=True).start()
        return 0.0

    def _serve(self, listener: socket.socket) -> None:
        while True:
            client, _ = listener.accept()
            threading.Thread(target=self._send, args=(client,), daemon=True).start()

    def _send(self, client: socket.socket) -> None:
        data = bytes(1 << 20)
        try:
            while True:
                client.sendall(data)
        except OSError:
            client.close()


def capacity(
    *, round_trip_ms: float, bytes_per_s: int, window: int, connections: int, seconds: float = 4
) -> float:
    """Returns the MB/s that so many connections together get through a line."""
    sender = Sender(Path())
    sender.advertised_port = sender.port
    while sender.advertised_port == sender.port:
        with socket.create_server(("127.0.0.1", 0)) as free:
            sender.advertised_port = free.getsockname()[1]
    sender.start()
    with Line(sender) as line:
        line.use(round_trip_ms=round_trip_ms, bytes_per_s=bytes_per_s, window=window)
        counts = [0] * connections
        stop = threading.Event()

        def receive(index: int) -> None:
            with socket.create_connection(("127.0.0.1", sender.advertised_port)) as s:
                buffer = bytearray(1 << 20)
                while not stop.is_set():
                    counts[index] += s.recv_into(buffer)

        for index in range(connections):
            threading.Thread(target=receive, args=(index,), daemon=True).start()
        time.sleep(1 + round_trip_ms / 1000)
        before, began = sum(counts), time.monotonic()
        time.sleep(seconds)
        rate = (sum(counts) - before) / (time.monotonic() - began) / 1e6
        stop.set()
        return rate
