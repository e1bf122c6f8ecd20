"""Klamm's log agent against rsyslog (imfile to omkafka), syslog-ng and Filebeat where they are, alternating in one run
on one broker.

    python -m bench.agent.compare [--runs 3] [--lines 2000000] [--format raw] [--rotate] [--write]

A file of 105-byte lines goes into a topic of one partition, lz4, acks=all. Both watch the one path. Measures MB/s from start to the last record
in the topic (start-up included, as both read a file that is there), CPU seconds per GB and the largest RSS of the shipper.
With `--rotate` the file is written in eight parts once the shipper runs, each renamed away 0.3 s after it is full, which
sets the pace: look at the lines that are missing and at the CPU.
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from abc import ABC, abstractmethod
from pathlib import Path

import psutil
from bench import arguments, report
from bench.broker import load
from bench.report import Row
from bench.servers import Klamm
from confluent_kafka import Consumer, TopicPartition

LINE = 105
PARTS = 8
WAIT_S = 60  # without any new record
SEEN_S = 0.3  # how long a full file keeps its name: no shipper finds what nobody could have seen
QUIET_S = 15  # the same while files rotate: longer than any shipper looks again
ROWS = [
    Row("mb_s", "file to topic, MB/s", 1),
    Row("cpu_gb", "CPU s per GB", 1),
    Row("rss_mb", "largest RSS, MB", 0),
]


class Shipper(ABC):
    name: str
    forms: tuple[str, ...] = ("raw",)

    @staticmethod
    def missing() -> str | None:
        """Why it cannot be measured here, or None."""
        return None

    def __init__(self, folder: Path, bootstrap: str, topic: str) -> None:
        folder.mkdir(parents=True)
        self.folder, self.bootstrap, self.topic = folder, bootstrap, topic

    @abstractmethod
    def command(self, log: Path, form: str) -> list[str]:
        """The command line of the shipper in the foreground; writes its configuration."""


class KlammAgent(Shipper):
    name = "klamm"
    forms = ("raw", "json")

    def command(self, log: Path, form: str) -> list[str]:
        config = self.folder / "agent.toml"
        config.write_text(
            f'bootstrap_servers = "{self.bootstrap}"\nstate_dir = "{self.folder / "state"}"\n'
            f"[agent]\nscan_interval_ms = 100\n"
            f'[[inputs]]\npaths = ["{log}"]\ntopic = "{self.topic}"\nformat = "{form}"\n'
        )
        return [str(Path(sys.executable).with_name("klamm")), "agent", "start", str(config)]


class Rsyslog(Shipper):
    name = "rsyslog"
    forms = ("raw", "json")

    @staticmethod
    def missing() -> str | None:
        if shutil.which("rsyslogd") is None:
            return "no rsyslogd on PATH (Debian: rsyslog)"
        if not list(Path("/usr/lib").glob("*/rsyslog/omkafka.so")):
            return "no omkafka (Debian: rsyslog-kafka)"
        return None

    def command(self, log: Path, form: str) -> list[str]:
        config = self.folder / "rsyslog.conf"
        template = (
            'template(name="line" type="string" string="%msg%")'
            if form == "raw"
            else 'template(name="line" type="list" option.jsonf="on") {\n'
            '  property(outname="@timestamp" name="timegenerated" dateFormat="rfc3339" format="jsonf")\n'
            '  property(outname="message" name="msg" format="jsonf")\n'
            '  property(outname="path" name="$!metadata!filename" format="jsonf")\n'
            '  property(outname="host" name="hostname" format="jsonf")\n}'
        )
        config.write_text(f"""\
global(workDirectory="{self.folder}" maxMessageSize="64k")
main_queue(queue.type="FixedArray" queue.size="100000" queue.dequeueBatchSize="2048")
module(load="imfile")
module(load="omkafka")
{template}
input(type="imfile" File="{log}" Tag="t" Ruleset="out" addMetadata="{"on" if form == "json" else "off"}" reopenOnTruncate="on")
ruleset(name="out") {{
  action(type="omkafka" broker="{self.bootstrap}" topic="{self.topic}" template="line" resubmitOnFailure="on"
    partitions.number="1" confParam=["compression.codec=lz4", "queue.buffering.max.messages=400000", "linger.ms=20",
    "acks=all"])
}}
""")
        return [
            "rsyslogd", "-n", "-f", str(config), "-i", str(self.folder / "pid"),
        ]  # fmt: skip


class SyslogNg(Shipper):
    name = "syslog-ng"

    @staticmethod
    def missing() -> str | None:
        if shutil.which("syslog-ng") is None:
            return "no syslog-ng on PATH (Debian: syslog-ng-core)"
        said = subprocess.run(["syslog-ng", "--version"], capture_output=True, text=True, check=False).stdout
        return None if "kafka" in said else "no Kafka destination (Debian: syslog-ng-mod-rdkafka)"

    def command(self, log: Path, form: str) -> list[str]:
        config = self.folder / "syslog-ng.conf"
        config.write_text(f"""\
