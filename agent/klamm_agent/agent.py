"""The agent's loop: it looks at the files, reads blocks, hands their records to the sender, and remembers what is acknowledged.

One thread. Invariant: a checkpoint never lies beyond an unacknowledged record of its file. Blocks of a file are acknowledged in
the order of reading, whatever order the brokers' answers come in. While the sender has no room the agent reads nothing: the files
are the queue.
"""

from __future__ import annotations

import datetime as dt
import logging
import os
import socket
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

from klamm_agent.config.agent import AgentConfig
from klamm_agent.config.inputs import Input
from klamm_agent.delivery.batches import Mark, Origin, Receipt, Share
from klamm_agent.delivery.sender import Sender
from klamm_agent.events import Dropped, Records
from klamm_agent.figures import labels, of_inputs
from klamm_agent.files.open_files import OpenFiles
from klamm_agent.files.scan import Scanner
from klamm_agent.files.tracked import Block, Checkpoint, Gap, Inode, Limits, Tracked
from klamm_agent.files.tracker import Tracker
from klamm_agent.host import host_fields
from klamm_agent.inputs.streams import Kept, Range, Streams
from klamm_agent.lanes.lane import Lane
from klamm_agent.state.home import Home
from klamm_agent.state.places import Places, StreamMark
from klamm_agent.state.policy import PolicyLedger
from klamm_agent.state.registry import StateDir, StateError
from klamm_base.sparing import Sparing

log = logging.getLogger(__name__)

_IDLE_S: Final = 0.1  # between two looks at files that do not grow
_STATUS_S: Final = 1.0
_DRAIN_S: Final = 15.0
_SAID_AGAIN_S: Final = 300.0
_TRIED_S: Final = 10.0
_BLOCK: Final = 256 * 1024  # bytes of a read, so large that its fixed cost does not count
_BLOCK_MIN: Final = 4 * 1024


class SentBlock:
    """A block whose records are with the sender."""

    __slots__ = ("dropped", "end", "generation", "inside", "left_out", "receipts", "tail")

    def __init__(self, receipts: list[Receipt], block: Block, dropped: list[Dropped], left_out: int) -> None:
        self.receipts, self.end, self.tail, self.generation = (
            receipts,
            block.end,
            block.tail,
            block.generation,
        )
        self.inside = block.inside
        self.dropped, self.left_out = dropped, left_out


