"""Files that an agent follows."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

from bench.growth.units import Unit
from bench.servers import Klamm

WAIT_S = 300.0


class Files(Unit):
    """Files that have been read to their end, and may grow."""

    name = "followed files"
    counts = (10, 100, 1000, 5000)
    holder = "agent"

    def __init__(self, work: Path) -> None:
        super().__init__(work)
        self._broker = Klamm(work / "broker")
        self._process: subprocess.Popen[bytes] | None = None
        self._config = work / "agent.toml"

    def start(self) -> None:
        self._broker.start()
        (self.work / "logs").mkdir()
        self._config.write_text(
            f'bootstrap_servers = "{self._broker.bootstrap}"\nstate_dir = "{self.work}/state"\n'
            f'[[inputs]]\npaths = ["{self.work}/logs/*.log"]\ntopic = "growth"\n'
        )
        self._run()

    def _run(self) -> None:
        with (self.work / "agent.log").open("ab") as log:
            self._process = subprocess.Popen(
                [str(Path(sys.executable).with_name("klamm")), "agent", "start", str(self._config)],
                stdout=subprocess.PIPE,
                stderr=log,
            )
        assert self._process.stdout is not None
        if not self._process.stdout.readline():
            raise RuntimeError((self.work / "agent.log").read_text())

    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def grow(self, count: int) -> None:
        for n in range(count):
            (self.work / f"logs/{n}.log").write_text("a line\n" * 10)
        self._wait(count)

    def _wait(self, count: int) -> None:
        """Waits until all files are read to their end. Raises TimeoutError with how far it came."""
        deadline = time.monotonic() + WAIT_S
        while (done := self._read_to_end()) < count:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{done} of {count} files are read after {WAIT_S:.0f} s")
            time.sleep(0.5)

    def _read_to_end(self) -> int:
        klamm = str(Path(sys.executable).with_name("klamm"))
        asked = [klamm, "agent", "status", str(self._config), "-o", "json"]
        said = json.loads(subprocess.run(asked, capture_output=True, check=False).stdout or b"{}")
        return sum(file.get("lag_bytes", 1) == 0 for file in said.get("tracked", []))

    def again(self) -> float:
        assert self._process is not None
        self._process.terminate()
        self._process.wait(60)
        began = time.monotonic()
        self._run()
        return time.monotonic() - began

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            self._process.wait(60)
        self._broker.stop()