@version: 3.35
options {{ stats-freq(0); }};
source files {{ file("{log}" flags(no-parse) follow-freq(0.1) log-fetch-limit(2000) log-iw-size(100000)); }};
destination topic {{ kafka-c(bootstrap-servers("{self.bootstrap}") topic("{self.topic}") message("${{MESSAGE}}") sync-send(no)
  log-fifo-size(200000) config(compression.codec("lz4") linger.ms("20") acks("all") queue.buffering.max.messages("400000"))); }};
log {{ source(files); destination(topic); flags(flow-control); }};
""")
        files = {"persist-file": "persist", "pidfile": "pid", "control": "ctl"}
        return [
            "syslog-ng", "--foreground", "--no-caps", "--cfgfile", str(config),
            *(f"--{option}={self.folder / name}" for option, name in files.items()),
        ]  # fmt: skip


class Filebeat(Shipper):
    name = "filebeat"

    @staticmethod
    def missing() -> str | None:
        return (
            None
            if shutil.which("filebeat")
            else "no filebeat on PATH (go build github.com/elastic/beats/v7/filebeat)"
        )

    def command(self, log: Path, form: str) -> list[str]:
        config = self.folder / "filebeat.yml"
        config.write_text(f"""\
filebeat.inputs:
- {{type: filestream, id: x, paths: ["{log}"], prospector.scanner.check_interval: 100ms, close.on_state_change.renamed: false}}
queue.mem: {{events: 32768, flush.min_events: 2048}}
output.kafka: {{hosts: ["{self.bootstrap}"], topic: "{self.topic}", codec.format.string: "%{{[message]}}", compression: lz4,
  required_acks: -1, bulk_max_size: 8192, version: "2.0.0"}}
