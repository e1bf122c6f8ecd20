"""Records are sent and read as fast as a cluster takes and gives them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from klamm.load.latencies import Latencies, Pace
from klamm_base.errors import KlammError
from klamm_base.interrupts import Interrupts

FLUSH_S: Final = 120.0
Clock = Callable[[], float]


@dataclass(slots=True)
class Sending:
    """A run of a producer. `window` are the records since the last report, `whole` all but the first `warmup`."""

    producer: Any
    topic: str
    report: Callable[[Latencies, float], None]
    report_s: float = 5.0
    warmup: int = 0
    interrupts: Interrupts = field(default_factory=Interrupts)
    """Ends a run between two records."""
    clock: Clock = time.monotonic
    whole: Latencies = field(default_factory=Latencies)
    window: Latencies = field(default_factory=Latencies)
    elapsed_s: float = 0.0
    _acknowledged: int = 0
    _began: float = 0.0
    _reported: float = 0.0
    _problem: str | None = None

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self._problem = self._problem or error.str()
            return
        self._acknowledged += 1
        ms = (message.latency() or 0.0) * 1000
        size = len(message.key() or b"") + len(message.value() or b"")
        self.window.add(ms, size)
        if self._acknowledged > self.warmup:
            if self._acknowledged == self.warmup + 1:
                self._began = self.clock() if self.warmup else self._began
            self.whole.add(ms, size)

    def run(
        self,
        values: Iterator[bytes],
        per_s: float,
        *,
        key: Callable[[int], bytes | None] | None = None,
        transaction_s: float | None = None,
    ) -> None:
        """Send all values, and wait for their acknowledgements. Raises KlammError for the first that fails."""
        self._began = self._reported = self.clock()
        try:
            self._send_all(values, Pace(per_s, self._began), key, transaction_s)
            left = self.interrupts.flush(self.producer, FLUSH_S)
            self.interrupts.check()
        finally:
            self.elapsed_s = self.clock() - self._began
        if self._problem is None and left:
            self._problem = f"no answer after {FLUSH_S:g} s about {left} records"
        if self._problem is not None:
            raise KlammError(f"{self._acknowledged} records acknowledged, then {self._problem}")

    def _send_all(
        self,
        values: Iterator[bytes],
        pace: Pace,
        key: Callable[[int], bytes | None] | None,
        transaction_s: float | None,
    ) -> None:
        committed_at = pace.began_s
        if transaction_s is not None:
            self.producer.begin_transaction()
        for sent, value in enumerate(values):
            while (wait := pace.wait_s(sent, self.clock())) > 0:
                self.producer.poll(min(wait, 0.05))
                self.interrupts.check()
            self._enqueue(value, key(sent) if key else None)
            if transaction_s is not None and self.clock() - committed_at >= transaction_s:
                self.producer.commit_transaction()
                self.producer.begin_transaction()
                committed_at = self.clock()
            self._look()
        if transaction_s is not None:
            self.producer.commit_transaction()

    def _enqueue(self, value: bytes, key: bytes | None) -> None:
        while True:
            try:
                self.producer.produce(self.topic, value, key, on_delivery=self._delivered)
            except BufferError:
                self.producer.poll(0.05)
                self._look()
            else:
                self.producer.poll(0)
                return

    def _look(self) -> None:
        """Report when it is time. Raises KlammError where a record failed."""
        self.interrupts.check()
        if self._problem is not None:
            raise KlammError(f"{self._acknowledged} records acknowledged, then {self._problem}")
        now = self.clock()
        if now - self._reported >= self.report_s:
            self.report(self.window, now - self._reported)
            self._reported = now
            self.window = Latencies()


@dataclass(slots=True)
class Reading:
    """A run of a consumer: records and bytes read, and the time until it had its partitions.

    `elapsed_s` holds a wait for records that did not come, as in Kafka's tool; `read_s` ends with the last record.
    """

    consumer: Any
    report: Callable[[Reading, float], None]
    report_s: float = 5.0
    interrupts: Interrupts = field(default_factory=Interrupts)
    """Ends a run between two batches."""
    clock: Clock = time.monotonic
    records: int = 0
    bytes: int = 0
    elapsed_s: float = 0.0
    read_s: float = 0.0
    joining_s: float = 0.0

    def run(self, topics: list[str], wanted: int, idle_s: float, *, pattern: bool = False) -> bool:
        """Read so many records. Returns False where nothing came for `idle_s`. Raises KlammError."""
        begun = heard = self.clock()
        joined: list[float] = []

        def assigned(consumer: Any, partitions: Any) -> None:
            joined.append(self.clock())

        names = [f"^{t}" for t in topics] if pattern else topics
        self.consumer.subscribe(names, on_assign=assigned)
        reported = begun
        try:
            while self.records < wanted:
                for m in self.consumer.consume(min(1000, wanted - self.records), 0.1):
                    if m.error() is not None:
                        raise KlammError(f"cannot read {m.topic()}: {m.error().str()}")
                    self.records += 1
                    self.bytes += len(m.key() or b"") + len(m.value() or b"")
                    heard = self.clock()
                self.interrupts.check()
                now = self.clock()
                if now - reported >= self.report_s:
                    self.report(self, now - begun)
                    reported = now
                if now - heard > idle_s:
                    break
        finally:
            self.elapsed_s = self.clock() - begun
            self.read_s = heard - begun if self.records else self.elapsed_s
            self.joining_s = (joined[0] - begun) if joined else self.elapsed_s
        return self.records >= wanted
