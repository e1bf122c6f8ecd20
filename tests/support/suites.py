"""Suites of others, run against a broker: what the runners in tests/conformance/<client>/run.py share.

    run.py [--broker klamm|kafka|HOST:PORT] [--full] [--json FILE] [TEST...]

A runner gets its suite, at a pinned version, by a package client into the user's cache directory
(`klamm-suites/<name>-<version>`), builds it there, runs it and judges the outcome by `tests.allow`: each line
names a test that must pass, `slow` behind it leaves it out of the default run, `#` begins a comment. A listed test
that was to run and did not pass is a regression. `--full` runs the whole suite, listed or not.
Exit codes: 0 good, 1 a regression, 77 it cannot be run here (the reason is on standard error).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Literal

REGRESSION, CANNOT_RUN = 1, 77
BUILD_S = 1500.0
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


class Unavailable(Exception):
    """The suite cannot be run here; the text says what is missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The outcome of one test. `note` is the beginning of its failure, or why it was skipped."""

    name: str
    state: Literal["pass", "fail", "skip"]
    seconds: float = 0.0
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One run of a suite: what was built, the broker, the tests (None: all), and where logs go.

    `secure` are the addresses of its listeners with TLS and logins, by protocol; empty where the suite asks for none.
    """

    built: Path
    bootstrap: str
    secure: Mapping[str, str]
    names: Sequence[str] | None
    work: Path

    def command(
        self, command: Sequence[str], log: str, *, cwd: Path | None = None, timeout_s: float, **env: str
    ) -> int:
        """Run a program with its output in `work/log`; its exit code, or -1 when it did not end in time."""
        with (self.work / log).open("wb") as out:
            process = subprocess.Popen(
                command, cwd=cwd or self.work, stdout=out, stderr=out, env=os.environ | env
            )
            try:
                return process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                return -1
            finally:
                process.kill()
                process.wait()


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """A foreign suite. `settings` are the broker properties it expects, of ours and of Kafka alike. With `secure` the
    broker has the listeners, users and stores of `support.secure_broker` and `support.secure_kafka` as well.
    """

    name: str
    version: str
    directory: Path
    needs: Sequence[str]
    prepare: Callable[[Path], None]
    run: Callable[[Job], Iterable[Outcome]]
    settings: Mapping[str, str] = field(default_factory=dict)
    kafka_settings: Mapping[str, str] = field(default_factory=dict)
    secure: bool = False

    def built(self) -> Path:
        """Returns the directory with the suite, made at the first use. Raises Unavailable."""
        for tool in self.needs:
            if shutil.which(tool) is None:
                raise Unavailable(f"{self.name} needs {tool}, which is not on PATH")
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        place = cache / "klamm-suites" / f"{self.name}-{self.version}"
        if not (place / ".ready").exists():
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir(parents=True)
            self.prepare(place)
            (place / ".ready").touch()
        return place


def step(command: Sequence[str | Path], cwd: Path, timeout_s: float = BUILD_S, **env: str) -> str:
    """Runs one step of getting or building a suite; returns its output. Raises Unavailable when it fails."""
    try:
        done = subprocess.run(
            command,
            cwd=cwd,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            env=os.environ | env,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise Unavailable(f"{command[0]} did not end within {timeout_s:.0f} s: {command}") from None
    if done.returncode:
        raise Unavailable(f"{' '.join(map(str, command))} failed:\n{(done.stdout + done.stderr)[-2000:]}")
    return done.stdout


def read_allowed(path: Path) -> dict[str, bool]:
    """Returns the tests that must pass, in order, and whether each is for `--full` only."""
    allowed: dict[str, bool] = {}
    for number, line in enumerate(path.read_text().splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        if words[0] in allowed or words[1:] not in ([], ["slow"]):
            raise ValueError(
                f"{path}:{number}: a test's name, once, and nothing or 'slow' behind it: {line!r}"
            )
        allowed[words[0]] = len(words) > 1
    return allowed


def judge(outcomes: Sequence[Outcome], wanted: Iterable[str]) -> list[str]:
    """Returns one line for each wanted test that did not pass."""
    by_name = {o.name: o for o in outcomes}
    lines = []
    for name in wanted:
        outcome = by_name.get(name)
        if outcome is None:
            lines.append(f"{name}: did not run")
        elif outcome.state != "pass":
            lines.append(f"{name}: {outcome.state} {outcome.note}".rstrip())
    return lines


def main(suite: Suite, arguments: Sequence[str] | None = None) -> int:
    """Runs the command line of a runner."""
    parser = argparse.ArgumentParser(prog=f"{suite.directory.name}/run.py", description=suite.name)
    parser.add_argument(
        "--broker", default=os.environ.get("BOOTSTRAP", "klamm"), metavar="klamm|kafka|HOST:PORT"
    )
    parser.add_argument(
        "--full", action="store_true", help="the whole suite, not the default part of tests.allow"
    )
    parser.add_argument("--json", type=Path, help="write the outcomes to this file")
    parser.add_argument("--logs", type=Path, help="keep what the suite says in this directory")
    parser.add_argument("tests", nargs="*", help="only these")
    options = parser.parse_args(arguments)
    allowed = read_allowed(suite.directory / "tests.allow")
    names = options.tests or (None if options.full else [n for n, slow in allowed.items() if not slow])
    try:
        built = suite.built()
    except Unavailable as error:
        print(error, file=sys.stderr)
        return CANNOT_RUN
    with contextlib.ExitStack() as stack:
        work = options.logs or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="klamm-suite-")))
        work.mkdir(parents=True, exist_ok=True)
        bootstrap, secure = stack.enter_context(_broker(suite, options.broker, work))
        start = time.monotonic()
        job = Job(built=built, bootstrap=bootstrap, secure=secure, names=names, work=work.resolve())
        outcomes = _again(suite, job, list(suite.run(job)), allowed)
    if options.json:
        options.json.write_text(json.dumps([asdict(o) for o in outcomes], indent=1))
    wanted = [n for n in allowed if names is None or n in names]
    regressions = judge(outcomes, wanted)
    _print_table(suite, options.broker, outcomes, allowed, time.monotonic() - start)
    for line in regressions:
        print(f"REGRESSION {line}")
    return REGRESSION if regressions else 0