path: {{data: "{self.folder / "data"}", logs: "{self.folder / "logs"}"}}
logging.level: error
""")
        return ["filebeat", "-e", "--strict.perms=false", "-c", str(config)]


def end_offset(watcher: Consumer, topic: str) -> int:
    return int(watcher.get_watermark_offsets(TopicPartition(topic, 0), 10)[1])


def write_lines(path: Path, first: int, count: int) -> None:
    with path.open("wb") as file:
        for begin in range(first, first + count, 10_000):
            end = min(begin + 10_000, first + count)
            file.write(b"".join(line(i) for i in range(begin, end)))


def line(i: int) -> bytes:
    text = b"%09d 2026-01-01T00:00:00.000Z INFO service=%d user=%d path=/api/v1/items/%d took=%dms" % (
        i, i % 7, i * 7919 % 1_000_003, i * 31 % 99_991, i % 997,
    )  # fmt: skip
    return text.ljust(LINE - 1, b".") + b"\n"


def rotating_writer(source: Path, log: Path) -> None:
    """Copies `source` into `log` in parts, each renamed away and followed by a new file."""
    size = source.stat().st_size // LINE // PARTS * LINE
    with source.open("rb") as lines:
        for part in range(PARTS):
            data = lines.read(size if part < PARTS - 1 else -1)
            with log.open("ab") as file:
                for at in range(0, len(data), 1 << 20):
                    file.write(data[at : at + (1 << 20)])
                    file.flush()
            time.sleep(SEEN_S)
            if part < PARTS - 1:
                log.rename(log.with_name(f"{log.name}.{part}"))


def measure(shipper: Shipper, source: Path, count: int, args: argparse.Namespace) -> dict[str, float]:
    log = shipper.folder / "app.log"
    if args.rotate:
        log.write_bytes(line(0))
    else:
        log.hardlink_to(source)
    command = shipper.command(log, args.format)
    watcher = Consumer({"bootstrap.servers": shipper.bootstrap, "group.id": "watch"})
    begin = time.monotonic()
    with (shipper.folder / "log.txt").open("wb") as errors:
        process = subprocess.Popen(command, stdout=errors, stderr=errors)
    try:
        watched, rss = psutil.Process(process.pid), 0
        if args.rotate:  # rotations begin when the shipper has begun: its first line is there
            while end_offset(watcher, shipper.topic) < 1:
                if process.poll() is not None or time.monotonic() - begin > WAIT_S:
                    raise RuntimeError(f"{shipper.name} did not begin")
                time.sleep(0.02)
            count, begin = count + 1, time.monotonic()
            threading.Thread(target=rotating_writer, args=(source, log), daemon=True).start()
        arrived, moved, times = 0, begin, watched.cpu_times()
        while arrived < count:
            now = time.monotonic()
            if args.rotate and arrived and now - moved > QUIET_S:
                break  # what has not come by now was lost at a rotation
            if process.poll() is not None or now - moved > WAIT_S:
                said = (shipper.folder / "log.txt").read_text(errors="replace")[-500:]
                raise RuntimeError(f"{shipper.name} stopped at {arrived} of {count} records: {said}")
            rss = max(rss, watched.memory_info().rss)
            before, arrived = arrived, end_offset(watcher, shipper.topic)
            if arrived != before:
                moved, times = now, watched.cpu_times()
            time.sleep(0.02)
        passed = moved - begin
    finally:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(30)
        process.kill()
        process.wait()
        watcher.close()
    size = arrived * LINE
    return {
        "mb_s": size / 1e6 / passed,
        "cpu_gb": (times.user + times.system) / (size / 1e9),
        "rss_mb": rss / 1e6,
        "missing": count - arrived,
    }


def main() -> int:
    parser = arguments.parser(__doc__)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--lines", type=int, default=2_000_000)
    parser.add_argument("--format", choices=("raw", "json"), default="raw")
    parser.add_argument("--rotate", action="store_true", help="the file is written and rotated meanwhile")
    args = parser.parse_args()
    kinds: list[type[Shipper]] = []
    for kind in (KlammAgent, Rsyslog, SyslogNg, Filebeat):
        missing = kind.missing() if args.format in kind.forms else f"not measured with {args.format}"
        if missing is None:
            kinds.append(kind)
        else:
            print(f"{kind.name} is left out: {missing}", file=sys.stderr)
    results: report.Results = {kind.name: [] for kind in kinds}
    with tempfile.TemporaryDirectory(prefix="klamm-bench-") as tmp:
        source = Path(tmp) / "source.log"
        write_lines(source, 0, args.lines)
        broker = Klamm(Path(tmp) / "broker")
        broker.start()
        try:
            for run in range(args.runs):
                for kind in kinds if run % 2 == 0 else kinds[::-1]:
                    topic = load.create_topic(broker.bootstrap, 1)
                    shipper = kind(Path(tmp) / f"{kind.name}-{run}", broker.bootstrap, topic)
                    result = measure(shipper, source, args.lines, args)
                    load.delete_topic(broker.bootstrap, topic)
                    shutil.rmtree(shipper.folder)
                    results[kind.name].append(result)
                    shown = ", ".join(f"{k}={v:.2f}" for k, v in result.items())
                    print(f"run {run + 1}/{args.runs} {kind.name}: {shown}", flush=True)
        finally:
            broker.stop()
    table = report.table(results, ROWS).replace("klamm / kafka", "klamm / rsyslog")
    lost = ", ".join(f"{name} {sum(r['missing'] for r in runs):,.0f}" for name, runs in results.items())
    text = (
        f"{table}\n\nLines that did not arrive, all runs together: {lost}.\n\n{report.spread(results, ROWS)}"
    )
    print(f"\n{text}")
    if args.write:
        options = f"--runs {args.runs} --lines {args.lines} --format {args.format}{' --rotate' * args.rotate}"
        about = (
            f"`python -m bench.agent.compare {options}`, {report.machine()}; medians; one broker of Klamm's for both, a topic "
            "of one partition, lz4, acks=all; start-up counts."
        )
        name = f"bench/agent/{args.format}{'-rotate' * args.rotate}"
        report.write(
            name, f"## Log files to topic ({args.format}{', rotating' * args.rotate})\n\n{about}\n\n{text}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
