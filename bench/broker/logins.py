"""Logins per second, and the broker's CPU for each, beside Apache Kafka's: `PYTHONPATH=tests python -m bench.broker.logins [seconds]`.

Both brokers run at the same time and are asked in turns; each login is a new connection, and over TLS a full handshake (1.3). The
client derives the salted password of SCRAM once, so that it is not measured.
"""

from __future__ import annotations

import functools
import hashlib
import ssl
import sys
import tempfile
import threading
import time
from pathlib import Path
from statistics import median
from typing import Final

from support.secure_broker import LoginClient, SecureBroker
from support.secure_kafka import STORES, SecureKafka

CLIENTS: Final = 4
TURNS: Final = 5
CELLS: Final = (
    ("SASL_PLAINTEXT", "PLAIN"),
    ("SASL_PLAINTEXT", "SCRAM-SHA-256"),
    ("SASL_PLAINTEXT", "SCRAM-SHA-512"),
    ("SASL_SSL", "PLAIN"),
    ("SASL_SSL", "SCRAM-SHA-256"),
)
TICKS: Final = 100


def cpu_s(pid: int) -> float:
    """Returns the CPU seconds of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def log_in(port: int, mechanism: str, context: ssl.SSLContext | None) -> None:
    with LoginClient(port) as client:
        if context is not None:
            client.sock = context.wrap_socket(client.sock, server_hostname="localhost")
        answer = client.plain() if mechanism == "PLAIN" else client.scram(mechanism=mechanism)
        assert not answer.error_code, answer


def turn(port: int, pid: int, cell: tuple[str, str], seconds: float) -> tuple[float, float]:
    """Returns logins per second, and CPU milliseconds of the broker for each."""
    protocol, mechanism = cell
    context = ssl.create_default_context(cafile=STORES / "ca.pem") if protocol == "SASL_SSL" else None
    counts = [0] * CLIENTS
    until = time.monotonic() + seconds

    def work(n: int) -> None:
        while time.monotonic() < until:
            log_in(port, mechanism, context)
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
                "Klamm": ({"SASL_PLAINTEXT": ours.sasl_port, "SASL_SSL": ours.tls_port}, ours.pid),
                "Kafka": (kafka.ports, kafka.pid),
            }
            for cell in CELLS:
                for ports, pid in sides.values():
                    turn(ports[cell[0]], pid, cell, seconds)  # warms up
                found: dict[str, list[tuple[float, float]]] = {name: [] for name in sides}
                for _ in range(TURNS):
                    for name, (ports, pid) in sides.items():
                        found[name].append(turn(ports[cell[0]], pid, cell, seconds))
                for name, turns in found.items():
                    rates, costs = zip(*turns, strict=True)
                    print(
                        f"{cell[0]:14} {cell[1]:13} {name}: {median(rates):7.0f} logins/s ({min(rates):.0f} to {max(rates):.0f}), "
                        f"{median(costs):.3f} ms of CPU each ({min(costs):.3f} to {max(costs):.3f})"
                    )


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 3.0)
