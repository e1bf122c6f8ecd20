"""A day in the life: install, use, watch, break, mend, back up, lose and restore a system, and compare all that it held.

    python examples/day_in_the_life/day.py [--place DIR]

`python` is that of an environment that has Klamm and its extra `schemas`. The script prints each step and what it saw, and ends with a table and exit code 0, or 1 where something is not as it
was. It works in DIR (klamm-day), which must not be there, and removes its services at the end; DIR stays.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import socket
import sys
import threading
import time
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

import state
from browser import make_connector
from servers import KLAMM, Servers, Stop, choose, run, say, wait

KINDS: Final = ("broker", "registry", "connect", "lag", "console")
ORDERS: Final = 1000
SCHEMA: Final = {
    "type": "record", "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "item", "type": "string"}],
}  # fmt: skip
SINK: Final = "archive"
FILES: Final = "files"
"""The folder that connectors read and write; a service may write nothing else but its data."""


class Pager(ThreadingHTTPServer):
    """Somebody's pager: a webhook that prints what it is told."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Call)
        self.calls: list[dict[str, Any]] = []
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/"

    def called(self, event: str) -> bool:
        return any(call["event"] == event and call["group"] == f"connect-{SINK}" for call in self.calls)


class _Call(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        call = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        assert isinstance(self.server, Pager)
        self.server.calls.append(call)
        lag = call["result"].get("totallag") if isinstance(call.get("result"), dict) else None
        say(f"  the pager: {call['event']} {call['group']} {call['status']}, {lag} records behind")
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Says nothing."""


class Day:
    """The system of the day: its folder, addresses and servers."""

    def __init__(self, place: Path, servers: Servers, pager: Pager) -> None:
        self.place, self.servers, self.pager = place, servers, pager
        ports = _free_ports(len(KINDS))
        self.address = {kind: f"127.0.0.1:{port}" for kind, port in zip(KINDS, ports, strict=True)}
        self.url = {kind: f"http://{address}" for kind, address in self.address.items()}
        self.bootstrap = self.address["broker"]

    def settings(self) -> dict[str, dict[str, str]]:
        """Returns the properties of each server."""
        storage = {
            f"{which}.storage.{key}": value
            for which in ("config", "offset", "status")
            for key, value in (
                ("topic", f"connect-{which}s" if which != "status" else "connect-status"),
                ("replication.factor", "1"),
            )
        }
        json_converter = "org.apache.kafka.connect.json.JsonConverter"
        over = {kind: {"bootstrap.servers": self.bootstrap, "listeners": self.url[kind]} for kind in KINDS}
        return {
            "broker": {"listeners": f"PLAINTEXT://{self.bootstrap}", "log.dirs": str(self.place / "disk")},
            "registry": {**over["registry"], "kafkastore.topic.replication.factor": "1"},
            "connect": {
                **over["connect"], "group.id": "connect-day", **storage, "offset.flush.interval.ms": "1000",
                "key.converter": json_converter, "value.converter": json_converter,
            },
            # Impatient, for a day of a minute: a group is bad that has not committed for 5 s
            "lag": {
                "listeners": self.url["lag"], "history.dir": str(self.place / "lag"), "evaluator.minimum-stop": "5",
                "cluster.local.bootstrap.servers": self.bootstrap, "cluster.local.offset-refresh": "1",
                "storage.intervals": "4", "storage.group-allowlist": "^connect-", "notifier.pager.class-name": "http",
                "notifier.pager.url-open": self.pager.url, "notifier.pager.threshold": "2",
            },
            "console": {**over["console"], "connect.url": self.url["connect"], "registry.url": self.url["registry"]},
        }  # fmt: skip

    def config(self, kind: str) -> Path:
        return self.place / "etc" / f"{kind}.properties"

    def wait_for_sink(self, records: int) -> None:
        archive = self.place / FILES / "archive.txt"
        wait(
            lambda: len(archive.read_text(encoding="utf-8").splitlines()) >= records,
            f"{records} lines in {archive.name}",
        )
        say(f"  {archive.name} has {records} orders")


def install(day: Day) -> None:
    """Install the servers."""
    for folder in ("etc", FILES):
        (day.place / folder).mkdir(parents=True)
    for kind, settings in day.settings().items():
        day.config(kind).write_text(
            "".join(f"{key}={value}\n" for key, value in settings.items()), encoding="utf-8"
        )
        day.servers.install(kind, day.config(kind), day.place / FILES if kind == "connect" else None)


def examine(day: Day) -> None:
    """Ask the doctor."""
    files = ("--broker", str(day.config("broker")), "--connect", str(day.config("connect")))
    run("doctor", *files, "-b", day.bootstrap, "--url", day.url["connect"])


def register(day: Day) -> None:
    """Register a schema, and write orders by it."""
    schema = day.place / "order.avsc"
    schema.write_text(json.dumps(SCHEMA), encoding="utf-8")
    run("schema", "register", "orders-value", str(schema), "--url", day.url["registry"])
    run("topic", "create", "orders", "-p", "3", "-b", day.bootstrap)
    write_orders(day, 0, ORDERS)


def write_orders(day: Day, first: int, count: int) -> None:
    """Writes orders; returns when the broker has acknowledged all."""
    lines = "".join(
        f'order-{n};trace={n:x};{{"id": {n}, "item": "tea"}}\n' for n in range(first, first + count)
    )
    words = (
        "-f",
        "%k;%h;%v",
        "--value-format",
        "avro",
        "--registry",
        day.url["registry"],
        "-b",
        day.bootstrap,
    )
    run("produce", "orders", *words, stdin=lines)
    say(f"  {count} orders are acknowledged")


def connect(day: Day) -> None:
    """Make a connector in the console's form, and another one by a command."""
    config = {
        "name": SINK, "connector.class": "FileStreamSink", "tasks.max": "1", "topics": "orders",
        "file": str(day.place / FILES / "archive.txt"), "key.converter": "org.apache.kafka.connect.storage.StringConverter",
        "value.converter": "io.confluent.connect.avro.AvroConverter",
        "value.converter.schema.registry.url": day.url["registry"],
    }  # fmt: skip
    make_connector(day.url["console"], config)
    day.wait_for_sink(ORDERS)
    inbox = day.place / FILES / "inbox.txt"
    inbox.write_text("".join(f"line {n}\n" for n in range(100)), encoding="utf-8")
    settings = ("connector.class=FileStreamSource", f"file={inbox}", "topic=lines")
    words = [word for each in settings for word in ("-c", each)]
    run("connector", "create", "inbox", *words, "--url", day.url["connect"])
    wait(lambda: _count(day, "lines") == 100, "the source has read all lines")


def page_somebody(day: Day) -> None:
    """Break the connector by a record, and wait for the pager; mend it, and wait for the all-clear."""
    run("produce", "orders", "no order at all", "-k", "order-x", "-b", day.bootstrap)
    write_orders(day, ORDERS, 500)
    wait(lambda: day.pager.called("open"), "the pager rings")
    run("connector", "status", SINK, "--url", day.url["connect"])
    mend = ("errors.tolerance=all", "errors.deadletterqueue.topic.name=orders-dead",
            "errors.deadletterqueue.topic.replication.factor=1", "errors.deadletterqueue.context.headers.enable=true")  # fmt: skip
    words = [word for each in mend for word in ("--set", each)]
    run("connector", "config", SINK, *words, "--url", day.url["connect"])
    run("connector", "restart", SINK, "--url", day.url["connect"])
    day.wait_for_sink(ORDERS + 500)
    wait(lambda: day.pager.called("close"), "the pager's all-clear")
    say(f"  orders-dead has {_count(day, 'orders-dead')} record")


def kill(day: Day) -> None:
    """Kill broker and worker while orders are written."""
    failed: list[BaseException] = []

    def write() -> None:
        try:
            for part in range(5):
                write_orders(day, ORDERS + 500 + 100 * part, 100)
        except BaseException as e:
            failed.append(e)

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    for kind in ("broker", "connect"):
        say(f"  kill -9 of the {kind}: the process {day.servers.kill(kind)} is ready in its place")
    writer.join()
    if failed:
        raise Stop(f"orders could not be written: {failed[0]}")
    day.wait_for_sink(ORDERS + 1000)
    found = {json.loads(line)["key"] for line in run(
        "consume", "orders", "--from-beginning", "-e", "-o", "jsonl", "--value-format", "base64", "-b", day.bootstrap, show=False
    ).splitlines()}  # fmt: skip
    lost = {f"order-{n}" for n in range(ORDERS + 1000)} - found
    if lost:
        raise Stop(f"{len(lost)} acknowledged orders are lost, such as {min(lost)}")
    say(f"  none of {ORDERS + 1000} acknowledged orders is lost")


def back_up(day: Day) -> None:
    """Back up, and read the backup back."""
    folder = str(day.place / "backup")
    run("backup", "create", folder, "-b", day.bootstrap)
    run("backup", "verify", folder, "--against", day.bootstrap)


def lose(day: Day) -> None:
    """Stop everything, and lose the disk."""
    for kind in reversed(KINDS):
        day.servers.stop(kind)
    disk = day.place / "disk"
    lost = sum(file.stat().st_size for file in disk.rglob("*") if file.is_file())
    shutil.rmtree(disk)
    disk.mkdir(mode=0o700)
    say(f"  {disk} is empty: {lost:,} bytes are gone")


def restore(day: Day) -> None:
    """Start the broker alone, restore, and start the others."""
    day.servers.start("broker")
    run("backup", "restore", str(day.place / "backup"), "-b", day.bootstrap)
    for kind in KINDS[1:]:
        day.servers.start(kind)


def settled(day: Day) -> state.State:
    """Returns the state once both connectors run and have committed all that they read."""
    wait(
        lambda: (
            run("connector", "list", "-o", "json", "--url", day.url["connect"], show=False).count("RUNNING")
            >= 2
        ),
        "connectors run",
    )
    ends = {p: n for p in range(3) if (n := _ends(day, p))}

    def committed() -> bool:
        rows = json.loads(
            run("group", "describe", f"connect-{SINK}", "-o", "json", "-b", day.bootstrap, show=False)
        )
        return {row["partition"]: row["current_offset"] for row in rows if row["current_offset"]} == ends

    wait(committed, "the sink has committed what it read")
    time.sleep(2)  # a source commits its offsets each second
    return state.take(day.bootstrap, day.url["registry"], day.url["connect"])


def _ends(day: Day, partition: int) -> int:
    words = ("-p", str(partition), "--from-beginning", "-e", "-f", "%o\\n", "-b", day.bootstrap)
    found = run("consume", "orders", *words, show=False).split()
    return int(found[-1]) + 1 if found else 0


def _count(day: Day, topic: str) -> int:
    return len(
        run(
            "consume", topic, "--from-beginning", "-e", "-f", "%o\\n", "-b", day.bootstrap, show=False
        ).split()
    )


def _free_ports(count: int) -> list[int]:
    held = [socket.socket() for _ in range(count)]
    try:
        for each in held:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in held]
    finally:
        for each in held:
            each.close()


