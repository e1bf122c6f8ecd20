"""Klamm's broker against Apache Kafka in eighteen cells, the same C client and settings for both.

    python -m bench.broker.compare [--runs 3] [--cells produce-1k,ping-100b] [--share 1.0] [--write]

Both brokers run all the time and take turns in each cell, so that both are warm and meet the same machine; each cell
begins with a run of each that does not count. Measured: MB/s (1 MB = 1e6 bytes of record values), CPU seconds of the
broker per GB, p50 and p99 of single acknowledged messages; first of all seconds from exec to the first Metadata answer
and RSS. Machines are noisy: read the ratios, and CPU seconds before MB/s. Client and brokers share the cores.

Memory is touched before: a virtual machine pays up to 2 CPU s for a GB that its host has not given it yet, which either
broker would be charged with.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path

import confluent_kafka
from bench import arguments, report
from bench.broker import cells
from bench.broker.cells import CELLS, Cell
from bench.report import Row
from bench.servers import Kafka, Klamm, Server, free_port

IDLE_S = 3
WARM_SHARE = 0.4
TOUCHED_GB = 12
PROCESS_ROWS = [
    Row("start_s", "start to first Metadata answer, s", 2),
    Row("rss_idle_mb", "RSS idle, MB", 0),
    Row("rss_loaded_mb", "RSS after all cells, MB", 0),
]
CellResults = dict[str, dict[str, list[dict[str, float]]]]
"""Runs by cell and server name."""


def start(kinds: list[type[Server]], root: Path, runs: int) -> tuple[dict[str, Server], report.Results]:
    """Start each broker `runs` times, in turn; the last start of each stays."""
    results: report.Results = {kind.name: [] for kind in kinds}
    servers: dict[str, Server] = {}
    for n in range(runs):
        for kind in kinds if n % 2 == 0 else kinds[::-1]:
            server = kind(root / f"{kind.name}-{n}")
            if n == runs - 1:
                server.tls_port = free_port()
            took = server.start()
            time.sleep(IDLE_S)
            if server.tls_port is None or runs == 1:  # TLS takes memory and time of its own
                results[kind.name].append({"start_s": took, "rss_idle_mb": server.rss_mb()})
            if n < runs - 1:
                server.stop()
            else:
                servers[kind.name] = server
    return {kind.name: servers[kind.name] for kind in kinds}, results  # ours first, whichever came up last


def touch_memory(root: Path) -> None:
    """Fills page cache with a file, at most half of what is free, and removes it."""
    free_kb = next(
        int(line.split()[1])
        for line in Path("/proc/meminfo").read_text().splitlines()
        if line.startswith("MemAvailable")
    )
    block = bytes(1 << 20)
    path = root / "touched"
    with path.open("wb", buffering=0) as file:
        for _ in range(min(TOUCHED_GB << 10, free_kb >> 11)):
            file.write(block)
    path.unlink()


def measure(cell: Cell, servers: list[Server], runs: int, share: float) -> dict[str, list[dict[str, float]]]:
    for server in servers:
        cells.run(cell, server, share=WARM_SHARE * share)
    results: dict[str, list[dict[str, float]]] = {server.name: [] for server in servers}
    for n in range(runs):
        for server in servers if n % 2 == 0 else servers[::-1]:  # neither is always first
            result = cells.run(cell, server, share=share)
            results[server.name].append(result)
            shown = ", ".join(f"{key}={value:.2f}" for key, value in result.items())
            print(f"{cell.name} run {n + 1}/{runs} {server.name}: {shown}", flush=True)
    return results


def table(
    results: CellResults, keys: tuple[str, str], heads: tuple[str, str], digits: tuple[int, int]
) -> str:
    """A row for each cell that has these two figures: ours, the peer's, ratio, and the spread of both."""
    chosen = [cell for cell in CELLS if cell.name in results and cell.kind_of_figure == keys[0]]
    names = list(next(iter(results.values())))
    lines = [
        "| cell | | " + " | ".join(f"{h}: {', '.join(names)} | ratio" for h in heads) + " |",
        "|---|---|" + "---|---|" * len(heads),
    ]
    for cell in chosen:
        columns = []
        for key, d in zip(keys, digits, strict=True):
            runs = [[r[key] for r in results[cell.name][name]] for name in names]
            medians = [statistics.median(values) for values in runs]
            shown = ", ".join(
                f"{m:,.{d}f} ({min(v):,.{d}f}-{max(v):,.{d}f})" for m, v in zip(medians, runs, strict=True)
            )
            columns.append(
                f"{shown} | {medians[0] / medians[1]:.2f}" if len(medians) == 2 else f"{shown} | no peer"
            )
        lines.append(f"| {cell.name} | {cell.about} | " + " | ".join(columns) + " |")
    return "\n".join(lines) if chosen else ""


