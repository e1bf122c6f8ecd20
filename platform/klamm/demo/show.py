"""The output of the demonstration: a live progress line, and the summary."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from klamm.demo.feed import Feed
from klamm.demo.platform import CONNECTORS, TOPIC, Embedded
from klamm.demo.proof import Proof
from klamm_base.errors import KlammError

TTY_S: Final = 0.25
PLAIN_S: Final = 2.0
CHECK_S: Final = 1.0
ASK_S: Final = 10.0


@dataclass(slots=True)
class Counts:
    """Lines so far: written to the source file, acknowledged by the broker, in the sink file."""

    fed: int = 0
    acknowledged: int = 0
    out: int = 0
    seconds: float = 0.0

    @property
    def lag(self) -> int:
        return self.fed - self.out


class LineCounter:
    """Counts a growing file's lines, reading only what is new."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._position = 0
        self.lines = 0

    def update(self) -> int:
        """Counts the lines that were added, and returns the total."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._position)
                while chunk := file.read(1 << 20):
                    self._position += len(chunk)
                    self.lines += chunk.count(b"\n")
        except FileNotFoundError:
            return 0  # the sink makes it with its first record
        return self.lines


class TopicEnd:
    """Asks the broker for the topic's end offset: the number of records that it has acknowledged."""

    def __init__(self, bootstrap: str) -> None:
        from confluent_kafka import Consumer, TopicPartition

        self._partition = TopicPartition(TOPIC, 0)
        settings = {"bootstrap.servers": bootstrap, "group.id": "klamm-demo-progress", "log_level": 2}
        self._consumer = Consumer(settings)

    def acknowledged(self) -> int:
        """Returns the end offset; 0 while there is no such topic."""
        from confluent_kafka import KafkaException

        try:
            return int(self._consumer.get_watermark_offsets(self._partition, ASK_S)[1])
        except KafkaException as e:
            if e.args[0].name() in {"UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_PARTITION", "_UNKNOWN_TOPIC"}:
                return 0
            raise KlammError(f"the broker does not say where the topic ends: {e.args[0].str()}") from None

    def close(self) -> None:
        self._consumer.close()


class Progress:
    """The progress: a line that is rewritten on a terminal, a line every two seconds elsewhere."""

    def __init__(self) -> None:
        self._live: Any = None
        self._printed = 0.0

    def __enter__(self) -> Self:
        if sys.stdout.isatty():
            from rich.live import Live

            self._live = Live(refresh_per_second=8)
            self._live.__enter__()
        return self

    def __exit__(self, *exc: Any) -> None:
        if self._live is not None:
            self._live.__exit__(*exc)

    def until_through(self, feed: Feed, embedded: Embedded, sink: Path, *, settle_s: float) -> Counts:
        """Shows counts until every line has arrived. Raises KlammError when that takes longer than `settle_s` after the last line."""
        end = TopicEnd(embedded.bootstrap)
        try:
            return self._until_through(feed, embedded, LineCounter(sink), end, settle_s)
        finally:
            end.close()

    def _until_through(
        self, feed: Feed, embedded: Embedded, counter: LineCounter, end: TopicEnd, settle_s: float
    ) -> Counts:
        begin, ended_at, checked_at = time.monotonic(), None, 0.0
        counts = Counts()
        while True:
            now = time.monotonic()
            finished = feed.done
            # Asked in this order, so that the shown counts hold: out <= acknowledged <= in
            counts.out = counter.update()
            counts.acknowledged = end.acknowledged()
            counts.fed = feed.lines
            counts.seconds = now - begin
            through = finished and counts.out >= counts.fed and counts.acknowledged >= counts.fed
            self._print(counts, feed.total, last=through)
            if through:
                return counts
            if now - checked_at > CHECK_S:
                checked_at = now
                for name in CONNECTORS:
                    embedded.check(name)
            if finished:
                ended_at = ended_at or now
                if now - ended_at > settle_s:
                    raise KlammError(
                        f"{settle_s:g} s after the last line: {counts.fed} lines in, "
                        f"{counts.acknowledged} acknowledged, {counts.out} out"
                    )
            time.sleep(TTY_S)

    def _print(self, counts: Counts, total: int, *, last: bool) -> None:
        line = (
            f"lines in {counts.fed:>9,} of {total:,}   records acknowledged {counts.acknowledged:>9,}   "
            f"lines out {counts.out:>9,}   lag {counts.lag:>7,}   {counts.seconds:4.0f} s"
        )
        if self._live is not None:
            self._live.update(line)
        elif last or time.monotonic() - self._printed >= PLAIN_S:
            self._printed = time.monotonic()
            print(line, flush=True)


def summary(proof: Proof, counts: Counts) -> None:
    """Prints the table of counts and checksums, the verdict, and how to go on."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title="What went in and what came out")
    table.add_column("where")
    table.add_column("lines", justify="right")
    table.add_column("SHA-256")
    for where, digest in (
        ("source file", proof.source),
        ("topic connect-test", proof.topic),
        ("sink file", proof.sink),
    ):
        table.add_row(where, f"{digest.lines:,}", digest.sha256[:32] + "…")
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 100)
    console.print(table)
    if proof.complete:
        console.print(
            f"nothing was lost: {proof.source.lines:,} lines in {counts.seconds:.0f} s, equal in all three places"
        )
    else:
        console.print("NOT EQUAL: lines were lost, repeated or changed on the way")
    console.print(_go_on(), soft_wrap=True)


def _go_on() -> str:
    klamm = Path(sys.executable).with_name("klamm")
    shown = (
        Path(klamm.parent.parent.name, "bin", "klamm") if klamm.parent.parent.parent == Path.cwd() else klamm
    )
    return f"""
Go on:
  {shown} up                                # broker and Connect until Ctrl-C; data in ./klamm-data
  {shown} topic list
  {shown} produce my-topic "a first record"
  {shown} consume my-topic --from-beginning --exit
  curl -X POST -H 'Content-Type: application/json' http://127.0.0.1:8083/connectors -d \\
    '{{"name":"local-file-source","config":{{"connector.class":"FileStreamSource","tasks.max":"1","file":"/tmp/in.txt","topic":"connect-test"}}}}'
  {shown} connector status local-file-source"""
