"""`type = "journald"`: systemd's journal through `journalctl -o export --follow`, after the last acknowledged entry.

journalctl writes into a pipe, which the agent reads without waiting. While nobody reads, journalctl waits, and the journal is the
queue. When journalctl ends, the reader starts it again after the last entry that it gave out.
"""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import tempfile
from collections.abc import Hashable
from typing import IO, Any, Final

from klamm_agent.config.readers import JournaldSettings
from klamm_agent.events import Dropped, Events
from klamm_agent.inputs.journal import Entry, Export, ExportError, Fields, time_of
from klamm_base.errors import ConfigError

log = logging.getLogger(__name__)

_READ: Final = 256 * 1024
_READS: Final = 4  # of one poll
_FIRST_PAUSE_S: Final = 1.0
_LONGEST_PAUSE_S: Final = 30.0
_ASK_S: Final = 20.0


class JournaldReader:
    """A reader of the journal, which follows from construction on. `checkpoint` is `{"cursor": …}`. Raises ConfigError when there is no
    journalctl.
    """

    path = "journald"

    def __init__(self, settings: JournaldSettings, *, parse: bool, checkpoint: Any) -> None:
        program = shutil.which(settings.journalctl)
        if program is None:
            raise ConfigError(
                f"an input of type journald needs {settings.journalctl}, which does not exist: it comes with systemd; "
                'name another one with journalctl = "/path/to/journalctl"'
            )
        self._command = [program, *_selection(settings)]
        self._parse = parse
        self._fields = Fields()
        self._acked: str | None = checkpoint.get("cursor") if isinstance(checkpoint, dict) else None
        self._lost: list[tuple[str, Dropped]] = []
        if self._acked is not None:
            self._check_cursor(self._acked)
        elif settings.start_position == "end":
            self._acked = self._ask("--lines=1")
        self._given = self._acked
        self._pause, self._again_at = 0.0, float("-inf")
        self._entries = self._restarts = 0
        self._why = ""
        self._process: subprocess.Popen[bytes] | None = None
        self._errors: IO[bytes] | None = None
        self._start()

    def poll(self, now: float) -> list[tuple[Events, Hashable]]:
        if self._process is None:
            if now < self._again_at:
                return []
            self._restarts += 1
            try:
                self._start()
            except (ConfigError, OSError) as e:  # systemd is being updated, or no descriptors are left
                self._ended(now, str(e))
                return []
        entries = self._read(now)
        if not entries:
            return []
        self._pause = 0.0
        self._entries += len(entries)
        cursor = entries[-1].get(b"__CURSOR", b"").decode(errors="replace")
        self._given = cursor or self._given
        return [(self._events(entries), self._given)]

    def _events(self, entries: list[Entry]) -> Events:
        times = [time_of(e) or 0.0 for e in entries]
        events = Events([e.get(b"MESSAGE", b"") for e in entries], self.path, times[-1])
        if self._parse:
            events.times = times
            events.fields = [self._fields.of(e) for e in entries]
        return events

    def acknowledged(self, position: Hashable) -> None:
        self._acked = str(position)

    def checkpoint(self) -> Any:
        """Returns the place to go on from after a start."""
        return None if self._acked is None else {"cursor": self._acked}

    def place(self, position: Hashable) -> Any:
        return {"cursor": str(position)}

    def finish(self) -> None:
        """Reads no more: the next start reads the rest."""
        self._stop()
        self._again_at = float("inf")

    def lost(self) -> list[tuple[str, Dropped]]:
        found, self._lost = self._lost, []
        return found

    def status(self) -> dict[str, Any]:
        running = self._process is not None
        return {"entries": self._entries, "running": running, "restarts": self._restarts, "error": self._why}

    def close(self) -> None:
        self.finish()

    def _start(self) -> None:
        command = [*self._command, "--output=export", "--follow"]
        command.append(f"--after-cursor={self._given}" if self._given else "--no-tail")
        self._export = Export()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - a pipe that nobody reads would stop it
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                env=_environment(),
            )
        except OSError as e:
            raise ConfigError(f"{command[0]} cannot be started: {e.strerror}") from e
        assert self._process.stdout is not None, "asked for"
        os.set_blocking(self._process.stdout.fileno(), False)

    def _read(self, now: float) -> list[Entry]:
        assert self._process is not None, "looked at by the caller"
        assert self._process.stdout is not None, "asked for"
        found: list[Entry] = []
        for _ in range(_READS):
            try:
                data = os.read(self._process.stdout.fileno(), _READ)
            except BlockingIOError:
                break
            if not data:
                self._ended(now, self._said())
                break
            try:
                found += self._export.feed(data)
            except ExportError as e:
                self._ended(now, f"journalctl does not write the export format: {e}")
                break
        return found

    def _said(self) -> str:
        """Returns the last line that journalctl wrote about its end."""
        if self._errors is None:
            return ""
        self._errors.seek(0)
        lines = self._errors.read(64 * 1024).decode(errors="replace").strip().splitlines()
        return f"journalctl ended: {lines[-1]}" if lines else "journalctl ended without a message"

    def _ended(self, now: float, why: str) -> None:
        self._stop()
        self._pause = min(max(_FIRST_PAUSE_S, self._pause * 2), _LONGEST_PAUSE_S)
        self._again_at = now + self._pause
        if why != self._why:
            log.warning("journald: %s; journalctl is started again", why)
        self._why = why

    def _stop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            assert process.stdout is not None, "asked for"
            process.stdout.close()
        if self._errors is not None:
            self._errors.close()
            self._errors = None

    def _check_cursor(self, cursor: str) -> None:
        """Notes a loss when the last acknowledged entry is gone from the journal: entries behind it may be gone, too."""
        found = self._ask("--no-tail", "--lines=1", f"--cursor={cursor}")
        if found is not None and found != cursor:
            reason = (
                "the journal has been vacuumed beyond the last acknowledged entry: entries may be missing"
            )
            self._lost.append((self.path, Dropped(reason, 0, 0, 0)))

    def _ask(self, *options: str) -> str | None:
        """Asks journalctl for one entry; returns its cursor, None when there is none."""
        command = [*self._command, "--output=export", "--no-pager", *options]
        try:
            done = subprocess.run(
                command, capture_output=True, timeout=_ASK_S, check=False, env=_environment()
            )
        except (OSError, subprocess.TimeoutExpired) as e:
            raise ConfigError(f"journald: {command[0]} gives no answer: {e}") from e
        entries = Export().feed(done.stdout + b"\n")
        return entries[0][b"__CURSOR"].decode() if entries and b"__CURSOR" in entries[0] else None


def _selection(settings: JournaldSettings) -> list[str]:
    options = ["--quiet"]
    if settings.directory is not None:
        options.append(f"--directory={settings.directory}")
    if settings.namespace:
        options.append(f"--namespace={settings.namespace}")
    options += [f"--unit={unit}" for unit in settings.units]
    return options + list(settings.matches)


def _environment() -> dict[str, str]:
    return os.environ | {"LC_ALL": "C"}
