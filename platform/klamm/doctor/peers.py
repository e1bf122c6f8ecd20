"""Servers: do their ports wait for them, do they answer, and how long do their certificates last?"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from klamm.cli.common import counted
from klamm.doctor.finding import Finding, failed, ok, warning
from klamm_base.errors import ConfigError, KlammError

SLOW_S: Final = 0.5
CERTIFICATE_DAYS: Final = 30


def port(host: str, number: int, *, ours: bool) -> Finding:
    """Looks whether a server may listen on a port, or, with `ours`, whether one does."""
    from klamm.up.ports import holder

    check, place = f"port {number}", f"{host or '*'}:{number}"
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            s.bind((host, number))
        except OSError as e:
            who = holder(number)
            if who is not None:
                return (
                    ok(check, f"{place} is served by {who}")
                    if ours
                    else warning(check, f"{place} is taken by {who}")
                )
            return failed(check, f"{place}: {e.strerror}", "give another port, or another address")
    return (
        warning(check, f"nobody listens on {place}", "start the server")
        if ours
        else ok(check, f"{place} is free")
    )


def reached(check: str, asked: str, ask: Callable[[], str]) -> Finding:
    """Asks a server; `ask` returns what it is, and raises KlammError where it does not answer."""
    began = time.monotonic()
    try:
        said = ask()
    except ConfigError as e:
        return failed(check, str(e), "correct what it names")
    except KlammError as e:
        return failed(check, str(e), f"is it running, and is {asked} its address?")
    took = time.monotonic() - began
    judge = warning if took > SLOW_S else ok
    return judge(check, f"{asked}: {said}, in {took * 1000:.0f} ms")


def certificates(files: list[Path], now: datetime | None = None) -> Iterator[Finding]:
    """Yields how long the certificates in PEM files are valid."""
    from cryptography import x509

    now = now or datetime.now(UTC)
    for path in files:
        check = f"certificate {path}"
        try:
            found = x509.load_pem_x509_certificates(path.read_bytes())
        except (OSError, ValueError) as e:
            yield failed(check, f"{path}: {e}")
            continue
        first = min(found, key=lambda c: c.not_valid_after_utc)
        left = (first.not_valid_after_utc - now).days
        said = f"{first.subject.rfc4514_string()} is valid until {first.not_valid_after_utc:%Y-%m-%d} ({left} days)"
        if left < 0:
            yield failed(check, said, "renew it: klamm security renew")
        else:
            yield (
                warning(check, said, "renew it: klamm security renew")
                if left < CERTIFICATE_DAYS
                else ok(check, said)
            )


async def cluster_report(admin: Any) -> dict[str, Any]:
    """Returns what a support ticket needs of a cluster: brokers, topics, groups, and the brokers' settings. No records, and no secrets:
    brokers do not tell sensitive settings.
    """
    from klamm.admin.configs import Resource, describe_config
    from klamm.admin.groups import list_groups
    from klamm.admin.topics import list_topics

    brokers = await admin.brokers()
    topics = await list_topics(admin)
    groups = await list_groups(admin, consumers_only=False)
    return {
        "brokers": {str(number): str(node) for number, node in brokers.items()},
        "topics": [
            {
                "name": t.name, "internal": t.internal, "partitions": len(t.partitions),
                "without_leader": [p.number for p in t.partitions if p.leader is None],
                "under_replicated": [p.number for p in t.partitions if len(p.isr) < len(p.replicas)],
            }
            for t in topics
        ],
        "groups": [{"group": g.group, "type": g.type, "state": g.state} for g in groups],
        "broker_configs": {
            str(number): {
                e.name: e.value for e in await describe_config(admin, Resource.BROKER, str(number)) if e.source != "DEFAULT_CONFIG"
            }
            for number in brokers
        },
    }  # fmt: skip


def described(report: dict[str, Any]) -> str:
    """Returns a cluster in a sentence. Raises KlammError where partitions have no leader."""
    bad = [t["name"] for t in report["topics"] if t["without_leader"]]
    if bad:
        raise KlammError(f"partitions without a leader: {', '.join(bad[:5])}")
    partitions = sum(t["partitions"] for t in report["topics"])
    brokers, topics, groups = (
        counted(len(report[f"{noun}s"]), noun) for noun in ("broker", "topic", "group")
    )
    return f"{brokers}, {topics} with {counted(partitions, 'partition')}, {groups}"
