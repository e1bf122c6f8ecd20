"""`python -m support.agent_soak --kills 200`: the log agent and its broker are killed while files rotate, and every line is compared.

One input follows files that are renamed, one files that are copied and truncated (with their copies), one parses, with a dead letter
topic and keys. The state directory is a small file system of its own, which is full at times; the agent is killed and started then, too.
At times the broker stands still while the agent is killed, so that requests of the dead agent come late, and at times another cluster
has its address. Old generations are removed once they are acknowledged, so that new files get their inodes. The exit code is 1 when a
line is missing, came twice, or was never written.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from agent.harness import AgentProcess, Writer
from confluent_kafka import Consumer, TopicPartition
from support.broker import new_topic

from klamm.testing import EmbeddedBroker

PAGE: Final = Path(__file__).parents[2] / "docs/reliability.md"
BEGIN, END = "<!-- soak/agent -->", "<!-- end soak/agent -->"  # bench/bars.py looks there
STATE_BYTES: Final = 48 << 20
ID: Final = re.compile(rb"[a-z]-\d{8}")
MORE: Final = """
[[inputs]]
paths = ["copied/**/*.log*"]
topic = "{copied}"
rotate_wait = "500ms"
close_inactive = "1500ms"
[[inputs]]
paths = ["parsed/**/*.log"]
topic = "{parsed}"
format = "json"
key = "path"
dead_letter_topic = "{dead}"
rotate_wait = "500ms"
close_inactive = "1500ms"
exclude_lines = ["^# "]
[[inputs.parse]]
type = "regex"
pattern = '^(?<id>j-\\d+[1-9]) '
on_error = "dead_letter"
"""
MODES: Final = {
    "no spool": "",
    "a spool while the broker is away": "[spool]\n",
    "a spool for everything": '[spool]\nwhen = "always"\nfsync = false\n',
    "small batches": '[producer]\n"batch.size" = "2000"\n',
}
KEPT: Final = 2
"""Generations of a log that stay, as `rotate 2` of logrotate."""
ROUND: Final = 50
"""Kills of a round."""
FAULTS: Final = {
    "kill the agent": 8,
    "kill the agent twice": 2,
    "kill the broker": 2,
    "kill both": 2,
    "keep the broker away": 2,
    "give the address to another cluster": 2,
    "kill the agent while the broker stands still": 2,
    "kill the agent, restart the broker in order": 1,
    "fill the disk": 2,
    "kill the agent on a full disk": 2,
    "stop the agent": 1,
    "reload": 1,
}


@dataclass(slots=True)
class Result:
    """The deeds and findings."""

    kills: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    rotations: int = 0
    removed: int = 0
    lines: int = 0
    missing: int = 0
    repeated: int = 0
    made_up: int = 0
    unproved: int = 0
    gaps: int = 0
    rounds: int = 0
    seconds: float = 0.0
    slowest_start: float = 0.0
    longest_resuming_ms: int = 0
    """The longest that an agent read its write-ahead log."""

    @property
    def good(self) -> bool:
        return not (self.missing or self.repeated or self.made_up or self.unproved)

    def add(self, other: Result) -> None:
        for name in (
            "kills",
            "rotations",
            "removed",
            "lines",
            "missing",
            "repeated",
            "made_up",
            "unproved",
            "gaps",
            "seconds",
        ):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.rounds += 1
        self.faults += other.faults
        self.slowest_start = max(self.slowest_start, other.slowest_start)
        self.longest_resuming_ms = max(self.longest_resuming_ms, other.longest_resuming_ms)

    def rows(self) -> list[tuple[str, float]]:
        return [
            ("kills of agent and broker", self.kills),
            *sorted(self.faults.items()),
            ("rotations", self.rotations),
            ("old generations that were removed", self.removed),
            ("lines written", self.lines),
            ("lines missing", self.missing),
            ("lines that came twice", self.repeated),
            ("lines that nobody wrote", self.made_up),
            ("lines that the agent calls unproved", self.unproved),
            ("ranges in the gap ledger that a copy had all the same", self.gaps),
            ("start after a kill: most for the write-ahead log, ms", self.longest_resuming_ms),
            ("start after a kill: most in all, s", round(self.slowest_start, 2)),
        ]


class SmallDisk:
    """A file system of its own for the state directory, which can be filled. It needs the right to mount."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True)
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={STATE_BYTES},mode=700", "tmpfs", str(folder)], check=True
        )

    def fill(self) -> None:
        with contextlib.suppress(OSError), (self._folder / "filler").open("ab", buffering=0) as filler:
            for size in (1 << 20, 4096, 1):
                with contextlib.suppress(OSError):
                    while filler.write(bytes(size)) == size:
                        pass

    def empty(self) -> None:
        (self._folder / "filler").unlink(missing_ok=True)

    def close(self) -> None:
        subprocess.run(["umount", "-l", str(self._folder)], check=True)


