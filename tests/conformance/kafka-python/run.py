"""kafka-python's integration tests, from its source archive on PyPI; options: `support.suites`.

The archive lacks two modules of the tests: `service.py` beside this file stands in for the one that starts brokers,
since the broker is started by us. An environment of its own has the client with all codecs.
"""

from __future__ import annotations

import shutil
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Sequence
from pathlib import Path

HERE = Path(__file__).parent.resolve()
sys.path.insert(0, str(HERE.parents[1]))

from support.archive import unpack  # noqa: E402
from support.secure_kafka import PASSWORD, STORES, USER  # noqa: E402
from support.suites import Job, Outcome, Suite, main, step  # noqa: E402

VERSION = "3.0.12"
LIBRARIES = ["pytest==8.4.2", "pytest-mock==3.15.1", "pytest-timeout==2.4.0", "py==1.11.0"]


FILES = [f"test_{name}_integration.py" for name in ("admin", "consumer", "producer", "sasl", "ssl")]
SECURE = ("test_sasl_", "test_ssl_")
"""Tests that would start a broker of their own; `running_broker.py` gives them ours."""


def prepare(place: Path) -> None:
    step([sys.executable, "-m", "venv", place / "venv"], place)
    pip = [place / "venv/bin/python", "-m", "pip", "--disable-pip-version-check", "-q"]
    step([*pip, "install", f"kafka-python[crc32c,lz4,snappy,zstd]=={VERSION}", *LIBRARIES], place)
    step([*pip, "download", "--no-deps", "--no-binary=:all:", f"kafka-python=={VERSION}"], place)
    unpack(next(place.glob("kafka_python-*.tar.gz")), place, of=lambda name: "/test/" in name)
    shutil.move(place / f"kafka_python-{VERSION}/test", place / "test")
    (place / "test/__init__.py").touch()
    shutil.copy(HERE / "service.py", place / "test/service.py")
    (place / "kafka").mkdir()  # where its fixtures look for a Kafka, even if they do not start it


def run(job: Job) -> Iterator[Outcome]:
    host, _, port = job.bootstrap.rpartition(":")
    tests = FILES if job.names is None else job.names
    yield from _pytest(job, "kafka-python", [t for t in tests if not t.startswith(SECURE)], {"KAFKA_URI": f"kafka://{host}:{port}"})  # fmt: skip
    secured = [t for t in tests if t.startswith(SECURE)]
    if job.secure:
        certificates = job.work / "certificates"
        certificates.mkdir(exist_ok=True)
        shutil.copy(STORES / "ca.pem", certificates / "ca-cert")
        env = {f"KLAMM_{protocol}": address for protocol, address in job.secure.items()}
        env |= {
            "KLAMM_USER": USER,
            "KLAMM_PASSWORD": PASSWORD,
            "KLAMM_CA": str(certificates),
            "PYTHONPATH": str(HERE),
        }
        yield from _pytest(job, "kafka-python-secure", secured, env, "-p", "running_broker")


def _pytest(
    job: Job, name: str, tests: Sequence[str], env: dict[str, str], *options: str
) -> Iterator[Outcome]:
    if not tests:
        return
    report = job.work / f"{name}.xml"
    command = [
        str(job.built / "venv/bin/python"), "-m", "pytest", "-q", "--tb=short", "-W", "ignore", "--timeout=60",
        "--show-capture=no", "-p", "no:cacheprovider", f"--junitxml={report}", *options,
        *(f"test/integration/{test}" for test in tests),
    ]  # fmt: skip
    env = {"KAFKA_VERSION": "4.3.1", "KAFKA_ROOT": str(job.built / "kafka"), **env}
    job.command(command, f"{name}.log", cwd=job.built, timeout_s=900, **env)
    if report.exists():
        yield from map(_outcome, ET.parse(report).iter("testcase"))


def _outcome(case: ET.Element) -> Outcome:
    module, _, inside = case.get("classname").removeprefix("test.integration.").partition(".")
    name = "::".join(filter(None, (f"{module}.py", inside, case.get("name"))))
    seconds = float(case.get("time", 0))
    for kind, state in (("failure", "fail"), ("error", "fail"), ("skipped", "skip")):
        if (found := case.find(kind)) is not None:
            note = (found.get("message") or "").splitlines()
            return Outcome(name=name, state=state, seconds=seconds, note=(note or [""])[0][:160])
    return Outcome(name=name, state="pass", seconds=seconds)


SUITE = Suite(
    name="kafka-python", version=VERSION, directory=HERE, needs=[], prepare=prepare, run=run, secure=True,
    # node 0 and its four partitions are written into the tests; sessions of three seconds are too
    settings={
        "node.id": "0", "num.partitions": "4", "group.min.session.timeout.ms": "1000",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
    },
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(main(SUITE))
