"""An agent process on a folder of its own, a writer of numbered lines, and a reader of what arrived."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, TopicPartition
from support.broker import wait_until

from klamm_agent.files.tracked import TAIL, Print

KLAMM = str(Path(sys.executable).with_name("klamm"))


class AgentProcess:
    """`klamm agent start` with its configuration in `folder`; started and killed as often as a test likes."""

    def __init__(self, folder: Path, bootstrap: str, topic: str, *, more: str = "", top: str = "") -> None:
        self.folder, self.process = folder, None
        folder.mkdir(parents=True, exist_ok=True)
        self.state = folder / "state"
        self.config = folder / "agent.toml"
        self.config.write_text(
            f'bootstrap_servers = "{bootstrap}"\nstate_dir = "state"\n{top}\n[agent]\nscan_interval_ms = 50\ncheckpoint_interval_ms = 200\n'
            f'[[inputs]]\npaths = ["logs/**/*.log"]\ntopic = "{topic}"\nrotate_wait = "500ms"\nclose_inactive = "1500ms"\n{more}\n'
        )

    def start(self, *, wait: bool = True) -> str:
        with (self.folder / "agent.err").open("ab") as errors:
            self.process = subprocess.Popen(
                [KLAMM, "agent", "start", str(self.config), "--stats-interval", "1"],
                stdout=subprocess.PIPE,
                stderr=errors,
            )
        if not wait:
            return ""
        line = self.process.stdout.readline().decode()
        assert line.startswith("ready agent files="), self.log
        return line

    @property
    def log(self) -> str:
        return (self.folder / "agent.err").read_text()

    def status(self) -> dict:
        try:
            return json.loads((self.state / "status.json").read_text())
        except FileNotFoundError:
            return {}

    def begun(self) -> None:
        """Wait until its status is its own: that of the process before stays until then."""
        wait_until(lambda: self.status().get("pid") == self.process.pid, f"a status: {self.log[-500:]}")

    def kill(self) -> None:
        self.process.kill()
        self._ended()

    def stop(self, how: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(how)
        return self._ended()

    def _ended(self) -> int:
        code = self.process.wait(60)
        self.process.stdout.close()
        self.process = None
        return code

    def caught_up(self, timeout_s: float = 60) -> None:
        """Wait until everything that is there now is acknowledged."""

        def status_after(at: float) -> dict | None:
            s = self.status()
            return s if s.get("at", 0) > at and s["pid"] == self.process.pid else None

        def written(at: float) -> dict:
            return wait_until(lambda: status_after(at), f"a status: {self.log[-500:]}", timeout_s=timeout_s)

        # A look at all files lies between two of them
        now = written(written(time.time())["at"])
        deadline = time.monotonic() + timeout_s
        while now["lag_bytes"]:
            assert time.monotonic() < deadline, f"the agent does not catch up: {now} {self.log[-500:]}"
            now = written(now["at"])

    def acknowledged(self, path: Path) -> bool:
        """Returns whether the registry says that the whole of one file is acknowledged."""
        inode, size = path.stat().st_ino, path.stat().st_size
        # By content: an entry of before the last truncation may have the same size
        tail = Print.of(path.read_bytes()[-TAIL:])
        registry = self.state / "registry.json"
        files = json.loads(registry.read_text())["files"] if registry.exists() else []
        return any(
            f["inode"] == inode and f["offset"] == size and f["tail"] == [tail.length, tail.digest]
            for f in files
        )

    def has_acknowledged(self, path: Path) -> None:
        """Wait until the registry says that the whole of one file is acknowledged."""
        wait_until(lambda: self.acknowledged(path), f"{path} to be acknowledged")

    def close(self) -> None:
        if self.process is not None:
            self.kill()


class Writer(threading.Thread):
    """Appends numbered lines to a log and rotates it, by renaming or by copying and truncating."""

    def __init__(
        self, path: Path, name: str, *, rate: int = 4000, copytruncate: bool = False, pause=None
    ) -> None:
        super().__init__(daemon=True)
        self.path, self.name_, self.rate, self.copytruncate = path, name, rate, copytruncate
        self.pause = pause  # called before a truncation: copytruncate loses what nobody read
        self.count = self.rotations = 0
        self.stopping = threading.Event()
        self.failure: BaseException | None = None
        path.parent.mkdir(parents=True, exist_ok=True)

    def run(self) -> None:
        file = self.path.open("ab")
        batch, since = max(1, self.rate // 100), 0
        try:
            self.write(file, batch, since)
        except BaseException as e:  # `finish` raises it
            self.failure = e
        finally:
            self.file.close()

    def write(self, file, batch, since):
        self.file = file
        while not self.stopping.is_set():
            text = "".join(f"{self.name_}-{self.count + i:08d} {'x' * 80}\n" for i in range(batch))
            file.write(text.encode())
            file.flush()
            self.count += batch
            since += batch
            if since > self.rate // 3:
                since = 0
                file = self.file = self.rotate(file)
            time.sleep(0.01)

    def rotate(self, file):
        self.rotations += 1
        if self.copytruncate:
            self.pause(self.path)
            shutil.copy(self.path, self.path.with_suffix(f".copy{self.rotations}"))
            os.truncate(self.path, 0)
            return file
        # The last line of the old file has no end, and something is written to it after it was renamed.
        old = self.path.with_name(f"{self.path.stem}.{self.rotations}.old.log")
        self.path.rename(old)
        file.write(f"{self.name_}-{self.count:08d} after the renaming".encode())
        self.count += 1
        file.close()
        return self.path.open("ab")

    def finish(self) -> None:
        """Ends the lines. Raises what the thread raised."""
        self.stopping.set()
        self.join()
        if self.failure is not None:
            raise self.failure

    def ids(self) -> set[str]:
        return {f"{self.name_}-{i:08d}" for i in range(self.count)}


def arrived(bootstrap: str, topic: str) -> Counter[str]:
    """Returns how often each id is in the topic."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": f"read-{topic}", "enable.auto.commit": False}
    )
    found: Counter[str] = Counter()
    try:
        partitions = consumer.list_topics(topic, 60).topics[topic].partitions
        left = {}
        for p in partitions:
            low, high = consumer.get_watermark_offsets(TopicPartition(topic, p), 60)
            if high > low:
                left[p] = high
        consumer.assign([TopicPartition(topic, p, 0) for p in left])
        deadline = time.monotonic() + 60  # of a topic that gives nothing: there may be millions
        while left and time.monotonic() < deadline:
            messages = consumer.consume(5000, 0.5)
            if messages:
                deadline = time.monotonic() + 60
            for message in messages:
                if message.error():
                    raise KafkaException(message.error())
                found[message.value().split(b" ", 1)[0].decode()] += 1
                if message.offset() + 1 >= left.get(message.partition(), 1 << 62):
                    del left[message.partition()]
        assert not left, "the topic could not be read to its end"
        return found
    finally:
        consumer.close()
