"""librdkafka's own tests (tests/0xxx), from the sources inside an npm package; options: `support.suites`.

Releases of librdkafka come as git tags only, but the npm package of Confluent's JavaScript client carries the whole
source, tests included. Tests that need no broker are left out. Each number runs in a process of its own (a test that
hangs takes its process along), four at a time. Tests that subscribe run with each group protocol: `NNNN_name` is a
test with the classic one, `NNNN_name@consumer` with KIP-848's. `NNNN_name:part` runs the subtests whose names contain
that part.

One thing in the tests is changed: topics get one replica where they ask for three, since there is one broker.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

HERE = Path(__file__).parent.resolve()
sys.path.insert(0, str(HERE.parents[1]))

from support import kafka_oracle  # noqa: E402
from support.secure_kafka import PASSWORD, USER  # noqa: E402
from support.suites import Job, Outcome, Suite, main, step  # noqa: E402

VERSION = "2.15.1"
PACKAGE = "@confluentinc/kafka-javascript@1.10.1"  # the release that carries librdkafka's VERSION
SOURCE = "package/deps/librdkafka"
REPLICAS = (
    "topicname, partition_cnt, replication_factor,",
    "topicname, partition_cnt, replication_factor > 1 ? 1 : replication_factor,",
)
PARALLEL = 4
LIMIT_S = 400.0
STATES = {"PASSED": "pass", "FAILED": "fail", "RUNNING": "fail", "SKIPPED": "skip", "DNS": "skip"}
TEST = re.compile(r"\b_TEST\((\d{4}_\w+),\s*([\w |]+)")
TOOLS = {
    "kafka-topics.sh": "org.apache.kafka.tools.TopicCommand",
    "kafka-acls.sh": "org.apache.kafka.tools.AclCommand",
}
LOGINS = {
    number: {
        "security.protocol": "sasl_plaintext", "sasl.mechanism": mechanism, "sasl.username": USER, "sasl.password": PASSWORD,
    }
    for number, mechanism in (("0135", "PLAIN"), ("0142", "SCRAM-SHA-512"))
}  # fmt: skip
"""The tests of logins, and the login that they find in their configuration."""
PROTOCOLS = {"": "classic", "consumer": "consumer"}


def prepare(place: Path) -> None:
    archive = step(["npm", "pack", PACKAGE, "--silent"], place).split()[-1]
    step(["tar", "xzf", archive, SOURCE], place)
    source = place / SOURCE
    number = f"0x{''.join(f'{int(n):02x}' for n in VERSION.split('.'))}ff"
    assert number in (source / "src/rdkafka.h").read_text(), f"{PACKAGE} does not carry librdkafka {VERSION}"
    runner = source / "tests/test.c"
    text = runner.read_text()
    assert text.count(REPLICAS[0]) == 2, "the lines that make topics have changed"
    runner.write_text(text.replace(*REPLICAS))
    step(["./configure", "--disable-gssapi", "--disable-curl"], source)
    step(["make", "-j1", "libs"], source)
    step(["make", "-j1", "-C", "tests", "test-runner"], source)


def run(job: Job) -> Iterator[Outcome]:
    asked = broker_tests(job.built / SOURCE / "tests") if job.names is None else job.names
    write_tools(job)
    wanted = set(asked)
    # one protocol after the other: some tests name their group alike in both
    processes = sorted({_process(name) for name in asked}, key=lambda p: (p[1], p))
    with ThreadPoolExecutor(PARALLEL) as pool:
        for outcomes in pool.map(lambda one: _run(job, *one), processes):
            yield from (o for o in outcomes if o.name in wanted)


def _process(name: str) -> tuple[str, str, str]:
    """Number, protocol and part: what one process of the test runner can be told."""
    test, _, protocol = name.partition("@")
    return test[:4], protocol, test.partition(":")[2]


def broker_tests(tests: Path) -> list[str]:
    """Returns the tests that need a broker, as the test runner lists them, and those of groups for the other protocol too."""
    found = TEST.findall((tests / "test.c").read_text())
    names = [n for n, flags in found if not re.search(r"LOCAL|MANUAL|KNOWN_ISSUE$", flags.strip())]
    names = [n for n in names if not n.endswith("_mock")]
    sources = {n: next(tests.glob(f"{n[:4]}-*.c*")).read_text() for n in names}
    groups = [n for n in names if "subscribe" in sources[n] and "share_consumer" not in n]
    return [*names, *(f"{n}@consumer" for n in groups)]


def write_tools(job: Job) -> None:
    """Writes the few of Apache's scripts that tests call, where Apache's jars are here."""
    oracle = kafka_oracle.find()
    (job.work / "bin").mkdir(exist_ok=True)
    for script, main_class in TOOLS.items():
        path = job.work / "bin" / script
        command = ["echo", oracle] if isinstance(oracle, str) else oracle.command(main_class)
        path.write_text(f'#!/bin/sh\nexec {" ".join(repr(word) for word in command)} "$@"\n')
        path.chmod(0o755)


def _run(job: Job, number: str, protocol: str, part: str) -> list[Outcome]:
    stem = "-".join(filter(None, (number, PROTOCOLS[protocol], part)))
    configuration, report = job.work / f"{stem}.conf", job.work / f"{stem}.json"
    # twice the patience, since four run at a time
    login = LOGINS.get(number) if job.secure else None
    address = job.secure["SASL_PLAINTEXT"] if login else job.bootstrap
    settings = {"metadata.broker.list": address, "test.timeout.multiplier": "2", **(login or {})}
    configuration.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    env = {
        "RDKAFKA_TEST_CONF": str(configuration),
        "TEST_KAFKA_VERSION": "4.3.1",
        "TEST_REPORT": str(report),
        "TEST_CONSUMER_GROUP_PROTOCOL": PROTOCOLS[protocol],
        "TESTS": number,
        "LD_LIBRARY_PATH": "../src:../src-cpp",
        "KAFKA_PATH": str(job.work),
        "BROKERS": address,
    }
    if part:
        env["SUBTESTS"] = part
    tests = job.built / SOURCE / "tests"
    job.command(["./test-runner", "-L", "-K", "-p1"], f"{stem}.log", cwd=tests, timeout_s=LIMIT_S, **env)
    log = (job.work / f"{stem}.log").read_text(errors="replace")
    text = report.read_text() if report.exists() else ""
    suffix = (f":{part}" if part else "") + (f"@{protocol}" if protocol else "")
    found = [replace(o, name=o.name + suffix) for o in _outcomes(text, log) if o.name.startswith(number)]
    if part and f"[ {part}" not in log:
        return [replace(o, state="skip", note="no such subtest") for o in found]
    return found


def _outcomes(report: str, log: str) -> Iterator[Outcome]:
    """Reads the outcomes from the report, which is cut short where the runner killed itself because a test took too long."""
    for name, body in re.findall(r'"(\d{4}_\w+)": (\{.*?\})(?=, *"\d{4}_|\s*\}|$)', report, re.DOTALL):
        state = re.search(r'"state": "(\w+)"', body)
        duration = re.search(r'"duration": ([\d.]+)', body)
        if state is not None and duration is not None:
            result = STATES[state[1]]
            note = "" if result == "pass" else _why(log, name)
            yield Outcome(name=name, state=result, seconds=float(duration[1]), note=note)


def _why(log: str, name: str) -> str:
    """Returns the sentence below the headline of a failure, or the reason of a skip."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", log)
    if found := re.search(rf'### Test "{name}[^\n]*###\n([^\n]*)', plain):
        return found[1][:200]
    found = re.search(rf"\[{name}[^\n]*SKIPPING TEST: ([^\n]*)", plain)
    return found[1][:200] if found else ""


SUITE = Suite(
    name="librdkafka", version=VERSION, directory=HERE, needs=["npm", "tar", "make", "gcc", "g++"],
    prepare=prepare, run=run, secure=True,
    # tests of static and cooperative members expect Kafka's own delay, in which all of them join at once
    settings={
        "connections.max.reauth.ms": "3000",  # of logins; 0142 wants one
        "num.partitions": "4", "broker.rack": "RACK1", "group.initial.rebalance.delay.ms": "3000",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true", "group.share.min.record.lock.duration.ms": "1000",
    },
    kafka_settings={
        "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
    },
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(main(SUITE))