class Round:
    """One run in one folder, until so many processes are killed."""

    def __init__(
        self, work: Path, kills: int, seed: int, *, mode: str, rate: int, full_disk: bool, say=print
    ) -> None:
        self._random, self._say, self._kills = random.Random(seed), say, kills
        self.result = Result()
        self.broker = EmbeddedBroker(work / "data").start()
        self._other = work / "data of another cluster"
        self.topics = [new_topic(self.broker, 3) for _ in range(4)]
        more = MORE.format(copied=self.topics[1], parsed=self.topics[2], dead=self.topics[3])
        more += MODES[mode]
        self.agent = AgentProcess(work / "agent", self.broker.bootstrap, self.topics[0], more=more)
        self.disk = SmallDisk(self.agent.state) if full_disk else None
        self._faults = {k: v for k, v in FAULTS.items() if full_disk or "disk" not in k}
        folder = self.agent.folder
        self.writers = [
            *(Writer(folder / f"logs/{n}/app.log", n, rate=rate) for n in "pqr"),
            *(_Copied(folder / f"copied/{n}/app.log", n, rate=rate, copytruncate=True) for n in "tu"),
            _Parsed(folder / "parsed/app.log", "j", rate=rate),
        ]

    def run(self) -> Result:
        began = time.monotonic()
        self.agent.start()
        for writer in self.writers:
            writer.start()
        try:
            while self.result.kills < self._kills:
                time.sleep(self._random.uniform(0.05, 1.2))
                (fault,) = self._random.choices(list(self._faults), list(self._faults.values()))
                self.result.faults[fault] += 1
                self._do(fault)
                self._remove_old()
            if self.disk is not None:
                self.disk.empty()
            for writer in self.writers:
                writer.finish()
            self._say("all lines are written")
            self.agent.caught_up(300)
            self._say("caught up")
            time.sleep(12)  # copies that wait for their originals
            self.agent.caught_up(300)
            assert self.agent.stop() == 0, self.agent.log[-2000:]
            self._compare()
        finally:
            for writer in self.writers:
                writer.stopping.set()
            self.agent.close()
            self.broker.stop()
            if self.disk is not None:
                shutil.copytree(self.agent.state, self.agent.folder / "state.kept")
                self.disk.close()
        self.result.seconds = time.monotonic() - began
        return self.result

    def _do(self, fault: str) -> None:
        full = self.disk is not None and "full disk" in fault
        if self.disk is not None and ("disk" in fault):
            self.disk.fill()
            time.sleep(self._random.uniform(0, 1.5))
        if ("agent" in fault and "kill" in fault) or fault == "kill both":
            self._kill_agent(fault, times=2 if "twice" in fault else 1)
        elif fault == "kill the broker":
            self._kill_broker()
        elif fault == "keep the broker away":
            self._keep_broker_away()
        elif fault == "give the address to another cluster":
            self._keep_broker_away(EmbeddedBroker(self._other, port=self.broker.port))
        elif fault == "stop the agent":
            self.agent.stop()
            self._start()
        elif fault == "reload":
            os.kill(self.agent.process.pid, signal.SIGHUP)
        if full:
            time.sleep(self._random.uniform(0, 1))
        if self.disk is not None:
            self.disk.empty()

    def _remove_old(self) -> None:
        """Removes generations that are acknowledged, at times while no agent runs."""
        down = self._random.random() < 0.3
        if down:
            self.agent.kill()
            self.result.kills += 1
        for writer in self.writers:
            old = [path for path in writer.path.parent.iterdir() if path != writer.path]
            for path in sorted(old, key=lambda p: p.stat().st_mtime)[:-KEPT]:
                if self.agent.acknowledged(path):
                    path.unlink()
                    self.result.removed += 1
        if down:
            time.sleep(self._random.uniform(0, 0.7))  # the writers rotate meanwhile
            self._start()

    def _kill_agent(self, fault: str, times: int) -> None:
        paused = "stands still" in fault
        if paused:
            os.kill(self.broker.pid, signal.SIGSTOP)
            time.sleep(self._random.uniform(0, 0.3))
        for _ in range(times):
            self.agent.kill()
            self.result.kills += 1
            if fault == "kill both":
                self._kill_broker()
            if "restart" in fault:
                self.broker.stop()
                self.broker.start()
            self._start()
            time.sleep(self._random.uniform(0, 0.3) if times > 1 or paused else 0)
        if paused:
            os.kill(self.broker.pid, signal.SIGCONT)

    def _kill_broker(self) -> None:
        self.broker.kill()
        self.result.kills += 1
        self.broker.start()

    def _keep_broker_away(self, other: EmbeddedBroker | None = None) -> None:
        """Long enough for a spool to begin; the agent is killed at times meanwhile, and as the broker comes back. `other` has its address until
        then.
        """
        self.broker.kill()
        self.result.kills += 1
        if other is not None:
            other.start()
        for _ in range(self._random.randrange(3)):
            time.sleep(self._random.uniform(0.1, 1.5))
            self._restart_agent()
        time.sleep(self._random.uniform(0.1, 1.5))
        if other is not None:
            other.kill()
        self.broker.start()
        if self._random.random() < 0.5:
            time.sleep(self._random.uniform(0, 0.5))
            self._restart_agent()

    def _restart_agent(self) -> None:
        self.agent.kill()
        self.result.kills += 1
        self._start()

    def _start(self) -> None:
        since = time.monotonic()
        self.agent.start()
        self.result.slowest_start = max(self.result.slowest_start, time.monotonic() - since)

    def _compare(self) -> None:
        result = self.result
        expected: set[str] = set()
        for writer in self.writers:
            expected |= writer.ids()
            result.rotations += writer.rotations
        found: Counter[str] = Counter()
        for topic in self.topics:
            found += lines_of(self.broker.bootstrap, topic)
        result.lines = len(expected)
        missing, extra = expected - found.keys(), found.keys() - expected
        again = sorted(line for line, times in found.items() if times > 1)
        result.missing, result.made_up, result.repeated = len(missing), len(extra), found.total() - len(found)
        for what, lines in (("missing", sorted(missing)), ("twice", again), ("made up", sorted(extra))):
            if lines:
                self._say(f"{what}: {Counter(line[0] for line in lines)} {lines[:5]} … {lines[-3:]}")
        told = re.findall(
            r"(\d+) lines are sent again and may come twice|(\d+) of them for sure", self.agent.log
        )
        result.unproved = sum(int(a or b) for a, b in told)
        result.longest_resuming_ms = max(
            map(int, re.findall(r"to read it took (\d+) ms", self.agent.log)), default=0
        )
        ledger = self.agent.state / "gaps.jsonl"
        gaps = (
            [line for line in ledger.read_text().splitlines() if '"policy":true' not in line.replace(" ", "")]
            if ledger.exists()
            else []
        )
        result.gaps = len(gaps)
        for line in [*told, *gaps][:10]:
            self._say(f"the agent says: {line}")


