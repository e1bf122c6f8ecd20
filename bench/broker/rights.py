"""Measures what 10,000 ACLs cost a produce and a fetch: CPU of the broker's process, beside a broker without an authorizer.

    PYTHONPATH=tests python -m bench.broker.rights

Both brokers get the same requests of a user who has logged in, alternating: one batch of 1 KB a request, on one connection, sixteen
requests under way.
"""

from __future__ import annotations

import statistics
import tempfile
from itertools import product
from pathlib import Path
from typing import Final

from support.raw import batch, fetch_request, produce_request, request_frame
from support.secure_broker import LoginClient, SecureBroker

from klamm_broker.security.acl import Acl
from klamm_broker.server.acl_file import FILE_NAME, StoredAuthorizer
from klamm_broker.server.authorizer_keys import STANDARD
from klamm_kafka.wire.acls import AclOperation, AclPermissionType, PatternType, ResourceType
from klamm_kafka.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from klamm_kafka.wire.struct import Message

ACLS: Final = 10_000
REQUESTS: Final = 16_000
UNDER_WAY: Final = 16
ROUNDS: Final = 15
USER: Final = "bob"


def acls() -> list[Acl]:
    """Returns 100 users with rights for 50 resources each, half of them prefixes of ten lengths; bob's two rights are the last."""

    def one(user: str, name: str, pattern: PatternType, operation: AclOperation) -> Acl:
        return Acl(
            resource_type=ResourceType.TOPIC, resource_name=name, pattern_type=pattern, principal=f"User:{user}",
            host="*", operation=operation, permission=AclPermissionType.ALLOW,
        )  # fmt: skip

    rights = (AclOperation.READ, AclOperation.WRITE)
    others = [
        one(
            f"user-{user}",
            f"topic-{n}" if n % 2 else f"team{'x' * (n % 10)}-{n}",
            PatternType.LITERAL if n % 2 else PatternType.PREFIXED,
            operation,
        )
        for user, n, operation in product(range(100), range(50), rights)
    ]
    return [
        *others[: ACLS - 2],
        *(one(USER, "orders", PatternType.LITERAL, operation) for operation in rights),
    ]


def cpu_s(broker: SecureBroker) -> float:
    """Returns the CPU seconds of the thread that serves: to the nanosecond, where `stat` counts hundredths."""
    return int(Path(f"/proc/{broker.pid}/schedstat").read_text().split()[0]) / 1e9


def drive(client: LoginClient, message: Message, version: int) -> None:
    """Sends REQUESTS of a message."""
    frame = request_frame(message, version) * UNDER_WAY
    for _ in range(REQUESTS // UNDER_WAY):
        client.sock.sendall(frame)
        for _ in range(UNDER_WAY):
            answer = client.receive_frame()
    assert answer[20:22] != b"\0\x1d", "denied"


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        for place in ("with", "without"):
            (work / place / "data").mkdir(parents=True)
        stored = StoredAuthorizer(
            work / "with/data" / FILE_NAME, super_users=frozenset(), allow_without_acls=False, on_denied=print
        )
        stored.store(add=acls())
        config = {
            "authorizer.class.name": STANDARD,
            "super.users": "User:ANONYMOUS",
            "log.retention.bytes": "1",
        }
        plain = {"log.retention.bytes": "1"}
        with SecureBroker(work / "with", config) as a, SecureBroker(work / "without", plain) as b:
            measure({f"{len(stored.index)} ACLs": a, "no authorizer": b})


def measure(brokers: dict[str, SecureBroker]) -> None:
    record = batch(b"x" * 1000)
    clients = {}
    for name, broker in brokers.items():
        with LoginClient(broker.port) as anyone:
            topic = CreatableTopic(name="orders", num_partitions=1, replication_factor=1)
            anyone.request(CreateTopicsRequest(topics=[topic], timeout_ms=5000), 7)
        clients[name] = LoginClient(broker.sasl_port)
        assert not clients[name].plain(USER, "bob-secret").error_code
    jobs: dict[str, tuple[Message, int]] = {
        "produce": (produce_request("orders", record), 9),
        "fetch": (fetch_request("orders", max_bytes=1000, session_epoch=-1), 12),
    }
    for job, asked in jobs.items():
        spent: dict[str, list[float]] = {name: [] for name in brokers}
        for number in range(ROUNDS):
            for name in list(brokers)[:: 1 if number % 2 else -1]:
                before = cpu_s(brokers[name])
                drive(clients[name], *asked)
                spent[name].append((cpu_s(brokers[name]) - before) / REQUESTS * 1e6)
        us = {name: statistics.median(values[1:]) for name, values in spent.items()}
        (with_acls, without) = us.values()
        told = ", ".join(f"{name} {value:.1f} us" for name, value in us.items())
        print(f"{job}: {told} of CPU a request; {100 * (with_acls / without - 1):+.1f} %", flush=True)


if __name__ == "__main__":
    main()
