"""The child's end of the control channel: its thread listens while the main thread calls plugins.

It takes orders (stop, pause, resume), carries requests in both directions and reports progress every half
second, or every few seconds where there is none. When the worker is gone, it ends the process at once, whatever the main thread does; records that are
not committed are delivered again.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import queue
import select
import signal
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Any, Final

import orjson

from klamm.connect.child.vitals import Vitals
from klamm.connect.children.channel import BlockingChannel, ChannelError, Message
from klamm_plugins.errors import ConnectError

log = logging.getLogger(__name__)

# Short enough for a live progress display, long enough to cost nothing.
REPORT_INTERVAL_S: Final = 0.5
# A report that says nothing new comes so seldom: a worker may have thousands of idle tasks.
QUIET_INTERVAL_S: Final = 5.0
# After so long without news, the vitals are looked at as seldom, too, until `Vitals.wake` is called.
CALM_S: Final = 5.0
# The time limit for a request to the worker, which may first have to read the offset topic to its end.
CALL_TIMEOUT_S: Final = 60.0
EXIT_ORPHANED: Final = 70
_DEFAULT_STOP_S: Final = 5.0
_NEWS: Final = 0  # in the pipe of signals: no signal has this number


class Reports:
    """Decides which reports are worth sending: those with something new, and some to show that the task lives."""

    def __init__(self) -> None:
        self._sent: dict[str, Any] = {}
        self._sent_s = 0.0
        self._news_s = 0.0

    def calm(self, now: float) -> bool:
        """Tells whether there was nothing new for a while."""
        return now - self._news_s > CALM_S

    def news(self, report: dict[str, Any], now: float, quiet_s: float) -> dict[str, Any] | None:
        """Returns `report` if it is to be sent now (monotonic s). `beats`, which always grow, are no news."""
        told = {**report, "beats": 0}
        if told != self._sent:
            self._news_s = now
        elif now - self._sent_s < quiet_s:
            return None
        self._sent, self._sent_s = told, now
        return report


class Control:
    """Orders, requests and reports. The main thread makes it; `start` begins to listen.

    `stopping` is what plugins see as `context.stopping`. `requests` holds the worker's requests for the main
    thread; `answer` replies to them. Reports without news come each `quiet_s` seconds. Caught signals are written to `signals_fd`. Every order sets `changed`,
    for a main thread that only waits for orders.
    """

    def __init__(self, channel: BlockingChannel) -> None:
        self.vitals = Vitals()
        self.stopping = threading.Event()
        self.changed = threading.Event()
        self.paused = False
        self.quiet_s = QUIET_INTERVAL_S
        self.update: dict[str, str] | None = None
        self.signals: queue.SimpleQueue[dict[str, Any]] | None = None  # None: the plugin takes none
        # Returns the error of a signal that the plugin refuses.
        self.judge_signal: Callable[[Message], dict[str, Any] | None] = lambda _: None
        self.requests: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self._signals_r, self.signals_fd = os.pipe()
        os.set_blocking(self.signals_fd, False)
        self._stop_asked_at: float | None = None
        self._stop_within_s = _DEFAULT_STOP_S
        self._channel = channel
        self._closed = False
        self._ids = itertools.count(1)
        self._calls: dict[int, Future[Any]] = {}
        self._thread = threading.Thread(target=self._run, name="control", daemon=True)

    def start(self, early: Iterable[Message] = ()) -> None:
        """Begins to listen. `early` are messages that have already arrived."""
        for message in early:
            self._handle(message)
        self._thread.start()

    def close(self) -> None:
        """Ends the channel and the thread, where the process goes on with others."""
        self._closed = True
        self._channel.shut_down()
        self._thread.join()
        # A thread that a plugin has left behind would write to whoever gets the descriptor next.
        self.vitals.wake = None
        self._channel.close()
        os.close(self._signals_r)
        os.close(self.signals_fd)

    def expect_silence(self, limit_ms: int) -> None:
        """Makes reports so frequent that a silence of `limit_ms` means a hang."""
        self.quiet_s = min(QUIET_INTERVAL_S, limit_ms / 4000)

    def notify(self, event: str, **fields: Any) -> None:
        """Sends an event to the worker."""
        try:
            self._channel.send({"event": event, **fields})
        except OSError:
            if not self._closed:
                os._exit(EXIT_ORPHANED)

    def call(self, method: str, params: dict[str, Any]) -> Any:
        """Asks the worker. Raises ConnectError with the worker's sentence, or when it does not answer in
        time.
        """
        try:
            return self.ask(method, params).result(CALL_TIMEOUT_S)
        except TimeoutError:
            raise ConnectError(f"The worker did not answer {method} within {CALL_TIMEOUT_S:g} s") from None

    def ask(self, method: str, params: dict[str, Any]) -> Future[Any]:
        """Asks the worker without waiting. Returns the answer to come, or the ConnectError with its sentence."""
        number = next(self._ids)
        future: Future[Any] = Future()
        self._calls[number] = future
        self._channel.send({"id": number, "method": method, "params": params})
        return future

    def answer(self, request: Message, **outcome: Any) -> None:
        """Replies to one of `requests` with `result=` or `error=`."""
        self._channel.send({"id": request["id"], **outcome})

    def ask_to_stop(self, within_s: float = _DEFAULT_STOP_S) -> None:
        """Makes the main loop end. SIGTERM does so, too."""
        self._stop_within_s = within_s
        self._stop_asked_at = time.monotonic()
        self.stopping.set()
        self.changed.set()

    def stop_remaining_s(self, share: float = 0.8) -> float:
        """Returns how much of `share` of the time for a graceful stop is left, at least 0."""
        asked_at = self._stop_asked_at
        elapsed = 0.0 if asked_at is None else time.monotonic() - asked_at
        return max(0.0, self._stop_within_s * share - elapsed)

    def wait_for_order(self, timeout_s: float) -> None:
        """Sleeps until an order comes or the time is over."""
        self.changed.wait(timeout_s)
        self.changed.clear()

    def _run(self) -> None:
        try:
            self._serve()
        except BaseException:
            log.exception("the control channel broke; a task that cannot be controlled must not go on")
            os._exit(EXIT_ORPHANED)

    def _serve(self) -> None:
        due = time.monotonic()
        reports = Reports()
        # select() takes no descriptor from 1024 on: tasks that share a process may have more.
        poller = select.poll()
        for source in (self._channel, self._signals_r):
            poller.register(source, select.POLLIN)
        while True:
            now = time.monotonic()
            if now >= due:
                due = now + self._report(reports, now)
            ready = {fd for fd, _ in poller.poll(max(0.0, due - time.monotonic()) * 1000)}
            if self._signals_r in ready:
                written = os.read(self._signals_r, 64)
                if signal.SIGTERM in written:
                    self.ask_to_stop()
                if _NEWS in written:
                    due = min(due, time.monotonic() + REPORT_INTERVAL_S)
            if self._channel.fileno() in ready and not self._listen():
                return

    def _report(self, reports: Reports, now: float) -> float:
        """Tells the worker what is new; returns the seconds until the next look."""
        if (report := reports.news(self.vitals.report(), now, self.quiet_s)) is not None:
            self.notify("progress", **report)
        if (tables := self.vitals.take_tables()) is not None:
            self.notify("metrics", tables=orjson.Fragment(tables))
        if not reports.calm(now):
            return REPORT_INTERVAL_S
        self.vitals.wake = self._wake
        return max(self.quiet_s, REPORT_INTERVAL_S)

    def _wake(self) -> None:
        """Makes the control thread look at the vitals soon. A full pipe wakes it, too."""
        with contextlib.suppress(BlockingIOError):
            os.write(self.signals_fd, bytes([_NEWS]))

    def _listen(self) -> bool:
        """Handles what has come; returns False after `close`."""
        try:
            messages = self._channel.receive()
        except (OSError, ChannelError):
            messages = None
        if self._closed:
            return False
        if messages is None:
            os._exit(EXIT_ORPHANED)
        for message in messages:
            self._handle(message)
        return True

    def _handle(self, message: Message) -> None:
        match message.get("method"):
            case None:
                self._answered(message)
            case "stop":
                self.ask_to_stop(message["params"]["timeout_s"])
            case "pause":
                self.paused = message["params"]["paused"]
                self.changed.set()
            case "signal":
                self._take_signal(message, self.signals)
            case "update":
                self.update = message["params"]["task_config"]
                self.changed.set()
            case _:
                self.requests.put(message)
                self.changed.set()

    def _take_signal(self, message: Message, signals: queue.SimpleQueue[dict[str, Any]] | None) -> None:
        if signals is not None and (error := self.judge_signal(message["params"])) is not None:
            self.answer(message, error=error)
            return
        if signals is not None:
            signals.put(message["params"])
        self.answer(message, result=signals is not None)

    def _answered(self, message: Message) -> None:
        future = self._calls.pop(message["id"])
        if "error" in message:
            future.set_exception(ConnectError(message["error"]["message"]))
        else:
            future.set_result(message["result"])