class _Copied(Writer):
    """Copies and truncates without waiting for the agent, which follows the copies."""

    def rotate(self, file):
        self.rotations += 1
        shutil.copy(self.path, self.path.with_suffix(f".log.{self.rotations}"))
        os.truncate(self.path, 0)
        return file


class _Parsed(Writer):
    """Every tenth line does not parse, and there are lines that a filter leaves out."""

    def write(self, file, batch, since):
        file.write(b"# begin\n" * 100)
        super().write(file, batch, since)


def lines_of(bootstrap: str, topic: str) -> Counter[str]:
    """Returns how often each line is in a topic, in whatever form."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": f"read-{topic}", "enable.auto.commit": False}
    )
    found: Counter[str] = Counter()
    try:
        left = {}
        for p in consumer.list_topics(topic, 60).topics[topic].partitions:
            low, high = consumer.get_watermark_offsets(TopicPartition(topic, p), 60)
            if high > low:
                left[p] = high
        consumer.assign([TopicPartition(topic, p, 0) for p in left])
        deadline = time.monotonic() + 120
        while left:
            assert time.monotonic() < deadline, f"{topic} cannot be read to its end: {left}"
            for message in consumer.consume(10_000, 0.5):
                assert not message.error(), message.error()
                found[ID.search(message.value())[0].decode()] += 1
                if message.offset() + 1 >= left.get(message.partition(), 1 << 62):
                    del left[message.partition()]
        return found
    finally:
        consumer.close()


def table(result: Result, seed: int) -> str:
    """Returns what was done and found as Markdown."""
    rows = "\n".join(f"| {what} | {number:,} |" for what, number in result.rows())
    return (
        f"| what | number |\n|---|---|\n{rows}\n\nSeeds {seed} to {seed + result.rounds - 1}, {result.seconds / 60:.0f} minutes. A start in all is from the "
        "command to the first look at the files, beside broker and writers; most of it are Python's imports."
    )


def may_mount() -> bool:
    return os.geteuid() == 0 and shutil.which("mount") is not None


def one_round(kills: int, seed: int, asked: argparse.Namespace, mode: str) -> Result:
    """Runs a round in a temporary directory; what it leaves stays when it found something."""
    with tempfile.TemporaryDirectory(prefix="klamm-agent-soak-") as temporary:
        work = Path(temporary)
        round_ = Round(
            work, kills, seed, mode=mode, rate=asked.rate, full_disk=not asked.no_full_disk, say=say
        )
        try:
            return round_.run()
        finally:
            if not round_.result.good or not round_.result.lines:
                shutil.copytree(work / "agent", asked.keep / f"agent-{seed}", dirs_exist_ok=True)
                say(f"files, log and state are in {asked.keep / f'agent-{seed}'}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev soak agent", description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--rate", type=int, default=2000, help="lines a second of each of six files")
    parser.add_argument("--seed", type=int, default=None, help="default: random")
    parser.add_argument("--mode", choices=list(MODES), help="default: one after the other")
    parser.add_argument("--no-full-disk", action="store_true", help="for users who may not mount a tmpfs")
    parser.add_argument("--keep", type=Path, default=Path("soak-failures"), help="where failed rounds go")
    parser.add_argument("--write", action="store_true", help="write the table into docs/reliability.md")
    asked = parser.parse_args()
    if not asked.no_full_disk and not may_mount():
        parser.error("a full disk needs root, to mount a small tmpfs; --no-full-disk leaves it out")
    seed = random.randrange(1 << 20) if asked.seed is None else asked.seed
    whole = Result()
    modes = [asked.mode] if asked.mode else list(MODES)
    while whole.kills < asked.kills:
        mode = modes[whole.rounds % len(modes)]
        kills = min(ROUND, asked.kills - whole.kills)
        say(f"seed {seed + whole.rounds}, mode {mode!r}")
        result = one_round(kills, seed + whole.rounds, asked, mode)
        whole.add(result)
        say(", ".join(f"{what} {number:,}" for what, number in result.rows()))
    print(table(whole, seed))
    if asked.write:
        head, _, rest = PAGE.read_text().partition(BEGIN)
        _, _, tail = rest.partition(END)
        PAGE.write_text(f"{head}{BEGIN}\n{table(whole, seed)}\n{END}{tail}")
    return not whole.good


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S', time.gmtime())} {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
