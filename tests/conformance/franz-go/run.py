"""The tests of franz-go's kgo package, from Go's module proxy; see FINDINGS.md and `support.suites` for the options.

The module's archive holds its tests, so `go test -c` builds them from the module cache. kadm's own tests need no broker;
what kadm does against one is in main.go beside this file (test_conformance_franz.py).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).parent.resolve()
sys.path.insert(0, str(HERE.parents[1]))

from support.secure_kafka import PASSWORD, USER  # noqa: E402
from support.suites import Job, Outcome, Suite, main, step  # noqa: E402

PACKAGE = "github.com/twmb/franz-go/pkg/kgo"
VERSION = re.search(r"franz-go (v\S+)", (HERE / "go.mod").read_text())[1]
RECORDS = "50000"  # a tenth of the suite's own number, unless the whole suite is run
RESULT = re.compile(r"^\s*--- (PASS|FAIL|SKIP): (\S+) \((\d+\.\d+)s\)$")


def prepare(place: Path) -> None:
    # go.mod beside this file pins the version, go.sum the content
    step(["go", "mod", "download"], HERE)
    step(["go", "test", "-p", "1", "-mod=readonly", "-c", "-o", place / "kgo.test", PACKAGE], HERE)


def run(job: Job) -> Iterator[Outcome]:
    env = {"KGO_SEEDS": job.bootstrap, "KGO_TEST_RF": "1", "KGO_LOG_LEVEL": "none"}
    if job.secure:
        env |= {"KGO_TEST_SCRAM_SEEDS": job.secure["SASL_PLAINTEXT"], "KGO_TEST_SCRAM": f"{USER}:{PASSWORD}"}
    command = [str(job.built / "kgo.test"), "-test.v", "-test.timeout=30m"]
    if job.names is not None:
        env["KGO_TEST_RECORDS"] = RECORDS
        tops = sorted({name.partition("/")[0] for name in job.names})
        command.append(f"-test.run=^({'|'.join(tops)})$")
    job.command(command, "kgo.log", timeout_s=1900, **env)
    yield from outcomes((job.work / "kgo.log").read_text(errors="replace"))


def outcomes(log: str) -> Iterator[Outcome]:
    """Tests and their subtests, from the output of a Go test binary."""
    lines = log.splitlines()
    for i, line in enumerate(lines):
        if (m := RESULT.match(line)) is None:
            continue
        state = {"PASS": "pass", "FAIL": "fail", "SKIP": "skip"}[m[1]]
        note = _last_words(lines[:i], m[2]) if state != "pass" else ""
        yield Outcome(name=m[2], state=state, seconds=float(m[3]), note=note)


def _last_words(lines: list[str], name: str) -> str:
    """Returns the last thing that a test said before it ended: Go prints it under the test's name."""
    said, speaker = "", ""
    for line in lines:
        if line.startswith(("=== RUN", "=== CONT", "=== NAME")):
            speaker = line.split()[2]
        elif speaker == name and re.match(r"^\s+\w+\.go:\d+: ", line):
            said = line.strip()
    return said[:160]


SUITE = Suite(
    name="franz-go", version=VERSION, directory=HERE, needs=["go"], prepare=prepare, run=run, secure=True,
    settings={"group.initial.rebalance.delay.ms": "0"},
    kafka_settings={
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
    },
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(main(SUITE))