STEPS: Final = (install, examine, register, connect, page_somebody, kill, back_up, lose, restore)


def live(day: Day) -> bool:
    """Goes through the day; returns whether all came back. Raises Stop."""
    before: state.State = {}
    for number, step in enumerate(STEPS, 1):
        say(f"\n== {number}. {(step.__doc__ or '').splitlines()[0]}")
        if step is back_up:
            before = settled(day)
        step(day)
    say(f"\n== {len(STEPS) + 1}. Compare.")
    return state.compare(before, settled(day))


def main(words: Sequence[str]) -> int:
    """Runs the script; returns its exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--place", type=Path, default=Path("klamm-day"), help="the folder of the day; klamm-day"
    )
    parser.add_argument("--run-as", help="the system user of the services; klamm, made if it is missing")
    parser.add_argument("--no-systemd", action="store_true", help="start the servers without it")
    given = parser.parse_args(words)
    place = given.place.absolute()
    if not KLAMM.exists():
        say(
            f"{sys.executable} has no klamm: run this by the python of an environment that has it (pip install '.[schemas]')"
        )
        return 2
    try:
        place.mkdir(parents=True)
    except OSError as e:
        why = "is there" if isinstance(e, FileExistsError) else f"cannot be made ({e.strerror})"
        say(f"{place} {why}: remove it, or give another --place")
        return 2
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the servers must not outlive this script
    servers = None
    for found in choose(place, given.run_as, systemd=not given.no_systemd):
        if isinstance(found, str):
            say(found)
        else:
            servers = found
    assert servers is not None, "one of both"
    good, began = False, time.monotonic()
    try:
        good = live(Day(place, servers, Pager()))
        say(f"\n{'all is as it was' if good else 'NOT all is as it was'} ({time.monotonic() - began:.0f} s)")
    except Stop as e:
        say(f"\nstopped: {e}")
    except KeyboardInterrupt:
        say("\nstopped by a signal")
    finally:
        servers.close()
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
