"""The log demonstration from start to end."""

from __future__ import annotations

import secrets
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from klamm.demo.logs import report
from klamm.demo.logs.kind import Kind
from klamm.demo.logs.pipeline import Drained, Pipeline
from klamm.demo.logs.show import View
from klamm.demo.logs.target import Choice, ElasticsearchTarget, SqliteTarget, Target, choose, redacted
from klamm_base.errors import ConfigError, KlammError

PATIENCE_S: Final = 300.0
"""The run gives up when no stage has moved for this long with lines still under way."""


LOGS: Final = "*.log"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of the command line."""

    seconds: float = 30.0
    rate: int = 1000
    elasticsearch: str | None = None
    target: Kind = Kind.AUTO
    keep: bool = False
    data_dir: Path | None = None
    report: Path | None = None
    seed: int = 1915


def run(settings: Settings) -> int:
    """Runs the demonstration. Returns 0 when everything matches, 1 when not, 130 when interrupted. Raises KlammError."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if settings.report is not None and not settings.report.absolute().parent.is_dir():
        raise ConfigError(f"--json {settings.report}: there is no such directory", key="json")
    directory, failed = _directory(settings.data_dir), True
    try:
        failed = not _run(settings, directory).complete
    except KeyboardInterrupt:
        failed = False
        sys.stderr.write("\ndemo: interrupted\n")
        return 130
    finally:
        if settings.keep:
            print(f"kept: {directory}")
        elif failed and any(directory.glob(LOGS)):
            _keep_logs(directory)
            sys.stderr.write(f"demo: the logs of all stages are in {directory}\n")
        else:
            shutil.rmtree(directory, ignore_errors=True)
    return 1 if failed else 0


def _keep_logs(directory: Path) -> None:
    """Removes everything but the logs: topics, documents and the services' files may be large."""
    for path in directory.iterdir():
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        elif not path.match(LOGS):
            path.unlink()


def _directory(asked: Path | None) -> Path:
    """Makes a directory for this run. It lies inside the one that was asked for, so that the cleanup removes nobody else's files."""
    if asked is not None:
        try:
            asked.mkdir(parents=True, exist_ok=True)
        except OSError as e:
            raise ConfigError(f"--data-dir {asked}: {e.strerror}", key="data-dir") from None
    return Path(tempfile.mkdtemp(prefix="klamm-demo-logs-", dir=asked)).absolute()


def _run(settings: Settings, directory: Path) -> report.Report:
    java = _java()
    choice = choose(settings.target, settings.elasticsearch)
    print(f"target: {choice.why}")
    total = max(1, int(settings.rate * settings.seconds))
    with _target(choice, directory, keep=settings.keep) as target:
        with Pipeline(directory, target, java=java) as pipeline:
            print(f"klamm up: broker {pipeline.embedded.bootstrap}, Connect {pipeline.embedded.rest}")
            pipeline.start_processing(print)
            pipeline.start_logging(seed=settings.seed, rate=settings.rate, total=total)
            with View(total) as view:
                end = pipeline.run(view.show, patience_s=PATIENCE_S)
            pipeline.stop()
            note = "\n".join(_notes(choice, pipeline.lines_sent() - total, end, keep=settings.keep))
            found = report.make(pipeline.files, target, note=note, seconds=end.seconds)
        report.show(found)
        if settings.report is not None:
            report.write(found, settings.report)
    return found


def _notes(choice: Choice, again: int, end: Drained, *, keep: bool) -> Iterator[str]:
    """Yields sentences that explain the report."""
    if end.stage:
        behind = ", ".join(f"{r.stage} {r.lag:,} {r.unit}" for r in end.gave_up) or "nothing that is known"
        why = f" ({end.why})" if end.why else ""
        yield f"given up: stage {end.stage} stands still{why}; nothing has moved for {PATIENCE_S:.0f} s"
        yield f"still under way, and not lost: {behind}"
    if choice.kind is Kind.SQLITE:
        yield choice.why
    if again > 0:
        yield (
            f"the agent sent {again:,} lines again, among them those of copies that copytruncate made: new files to it. "
            "Their ids make one document of each line"
        )
    if not keep and not end.stage:
        yield "files and documents are removed now; --keep leaves them"


def _java() -> dict[str, str]:
    """Returns the environment with Spark's Java, and installs a Java where there is none. Raises KlammError."""
    from klamm_spark import java

    java.need_packages()
    found = java.find_java()
    if found is None:
        print("no Java 17 or later here: installing one for Spark (as `klamm spark setup` does)")
        found = java.setup()
    return found.environment()


@contextmanager
def _target(choice: Choice, directory: Path, *, keep: bool) -> Iterator[Target]:
    with ExitStack() as stack:
        if choice.kind is Kind.SQLITE:
            yield SqliteTarget(directory / "documents.db")
            return
        url = choice.url
        if url is None:
            url = _start_elasticsearch(choice, directory if keep else None, stack)
        target = ElasticsearchTarget(url, f"klamm-demo-logs-{secrets.token_hex(3)}")
        target.prepare()
        if keep:
            print(f"indices {target.prefix}-* of {redacted(url)} stay")
        elif choice.url is not None:
            stack.callback(_remove, target)
        yield target


def _start_elasticsearch(choice: Choice, directory: Path | None, stack: ExitStack) -> str:
    from klamm.testing.elasticsearch import ElasticsearchServer

    where = None
    if directory is not None:  # root starts the server as another user, who must be able to come in
        directory.chmod(0o755)
        where = directory / "elasticsearch"
    print(f"starting Elasticsearch {choice.installation.version} ...", flush=True)
    server = stack.enter_context(ElasticsearchServer(choice.installation, where))
    print(f"Elasticsearch on {server.url}")
    return str(server.url)


def _remove(target: ElasticsearchTarget) -> None:
    """Removes our indices from a server that belongs to somebody else."""
    try:
        target.remove()
    except KlammError as e:
        sys.stderr.write(f"demo: the indices {target.prefix}-* are left behind: {e}\n")