class Agent:
    """The agent. It runs until `stop` is called.

    It owns its state directory from construction on, unless the caller lends it one. `about` gives what the status document says of
    the process. `kept` holds open readers; the agent takes those that it can use out of it. Raises KlammError.
    """

    def __init__(
        self,
        config: AgentConfig,
        stats_interval: float = 30.0,
        *,
        state: StateDir | None = None,
        about: Callable[[], dict[str, Any]] = dict,
        kept: Kept | None = None,
    ) -> None:
        self._config, self._about = config, about
        self._lent = state is not None
        self._state = state if state is not None else StateDir(config.state_dir)
        self._said = Sparing(_SAID_AGAIN_S)
        self._home = Home(self._state, config, self._say_sparingly)
        self._places = Places(self._state, wanted=config.exactly_once)
        checkpoints = self._places.checkpoints
        self._first_run = checkpoints is None
        self._scanner = Scanner(config.inputs, self._trouble)
        topics = len({topic for i in config.inputs for topic in i.topics})
        # A topic exceeds its share of the memory by one block at most, even with thousands of topics
        block = max(_BLOCK_MIN, min(_BLOCK, config.queue_bytes // topics // 4))
        host = socket.gethostname()
        self._host = host.encode()
        described = host_fields(full=config.host_metadata)
        self._lanes = [Lane(i, host=described, agent_id=config.agent_id) for i in config.inputs]
        self._tracker = Tracker(
            [Limits.of(i) for i in config.inputs],
            checkpoints,
            time.monotonic(),
            [lane.cutter.framer for lane in self._lanes],
            time.time_ns() // 1000,  # above all of the lives before
        )
        self._files = OpenFiles(
            self._tracker, self._trouble, block, config.max_open_files, self._scanner.owner
        )
        self._sender = Sender(
            config.bootstrap_servers,
            config.producer,
            name=f"klamm-agent-{config.agent_id}",
            queue_bytes=config.queue_bytes,
            topics=topics,
            refused=self._refused,
            bandwidth=config.bandwidth,
            spool=config.spool,
            dropped=self._given_up,
            wal=self._places.wal,
            one=self._home.one,
        )
        try:
            self._streams = Streams(self._lanes, self._places.streams, kept)
        except BaseException:
            self._sender.close()  # another agent may open the spool and the write-ahead log then
            self._places.close()
            raise
        self._sent: dict[Inode, deque[SentBlock]] = {}
        self._policy = PolicyLedger(self._places.policy)
        self._stream_drops: deque[tuple[list[Receipt], Range, list[Dropped]]] = deque()  # of streams
        self._stop = False
        self._unreadable: dict[str, tuple[str, float]] = {}  # why, and when it was tried last
        self._stats_interval = stats_interval
        self.lost_ranges = 0
        self.replaced = False
        self.kept: Kept = []
        self.status: dict[str, Any] = {}
        """The document of `status.json`, replaced as a whole, so that another thread may read it."""
        self._names = labels(config.inputs)
        self._last_ack, self._acked = 0.0, 0
        self._full = False  # something waits because there is no room
        self._saved: tuple[list[Checkpoint], dict[str, Any], list[dict[str, Any]], set[Inode]] | None = None

    def stop(self) -> None:
        """Ends `run`. A signal handler may call this."""
        self._stop = True

    def run(
        self, ready: Callable[[int], None], replace: Callable[[], AgentConfig | None] = lambda: None
    ) -> bool:
        """Follows the files until stopped; returns whether everything was delivered at the end.

        `ready` gets the number of files once. In every turn the agent asks `replace` for a configuration with which another agent is to
        take over. It ends when it gets one: `replaced` is true, and `kept` has the readers that the other agent needs open.
        """
        for name, why in self._config.ignored:
            log.warning("[producer] %s has no effect: %s", name, why)
        try:
            self._scan()
            if self._first_run:
                # From now on the positions that `start_position` chose hold, even if the agent is killed at once
                self._places.save(self._tracker.checkpoints(), self._streams.checkpoints())
            ready(len(self._tracker))
            self._loop(replace)
            self._streams.finish(time.monotonic(), self._deliver_stream)
            self._read_nameless()
            delivered = self._sender.drain(_DRAIN_S)
            if not delivered and not (self.replaced and self._places.wal is not None):
                again = "read" if self._places.wal is None else "sent"
                log.warning(
                    "stopped while records were unacknowledged; they are %s again at the next start", again
                )
            self._acknowledge()
            if self._places.wal is None or self._sender.is_stuck:
                self._tracker.gaps += self._streams.abandoned()
            self._save()
            self._write_status("reloading" if self.replaced else "stopped")
            return delivered
        finally:
            self._sender.close()
            self._places.close()
            self._streams.close()
            self._files.close_all()
            if not self._lent:
                self._state.close()

    def _loop(self, replace: Callable[[], AgentConfig | None]) -> None:
        now = time.monotonic()
        scan_at, save_at, stats_at = now + self._config.scan_interval, now, now + self._stats_interval
        status_at, status_every = now, min(_STATUS_S, self._config.checkpoint_interval)
        said = (now, 0, 0)
        while not (self._stop or self._streams.ended):
            if (config := replace()) is not None:
                self.replaced, self.kept = True, self._streams.keep(config.inputs)
                break
            busy = self._turn()
            self._sender.poll(0 if busy else _IDLE_S)
            self._acknowledge()
            now = time.monotonic()
            if now >= scan_at:
                self._scan()
                scan_at = time.monotonic() + self._config.scan_interval
            if now >= save_at:
                self._save()
                save_at = now + self._config.checkpoint_interval
            if now >= status_at:
                self._write_status("running")
                status_at = now + status_every
            if self._stats_interval and now >= stats_at:
                said = self._say(now, said)
                stats_at = now + self._stats_interval

    def _scan(self) -> None:
        now = time.monotonic()
        self._tracker.observe(self._scanner.scan(), now, time.time())
        self._files.open_new(now)
        self._tracker.expire(now)
        self._note_gaps()

    def _turn(self) -> bool:
        """Reads one block of every file that has something; returns whether any file had."""
        busy, self._full = False, False
        now = time.monotonic()
        for file in self._files.changed(now):
            if not self._has_room(self._config.inputs[file.source], file.path):
                self._full = True
                self._files.verify(file)
                continue
            if not self._note_changes():
                self._full = True
                break
            block = self._files.read(file, now)
            if block is not None:
                self._send(file, block)
                busy = True
        took, waits = self._streams.take(now, has_room=self._has_room, deliver=self._deliver_stream)
        busy, self._full = busy or took or self._files.busy, self._full or waits
        if self._tracker.gaps:
            self._note_gaps()
        return busy

    def _read_nameless(self) -> None:
        """Reads files, at the end, that were removed or renamed out of the patterns while they were open.

        The next agent cannot find them.
        """
        self._scan()
        deadline = time.monotonic() + _DRAIN_S
        waits = sent = True
        while (sent or waits) and time.monotonic() < deadline:
            waits = sent = False
            now = time.monotonic()
            for file in self._files.changed(now):
                if file.seen or file.archive is not None:
                    continue
                if (
                    not self._has_room(self._config.inputs[file.source], at_end=True)
                    or not self._note_changes()
                ):
                    waits = True
                elif (block := self._files.read(file, now)) is not None:
                    self._send(file, block)
                    sent = True
            self._sender.poll(_IDLE_S if waits else 0)
            self._acknowledge()

    def _send(self, file: Tracked, block: Block) -> None:
        lane = self._lanes[file.source]
        if block.framed is not None:
            records = lane.framed(block.framed, len(block.data), file.path, time.time())
        else:
            records = lane.block(block.data, block.start, file.path, time.time())
        sent = bool(records.values or records.dead)
        mark, left_out = self._places.mark(file, records.dropped, block.end, sent=sent)
        origin = Origin(file.path, file.inode, block.start, block.end)
        receipts = self._deliver(lane, records, origin, mark)
        self._sent.setdefault(file.inode, deque()).append(
            SentBlock(receipts, block, records.dropped, left_out)
        )

    def _deliver_stream(self, lane: Lane, records: Records, numbers: Range) -> Sequence[Receipt]:
        mark = None if numbers.place is None else StreamMark(numbers.name, numbers.place)
        origin = Origin(numbers.path, (0, 0), numbers.start, numbers.end)
        receipts = self._deliver(lane, records, origin, mark)
        if records.dropped:
            self._stream_drops.append((receipts, numbers, records.dropped))
        return receipts

    def _has_room(self, config: Input, path: str = "", *, at_end: bool = False) -> bool:
        """Tells whether lines of an input, and of a file if one is given, may be read now. `at_end`: the next start sends those that wait."""
        room = all(map(self._sender.has_room, config.topics))
        return room and (at_end or not self._sender.holds(config.topic, self._key(config, path)))

    def _key(self, config: Input, path: str) -> bytes | None:
        """Returns the key of an input's records; None where they have none."""
        if config.key == "host":
            return self._host
        return os.fsencode(path) if config.key == "path" and path else None

    def _note_changes(self) -> bool:
        """Brings positions that changed without a read to the write-ahead log, behind all that was read; returns whether it has them."""
        if not self._tracker.changed:
            return True
        self._sender.commit()
        return not self._sender.is_stuck and self._places.note(self._tracker)

    def _deliver(self, lane: Lane, records: Records, origin: Origin, mark: Mark | None) -> list[Receipt]:
        config = lane.config
        key = self._key(config, origin.path)
        receipts = []
        if records.values:
            part = bool(records.dead)
            receipts.append(
                self._sender.send(
                    config.topic, records.values, records.size, key, origin, mark=mark, part=part
                )
            )
        if records.dead:
            topic, size = config.stages.dead_letter_topic, sum(map(len, records.dead))
            receipts.append(self._sender.send(topic, records.dead, size, None, origin, mark=mark, part=True))
            self._sender.commit(config.topics)
        return receipts

    @property
    def lines(self) -> int:
        return sum(lane.events for lane in self._lanes)

    @property
    def bytes(self) -> int:
        return sum(lane.bytes for lane in self._lanes)

    def _acknowledge(self) -> None:
        """Moves each file's checkpoint over its delivered blocks, up to the first block that is not delivered."""
        for inode, sent in list(self._sent.items()):
            last = None
            file = self._tracker.get(inode)
            while sent and _done(sent[0].receipts):
                last = sent.popleft()
                if last.dropped and file is not None:
                    self._policy.add(file.path, inode, last.generation, last.dropped, last.end)
                    self._places.counted.add(last.left_out)
                if sent and sent[0].generation != last.generation:
                    self._tracker.acknowledged(file, last.generation, last.end, last.tail, inside=last.inside)
            if last is not None:
                self._tracker.acknowledged(file, last.generation, last.end, last.tail, inside=last.inside)
            if not sent:
                del self._sent[inode]
        self._streams.acknowledge()
        while self._stream_drops and _done(self._stream_drops[0][0]):
            _, numbers, dropped = self._stream_drops.popleft()
            self._policy.add(numbers.path, (0, 0), 0, dropped, numbers.end)

    def _save(self) -> None:
        """Saves the checkpoints, after the gaps: no checkpoint lies beyond bytes that were given up and are not in the ledger."""
        self._home.keep()
        self._tracker.gaps += self._streams.lost()
        held = self._places.held(self._sender.owed)
        self._tracker.gaps += self._policy.final(lambda i: i in held or self._tracker.get(i) is not None)
        self._note_gaps()
        if self._tracker.gaps or not self._note_changes():
            return
        checkpoints = self._tracker.checkpoints(), self._streams.checkpoints(), self._policy.entries()
        held = self._places.held(self._sender.owed)  # notes of changes are in it now
        if (*checkpoints, held) == self._saved:
            return
        try:
            self._places.save(*checkpoints, held=held)
            self._saved = (*checkpoints, held)
        except StateError as e:
            after = "a kill" if self._places.wal is None else "a power cut"
            self._say_sparingly(
                "registry",
                f"{e}; the agent continues; after {after} it delivers lines since the last checkpoint again",
            )

    def _refused(self, receipt: Receipt, size: int) -> None:
        reason = f"a record of {size} bytes is too large for topic {receipt.topic}"
        self._tracker.gaps.append(Gap(**receipt.origin._asdict(), reason=reason))

    def _given_up(self, shares: list[Share], why: str, policy: bool) -> bool:
        """Notes in the ledger what the spool drops; returns whether it is there. The spool drops nothing before."""
        gaps = [Gap(**origin._asdict(), reason=why, lines=lines, policy=policy) for origin, lines in shares]
        self._tracker.gaps += gaps
        self._note_gaps()
        if policy:
            self._say_sparingly("spool", f"{why}; the gap ledger lists the lines")
        if not self._tracker.gaps:
            return True
        self._tracker.gaps = [gap for gap in self._tracker.gaps if gap not in gaps]
        return False

    def _note_gaps(self) -> None:
        gaps, self._tracker.gaps = self._tracker.gaps, []
        if not gaps:
            return
        try:
            self._state.add_gaps(gaps, dt.datetime.now(tz=dt.UTC).isoformat(timespec="milliseconds"))
        except StateError as e:
            self._tracker.gaps = gaps  # written when there is room again
            self._say_sparingly("gaps", str(e))
            return
        lost = [gap for gap in gaps if not gap.policy]
        self.lost_ranges += len(lost)
        for gap in lost:
            what = "bytes" if any(gap.inode) else "events"
            log.warning(
                "%s: %s %d to %d are not delivered: %s", gap.path, what, gap.start, gap.end, gap.reason
            )

    def _trouble(self, path: str, error: OSError) -> None:
        """Logs sparingly that a file cannot be read, and shows it in the status; the agent tries the file again."""
        self._unreadable[path] = (str(error.strerror), time.monotonic())
        self._say_sparingly(path, f"{path} cannot be read: {error.strerror}")

    def _say_sparingly(self, about: str, what: str) -> None:
        self._said.warning(log, about, what)

    def _troubles(self) -> dict[str, str]:
        """Returns the files that could not be read at the last attempt, each with the reason."""
        since = time.monotonic() - max(_TRIED_S, 3 * self._config.scan_interval)
        self._unreadable = {path: (why, at) for path, (why, at) in self._unreadable.items() if at >= since}
        return {path: why for path, (why, _) in self._unreadable.items()}

    def _waiting_for(self) -> str:
        spool = self._config.spool
        if self._full and self._sender.brokers_away and spool is not None and spool.drop == "block":
            return "spool is full"
        if self._sender.brokers_away and (self._sender.waits or self._sender.figures()["spool_records"]):
            return self._sender.another_cluster or "broker"
        if troubles := self._sender.troubles:
            topic, why = next(iter(troubles.items()))
            return f"topic {topic}: {why}"
        if self._sender.is_stuck:
            return "write-ahead log has no room"
        if unanswered := self._sender.unanswered:
            return f"partition {unanswered[0]}: its leader does not say which lines it has"
        return "acknowledgements" if self._full else ""

    def _write_status(self, state: str) -> None:
        files = list(self._tracker)
        now = time.time()
        if self._sender.acked != self._acked:
            self._acked, self._last_ack = self._sender.acked, now
        self.status = {
            "state": state,
            "pid": os.getpid(),
            "at": now,
            **self._about(),
            "files": len(self._tracker),
            "open_files": sum(f.is_open for f in files),
            "lines": self.lines,
            "bytes": self.bytes,
            "acked": self._sender.acked,
            "last_ack": self._last_ack,
            "lag_bytes": self._lag(),
            "split_lines": sum(lane.cutter.splits for lane in self._lanes) + self._tracker.cuts,
            "inputs": of_inputs(self._names, self._lanes),
            "streams": self._streams.status(),
            "gaps": self.lost_ranges,
            "unreadable": self._troubles(),
            "waiting_for": self._waiting_for(),
            "exactly_once": self._places.without or "yes",
            "cluster_id": self._home.one.cluster_id or self._home.one.found,
            **self._sender.figures(),
        }
        self.status["unproved"] += self._places.unproved
        try:
            self._state.write_status(self.status)
        except StateError as e:
            self._say_sparingly("status", str(e))

    def _lag(self) -> int:
        # After a start, positions are beyond what the write-ahead log still has to send
        owed = self._sender.owed
        return sum(f.lag + max(0, f.acked - owed.get(f.inode, f.acked)) for f in self._tracker if f.is_there)

    def _say(self, now: float, before: tuple[float, int, int]) -> tuple[float, int, int]:
        then, lines, size = before
        passed = max(0.001, now - then)
        waiting = self._waiting_for()
        log.info(
            "%d files, %.0f lines/s, %.2f MB/s, %d lines acknowledged, lag %d bytes%s",
            len(self._tracker),
            (self.lines - lines) / passed,
            (self.bytes - size) / passed / 1e6,
            self._sender.acked,
            self._lag(),
            f", waiting for {waiting}" if waiting else "",
        )
        return now, self.lines, self.bytes


def _done(receipts: list[Receipt]) -> bool:
    return all(receipt.done for receipt in receipts)
