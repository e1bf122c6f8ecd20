"""Checks of ours on Apache's Java clients and Kafka Streams (src/*.java), jars by Maven; options: `support.suites`."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).parent.resolve()
sys.path.insert(0, str(HERE.parents[1]))

from support.secure_kafka import PASSWORD, STORES, USER, property_  # noqa: E402
from support.suites import Job, Outcome, Suite, main, step  # noqa: E402

VERSION = re.search(r"kafka-streams</artifactId>\s*<version>([^<]+)", (HERE / "pom.xml").read_text())[1]
FLAGS = [
    "-Xmx512M",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
]


def prepare(place: Path) -> None:
    copy = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={place / 'libs'}"]
    step(["mvn", "-B", "-q", "-f", HERE / "pom.xml", *copy], place)


def run(job: Job) -> Iterator[Outcome]:
    classes = (
        job.work / "classes"
    )  # the sources are ours and may have changed: compiling them takes two seconds
    path = f"{job.built / 'libs'}/*"
    sources = sorted(str(p) for p in (HERE / "src").glob("*.java"))
    step(["javac", "-d", str(classes), "-cp", path, *sources], job.work)
    write_secure(job)
    command = ["java", *FLAGS, "-cp", f"{classes}:{path}", "Conformance", job.bootstrap, str(job.work)]
    job.command([*command, *(job.names or [])], "checks.log", timeout_s=1200)
    for line in (job.work / "checks.log").read_text(errors="replace").splitlines():
        if re.match(r"(pass|fail)\t", line):
            state, name, seconds, note = line.split("\t", 3)
            yield Outcome(name=name, state=state, seconds=float(seconds), note=note[:200])


def write_secure(job: Job) -> None:
    """Writes what the checks of logins and TLS need to know."""
    told = {
        **job.secure,
        "user": USER,
        "password": PASSWORD,
        "ca": f"{STORES}/ca.pem",
        "other.ca": f"{STORES}/other-ca.pem",
    }
    text = "".join(f"{name}={property_(value)}\n" for name, value in told.items())
    (job.work / "secure.properties").write_text(text)


SUITE = Suite(
    name="java", version=VERSION, directory=HERE, needs=["java", "javac", "mvn"], prepare=prepare, run=run,
    secure=True,
    settings={
        "listener.name.sasl_plaintext.scram-sha-512.connections.max.reauth.ms": "1500",
        "group.initial.rebalance.delay.ms": "0",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
        "group.consumer.heartbeat.interval.ms": "1000",
        "group.consumer.min.heartbeat.interval.ms": "1000",
        "group.streams.heartbeat.interval.ms": "1000",
        "group.streams.min.heartbeat.interval.ms": "1000",
        "group.streams.session.timeout.ms": "6000",
        "group.streams.min.session.timeout.ms": "6000",
        "group.streams.initial.rebalance.delay.ms": "0",
        "delegation.token.secret.key": "token-secret-key",
    },
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(main(SUITE))
