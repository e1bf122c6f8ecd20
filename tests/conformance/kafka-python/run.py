"""kafka-python's integration tests, from its source archive on PyPI; options: `support.suites`.

The archive lacks two modules of the tests: `service.py` beside this file stands in for the one that starts brokers,
since the broker is started by us. An environment of its own has the client with all codecs.
"""

from __future__ import annotations

import shutil
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).parent.resolve()
sys.path.insert(0, str(HERE.parents[1]))

from support.archive import unpack  # noqa: E402
from support.suites import Job, Outcome, Suite, main, step  # noqa: E402

VERSION = "3.0.12"
LIBRARIES = ["pytest==8.4.2", "pytest-mock==3.15.1", "pytest-timeout==2.4.0", "py==1.11.0"]


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
    report = job.work / "kafka-python.xml"
    host, _, port = job.bootstrap.rpartition(":")
    files = [f"test/integration/test_{n}_integration.py" for n in ("admin", "consumer", "producer")]
    tests = files if job.names is None else [f"test/integration/{n}" for n in job.names]
    command = [
        str(job.built / "venv/bin/python"), "-m", "pytest", "-q", "--tb=short", "-W", "ignore", "--timeout=60",
        "--show-capture=no", "-p", "no:cacheprovider", f"--junitxml={report}", *tests,
    ]  # fmt: skip
    env = {
        "KAFKA_URI": f"kafka://{host}:{port}",
        "KAFKA_VERSION": "4.3.1",
        "KAFKA_ROOT": str(job.built / "kafka"),
    }
    job.command(command, "kafka-python.log", cwd=job.built, timeout_s=900, **env)
    if report.exists():
        yield from map(_outcome, ET.parse(report).iter("testcase"))


def _outcome(case: ET.Element) -> Outcome:
    name = f"{case.get('classname').rpartition('.')[2]}.py::{case.get('name')}"
    seconds = float(case.get("time", 0))
    for kind, state in (("failure", "fail"), ("error", "fail"), ("skipped", "skip")):
        if (found := case.find(kind)) is not None:
            note = (found.get("message") or "").splitlines()
            return Outcome(name=name, state=state, seconds=seconds, note=(note or [""])[0][:160])
    return Outcome(name=name, state="pass", seconds=seconds)


SUITE = Suite(
    name="kafka-python", version=VERSION, directory=HERE, needs=[], prepare=prepare, run=run,
    # node 0 and its four partitions are written into the tests; sessions of three seconds are too
    settings={
        "node.id": "0", "num.partitions": "4", "group.min.session.timeout.ms": "1000",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
    },
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(main(SUITE))
