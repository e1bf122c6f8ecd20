"""Logins per second, and the broker's CPU for each, beside Apache Kafka's: `PYTHONPATH=tests python -m bench.broker.logins [seconds]`.

Both brokers run at the same time and are asked in turns; each login is a new connection. The client derives the salted
password of SCRAM once, so that it is not measured.
"""

from __future__ import annotations

import functools
import hashlib
import sys
import tempfile
import threading
import time
from pathlib import Path
from statistics import median
from typing import Final

from support.secure_broker import LoginClient, SecureBroker
from support.secure_kafka import SecureKafka

CLIENTS: Final = 4
TURNS: Final = 5
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
TICKS: Final = 100


def cpu_s(pid: int) -> float:
    """Returns the CPU seconds of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def log_in(port: int, mechanism: str) -> None:
    with LoginClient(port) as client:
        answer = client.plain() if mechanism == "PLAIN" else client.scram(mechanism=mechanism)
        assert not answer.error_code, answer


def turn(port: int, pid: int, mechanism: str, seconds: float) -> tuple[float, float]:
    """Returns logins per second, and CPU milliseconds of the broker for each."""
    counts = [0] * CLIENTS
    until = time.monotonic() + seconds

    def work(n: int) -> None:
        while time.monotonic() < until:
            log_in(port, mechanism)
            counts[n] += 1

    before, began = cpu_s(pid), time.monotonic()
    threads = [threading.Thread(target=work, args=(n,)) for n in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    total = sum(counts)
    return total / (time.monotonic() - began), (cpu_s(pid) - before) * 1000 / total


def main(seconds: float) -> None:
    """Prints a table."""
    hashlib.pbkdf2_hmac = functools.cache(hashlib.pbkdf2_hmac)  # type: ignore[assignment]
    with tempfile.TemporaryDirectory() as work:
        config = {"group.initial.rebalance.delay.ms": "0"}
        with SecureKafka(Path(work), config) as kafka, SecureBroker(Path(work) / "ours", config) as ours:
            ours.add_user()
            sides = {
                "Klamm": (ours.sasl_port, ours.pid),
                "Kafka": (kafka.ports["SASL_PLAINTEXT"], kafka.pid),
            }
            for mechanism in MECHANISMS:
                for port, pid in sides.values():
                    turn(port, pid, mechanism, seconds)  # warms up
                found: dict[str, list[tuple[float, float]]] = {name: [] for name in sides}
                for _ in range(TURNS):
                    for name, (port, pid) in sides.items():
                        found[name].append(turn(port, pid, mechanism, seconds))
                for name, turns in found.items():
                    rates, costs = zip(*turns, strict=True)
                    print(
                        f"{mechanism:14} {name}: {median(rates):7.0f} logins/s ({min(rates):.0f} to {max(rates):.0f}), "
                        f"{median(costs):.3f} ms of CPU each ({min(costs):.3f} to {max(costs):.3f})"
                    )


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 3.0)
