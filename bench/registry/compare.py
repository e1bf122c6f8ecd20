"""The schema registry: reads by id, and registrations of new schemas, by so many clients at a time.

    python -m bench.registry.compare [--runs 3] [--seconds 5] [--clients 32] [--write]

Broker, registry and clients share the cores; the clients are one process that writes and reads plain HTTP. A registration is answered once its
record was committed and read back. CPU is the registry's alone. There is no peer: Confluent's registry cannot be had from Maven Central.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from bench import arguments, report

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from support.registry_process import RegistryProcess

from klamm.testing import EmbeddedBroker

ROWS = [
    report.Row("read", "schemas read by id, a second", 0),
    report.Row("read_cpu", "CPU of the registry for 1,000 reads, s", 2),
    report.Row("again", "registrations of a known schema, a second", 0),
    report.Row("new", "registrations of new schemas, a second", 0),
    report.Row("new_cpu", "CPU of the registry for 1,000 new schemas, s", 2),
    report.Row("new_p99", "a new schema, p99, ms", 1),
    report.Row("idle", "memory of the idle registry, MB", 0),
]
Request = Callable[[int], bytes]


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_mb(pid: int) -> float:
    text = Path(f"/proc/{pid}/status").read_text()
    return int(text.split("VmRSS:")[1].split()[0]) / 1024


async def client(port: int, request: Request, numbers: list[int], until: float, took: list[float]) -> None:
    """Sends one request after the other on a connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    while (now := time.monotonic()) < until:
        numbers[0] += 1
        writer.write(request(numbers[0]))
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200"), head
        length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
        await reader.readexactly(length)
        took.append(time.monotonic() - now)
    writer.close()


async def load(port: int, request: Request, clients: int, seconds: float, first: int) -> list[float]:
    took: list[float] = []
    until = time.monotonic() + seconds
    numbers = [first]
    await asyncio.gather(*(client(port, request, numbers, until, took) for _ in range(clients)))
    return took


def get(path: str) -> Request:
    data = f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode()
    return lambda _number: data


def post(name: Callable[[int], str], subject: Callable[[int], str]) -> Request:
    def make(number: int) -> bytes:
        record = {
            "type": "record",
            "name": name(number),
            "fields": [{"name": f"f{n}", "type": "long"} for n in range(10)],
        }
        body = json.dumps({"schema": json.dumps(record)}).encode()
        head = (
            f"POST /subjects/{subject(number)}/versions HTTP/1.1\r\nHost: x\r\n"
            f"Content-Type: application/vnd.schemaregistry.v1+json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body

    return make


def run(bootstrap: str, directory: Path, seconds: float, clients: int, number: int) -> dict[str, float]:
    topic = f"_schemas-{number}"
    more = {"kafkastore.topic": topic, "schema.registry.group.id": topic}
    with RegistryProcess(bootstrap, directory, **more) as registry:
        assert registry.process is not None
        pid, port = registry.process.pid, int(registry.url.rpartition(":")[2])
        found = {"idle": memory_mb(pid)}
        known = post(lambda _n: "Known", lambda _n: "known")
        asyncio.run(load(port, known, 1, 0.2, 0))

        def measure(request: Request, first: int = 0) -> tuple[list[float], float]:
            before = cpu_s(pid)
            took = asyncio.run(load(port, request, clients, seconds, first))
            return took, (cpu_s(pid) - before) / len(took) * 1000

        took, found["read_cpu"] = measure(get("/schemas/ids/1"))
        found["read"] = len(took) / seconds
        took, _ = measure(known)
        found["again"] = len(took) / seconds
        took, found["new_cpu"] = measure(post(lambda n: f"R{n}", lambda n: f"subject-{n}"))
        found["new"] = len(took) / seconds
        found["new_p99"] = sorted(took)[int(len(took) * 0.99)] * 1000
        return found


def main() -> int:
    parser = arguments.parser(__doc__)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--clients", type=int, default=32)
    asked = parser.parse_args()
    runs: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory() as folder, EmbeddedBroker(Path(folder) / "broker") as broker:
        for number in range(asked.runs):
            runs.append(
                run(broker.bootstrap, Path(folder) / str(number), asked.seconds, asked.clients, number)
            )
            print(runs[-1], flush=True)
    results = {"klamm": runs}
    text = (
        "## Schema registry\n\n"
        f"`python -m bench.registry.compare --write`, {report.machine()}; {asked.runs} runs of {asked.seconds:g} s, {asked.clients} clients at a time, "
        "medians. Broker, registry and clients share the cores. There is no peer: Confluent's registry is not at Maven Central.\n\n"
        f"{report.table(results, ROWS)}\n\n{report.spread(results, ROWS)}"
    )
    print(text)
    if asked.write:
        report.write("bench/registry", text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