def alone(results: CellResults) -> str:
    """Returns how much of a small message's time is the client's own."""
    if not any(cell.kind == "ping" and cell.name in results for cell in CELLS):
        return ""
    took = sorted(cells.load.latency_alone_us(messages=3_000))
    p50, p99 = took[len(took) // 2], took[len(took) * 99 // 100]
    return (
        f"Of these the client and the loopback alone take: p50 {p50:.0f} µs, p99 {p99:.0f} µs (librdkafka's mock broker in the "
        "client's own process, which keeps nothing)."
    )


def verdict(results: CellResults) -> str:
    """Returns how the aims stand: half of the CPU in every cell, at least the MB/s, 1.5 times in half, p50 at most 0.6 and p99 at
    most half.
    """
    ratios: dict[str, dict[str, float]] = {}
    for name, by_server in results.items():
        if len(by_server) == 2:
            ours, peers = by_server.values()
            ratios[name] = {
                key: statistics.median(r[key] for r in ours) / statistics.median(r[key] for r in peers)
                for key in ours[0]
            }
    rated = {n: r for n, r in ratios.items() if "mb_s" in r}
    pings = {n: r for n, r in ratios.items() if "p99_us" in r}
    if not ratios:
        return "No peer: no verdict."
    return "\n".join([
        f"- CPU per GB at most half: {sum(r['cpu_s_gb'] <= 0.5 for r in rated.values())} of {len(rated)} cells"
        + _missed({n: r["cpu_s_gb"] for n, r in rated.items() if r["cpu_s_gb"] > 0.5}),
        f"- MB/s at least the peer's: {sum(r['mb_s'] >= 1 for r in rated.values())} of {len(rated)} cells"
        + _missed({n: r["mb_s"] for n, r in rated.items() if r["mb_s"] < 1}),
        f"- MB/s at least 1.5 times the peer's: {sum(r['mb_s'] >= 1.5 for r in rated.values())} of {len(rated)} cells",
        *(
            f"- {name} of small messages at most {bar:g}: {sum(r[key] <= bar for r in pings.values())} of {len(pings)} cells"
            + _missed({n: r[key] for n, r in pings.items() if r[key] > bar})
            for name, key, bar in (("p50", "p50_us", 0.6), ("p99", "p99_us", 0.5))
        ),
    ])  # fmt: skip


def _missed(ratios: dict[str, float]) -> str:
    return f" (missed: {', '.join(f'{name} {r:.2f}' for name, r in ratios.items())})" if ratios else ""


def main() -> int:
    parser = arguments.parser(__doc__)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument(
        "--cells", default="", help=f"some of: {', '.join(c.name for c in CELLS)} (default: all)"
    )
    parser.add_argument("--share", type=float, default=1.0, help="part of each cell's volume")
    parser.add_argument(
        "--dir", type=Path, default=None, help="where the data goes (default: a temporary folder)"
    )
    args = parser.parse_args()
    wanted = [name for name in args.cells.split(",") if name]
    if unknown := set(wanted) - {c.name for c in CELLS}:
        parser.error(
            f"--cells: no such cell: {', '.join(sorted(unknown))}; there are {', '.join(c.name for c in CELLS)}"
        )
    kinds: list[type[Server]] = [Klamm]
    missing = Kafka.missing()
    if missing is None:
        kinds.append(Kafka)
    else:
        print(f"Apache Kafka is left out: {missing}", file=sys.stderr)
    results: CellResults = {}
    with tempfile.TemporaryDirectory(prefix="klamm-bench-", dir=args.dir) as tmp:
        touch_memory(Path(tmp))
        servers, process = start(kinds, Path(tmp), args.runs)
        try:
            for cell in CELLS:
                if not wanted or cell.name in wanted:
                    results[cell.name] = measure(cell, list(servers.values()), args.runs, args.share)
            for name, server in servers.items():
                for run in process[name]:
                    run["rss_loaded_mb"] = server.rss_mb()
        finally:
            for server in servers.values():
                server.stop()
    text = "\n\n".join(filter(None, [
        report.table(process, PROCESS_ROWS),
        table(results, ("mb_s", "cpu_s_gb"), ("MB/s", "broker CPU s/GB"), (0, 2)),
        table(results, ("p50_us", "p99_us"), ("p50, µs", "p99, µs"), (0, 0)),
        alone(results),
        verdict(results),
    ]))  # fmt: skip
    print(f"\n{text}")
    if args.write:
        report.write("bench/broker", f"## Broker\n\n{about(args)}\n\n{text}")
    return 0


def about(args: argparse.Namespace) -> str:
    return (
        f"`python -m bench.broker.compare --runs {args.runs}`, {report.machine()}, librdkafka "
        f"{confluent_kafka.libversion()[0]}, {cells.load.BATCH_BYTES // 1024} KiB batches; medians (least-most); "
        "p: partitions, c: connections; Apache Kafka 4.3.1 with its stock heap."
    )


if __name__ == "__main__":
    sys.exit(main())
