"""`PYTHONPATH=tests python tests/fuzz/many.py WHAT [--count N] [--seed S]`: many mutations, without a fuzzer.

WHAT is a target of targets.py, mutated in this process; or `handshakes` or `frames`: a broker of ours is started, and each
mutation is one connection to it, of TLS or of a login. Each connection must end, the broker must go on, and no exception may
be in its log. A million takes minutes: run it with `nice`.
"""

from __future__ import annotations

import argparse
import random
import re
import socket
import ssl
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
if __name__ == "__main__":
    sys.path[:0] = [str(ROOT / "tests")]

from fuzz.seeds import SEEDS  # noqa: E402
from fuzz.targets import TARGETS, judge  # noqa: E402
from support.raw import RawClient, request_frame  # noqa: E402
from support.secure_broker import SecureBroker  # noqa: E402
from support.secure_kafka import STORES  # noqa: E402

from klamm_broker.api.topic_configs import ResourceType  # noqa: E402
from klamm_kafka.wire.messages.api_versions import ApiVersionsRequest  # noqa: E402
from klamm_kafka.wire.messages.incremental_alter_configs import (  # noqa: E402
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from klamm_kafka.wire.messages.sasl_authenticate import SaslAuthenticateRequest  # noqa: E402
from klamm_kafka.wire.messages.sasl_handshake import SaslHandshakeRequest  # noqa: E402

AT_ONCE: Final = 32
_SIZES: Final = (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\x80\0\0\0", b"\0\0\0\0", b"\0\x08\0\1")


def mutate(chance: random.Random, seed: bytes) -> bytes:
    """Returns a seed with one to six changes."""
    data = bytearray(seed)
    for _ in range(chance.randint(1, 6)):
        at = chance.randint(0, len(data))
        match chance.randrange(5):
            case 0 | 1:
                data[at : at + 1] = bytes([chance.randrange(256)])
            case 2:
                del data[at : at + chance.randint(1, 8)]
            case 3:
                data[at:at] = chance.randbytes(chance.randint(1, 8))
            case _:
                data[at : at + 4] = chance.choice(_SIZES)
    return bytes(data)


def in_this_process(target: str, count: int, chance: random.Random) -> None:
    seeds = list(SEEDS[target]())
    for number in range(count):
        data = mutate(chance, chance.choice(seeds))
        try:
            judge(target, data)
        except BaseException:
            print(f"mutation {number}: {data!r}", file=sys.stderr)
            raise


def hello(version: ssl.TLSVersion) -> bytes:
    """Returns the first flight of a client of TLS."""
    context = ssl.create_default_context(cafile=STORES / "ca.pem")
    context.maximum_version = version
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    try:
        tls.do_handshake()
    except ssl.SSLWantReadError:
        return outgoing.read()
    raise AssertionError("a handshake without a server")


def login_frames() -> list[bytes]:
    """Returns whole logins, as the bytes of a connection."""
    versions = request_frame(ApiVersionsRequest(client_software_name="x", client_software_version="1"), 3)
    found = []
    for mechanism, said in (
        ("PLAIN", b"\0ann\0wrong"),
        ("SCRAM-SHA-256", b"n,,n=ann,r=abcdef"),
        ("SCRAM-SHA-512", b"n,,n=nobody,r=abcdef,tokenauth=true"),
        ("OAUTHBEARER", b"n,,\x01auth=Bearer eyJhbGciOiJub25lIn0.eyJzdWIiOiJhIiwiZXhwIjoxfQ.\x01\x01"),
    ):
        for version in (0, 1):
            shake = request_frame(SaslHandshakeRequest(mechanism=mechanism), version)
            token = len(said).to_bytes(4) + said
            found.append(
                shake + (request_frame(SaslAuthenticateRequest(auth_bytes=said), 2) if version else token)
            )
            found.append(versions + found[-1])
    return found


def connect(port: int, data: bytes) -> str:
    """Sends the bytes and their end; returns how the broker ended the connection."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as sock:
        answered = False
        try:
            sock.sendall(data)
            sock.shutdown(socket.SHUT_WR)
            while sock.recv(65536):
                answered = True
        except (ConnectionResetError, BrokenPipeError):
            return "reset"
        return "answered and closed" if answered else "closed"


def tell_every_end(broker: SecureBroker) -> None:
    """Lets the broker write a line for each end of a connection: as warnings it only tells a few."""
    level = AlterableConfig(name="klamm_broker.server.connection", config_operation=0, value="DEBUG")
    resource = AlterConfigsResource(
        resource_type=ResourceType.BROKER_LOGGER, resource_name="1", configs=[level]
    )
    with RawClient(broker.port) as client:
        answer = client.request(IncrementalAlterConfigsRequest(resources=[resource]), 1)
    assert answer.responses[0].error_code == 0, answer


def metrics(broker: SecureBroker) -> Counter[str]:
    with urllib.request.urlopen(broker.metrics_url, timeout=60) as answer:
        text = answer.read().decode()
    return Counter(
        {
            name: int(float(value))
            for name, value in re.findall(r"^(klamm_\w+_total) (\S+)$", text, re.MULTILINE)
        }
    )


def against_a_broker(what: str, count: int, chance: random.Random, work: Path) -> Counter[str]:
    """Returns how connections ended, and what the broker counted."""
    config = {"klamm.metrics.port": "0", "connection.failed.authentication.delay.ms": "0"}
    seeds = (
        login_frames() if what == "frames" else [hello(ssl.TLSVersion.TLSv1_2), hello(ssl.TLSVersion.TLSv1_3)]
    )
    with SecureBroker(work, config) as broker, ThreadPoolExecutor(AT_ONCE) as pool:
        port = broker.sasl_port if what == "frames" else broker.tls_port
        tell_every_end(broker)
        ends = Counter[str]()
        for first in range(0, count, 1000):
            jobs = [mutate(chance, chance.choice(seeds)) for _ in range(min(1000, count - first))]
            ends.update(pool.map(lambda data: connect(port, data), jobs))
        assert broker.running
        log = broker.log_text
        for sign in ("Traceback", "Exception", "ERROR"):
            assert sign not in log, log[max(log.index(sign) - 500, 0) :][:3000]
        return ends + Counter({"lines about an end": log.count(" closed: ")}) + metrics(broker)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="many.py", description=__doc__)
    parser.add_argument("what", choices=[*TARGETS, "handshakes", "frames"])
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=None)
    options = parser.parse_args(arguments)
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(1 << 32)
    print(f"{options.what}: {options.count} mutations, --seed {seed}", flush=True)
    chance, began = random.Random(seed), time.monotonic()
    if options.what in TARGETS:
        in_this_process(options.what, options.count, chance)
    else:
        with tempfile.TemporaryDirectory(prefix="klamm-many-") as work:
            for name, number in sorted(
                against_a_broker(options.what, options.count, chance, Path(work)).items()
            ):
                print(f"  {name}: {number}")
    print(f"nothing found in {time.monotonic() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