def _again(suite: Suite, job: Job, outcomes: list[Outcome], allowed: Mapping[str, bool]) -> list[Outcome]:
    """Runs once more, by itself, what failed or was cut off: the tests of others have races of their own on a busy
    machine, and some take all that come after them along."""
    wanted = [name for name in allowed if job.names is None or name in job.names]
    good = {o.name for o in outcomes if o.state != "fail"}
    missed = [name for name in wanted if name not in good]
    if not missed:
        return outcomes
    second = {o.name: replace(o, note=f"second try; {o.note}") for o in suite.run(replace(job, names=missed))}
    again = {name: second[name] for name in missed if name in second}
    return [*(o for o in outcomes if o.name not in again), *again.values()]


@contextlib.contextmanager
def _broker(suite: Suite, which: str, work: Path) -> Iterator[tuple[str, Mapping[str, str]]]:
    """Yields the address of a broker, a new one of ours, a new one of Apache's, or the one that is named, and those of
    its other listeners.
    """
    if which == "klamm":
        from support.kafka_broker import free_port
        from support.secure_broker import SecureBroker

        from klamm.testing import EmbeddedBroker

        ports = {name: free_port() for name in (PROTOCOLS if suite.secure else PROTOCOLS[:1])}
        listeners = ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items())
        settings = {
            **suite.settings,
            "listeners": listeners,
            "advertised.listeners": listeners,
        }  # as Apache's has
        if suite.secure:
            with SecureBroker(work / "klamm", settings) as secured:
                secured.add_user()
                yield secured.bootstrap, _others(ports)
        else:
            with EmbeddedBroker(work / "klamm" / "data", config=settings) as ours:
                yield ours.bootstrap, {}
    elif which == "kafka":
        from support.kafka_broker import KafkaBroker
        from support.secure_kafka import SecureKafka

        (work / "kafka").mkdir()
        settings = {**suite.settings, **suite.kafka_settings}
        if suite.secure:
            with SecureKafka(
                work / "kafka", {"listener.name.ssl.ssl.client.auth": "none", **settings}
            ) as kafka:
                yield kafka.address, _others(kafka.ports)
        else:
            with KafkaBroker(work / "kafka", settings) as plain:
                yield plain.address, {}
    else:
        yield which, {}


def _others(ports: Mapping[str, int]) -> dict[str, str]:
    return {name: f"127.0.0.1:{port}" for name, port in ports.items() if name != "PLAINTEXT"}


def _print_table(
    suite: Suite, broker: str, outcomes: Sequence[Outcome], allowed: Mapping[str, bool], seconds: float
) -> None:
    width = max((len(o.name) for o in outcomes), default=0)
    for o in outcomes:
        listed = "" if o.name in allowed else "not listed"
        print(f"{o.name:<{width}}  {o.state:<4}  {o.seconds:7.1f} s  {listed:<10}  {o.note}".rstrip())
    counts = {state: sum(o.state == state for o in outcomes) for state in ("pass", "fail", "skip")}
    print(
        f"{suite.name} {suite.version} against {broker}: {counts['pass']} passed, {counts['fail']} failed,"
        f" {counts['skip']} skipped in {seconds:.0f} s"
    )
