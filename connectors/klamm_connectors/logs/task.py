"""The task of LogTail: it runs files (or a reader) through a lane into batches; positions are source offsets.

A file is the source partition `{"root", "inode"}`: the pattern's folder without wildcards, and the number that stays when the file
is renamed. The offset has its path, its position, and the fingerprints by which the tracker recognises its content. A batch is the
records of one read. Its last record has the position behind the read, the others have the position before it, so a committed
position always lies between two reads.
"""

from __future__ import annotations

import glob
import logging
import os
import socket
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any, Final

from klamm_agent.config.inputs import Input
from klamm_agent.config.readers import JournaldSettings
from klamm_agent.events import Reader, Records
from klamm_agent.files.open_files import OpenFiles
from klamm_agent.files.scan import Scanner
from klamm_agent.files.strays import regular_files
from klamm_agent.files.tracked import Checkpoint, Limits, Observed, Print, Tracked
from klamm_agent.files.tracker import Tracker
from klamm_agent.host import host_fields
from klamm_agent.inputs.opening import open_reader
from klamm_agent.lanes.lane import Lane
from klamm_base.sparing import Sparing
from klamm_connectors.logs.config import INODE, INPUT, POSITION, ROOT, TASK, TASKS, config_def, parse
from klamm_plugins.batch import RawValues, SourceBatch, raw_texts
from klamm_plugins.columns import Repeated
from klamm_plugins.connector import SourceTask
from klamm_plugins.records import SourceRecord
from klamm_plugins.schema import BYTES, STRING

log = logging.getLogger(__name__)

_WAIT_S: Final = 0.1  # between two looks at files that do not grow
_BLOCK: Final = 256 * 1024
_SAY_S: Final = 60.0
_FIRST: Final = "since"  # when the connector ran first, in ms: for start.position = end

Batch = SourceBatch | list[SourceRecord]


class LogTailTask(SourceTask):
    """The task, which delegates to `_FileSource` or `_StreamSource`."""

    def __init__(self) -> None:
        self._source: _FileSource | _StreamSource | None = None

    def start(self, props: Mapping[str, str]) -> None:
        config = parse(props)
        writer = _Writer(config, as_bytes=config_def().parse(props)["value.as"] == "bytes")
        if config.options is not None:
            saved = self.context.offset({INPUT: config.options.name})
            self._source = _StreamSource(config, writer, saved)
            return
        files = _FileSource(
            config,
            writer,
            share=(int(props.get(TASK, "0")), int(props.get(TASKS, "1"))),
            scan_s=config_def().parse(props)["scan.interval.ms"] / 1000,
        )
        self._source = files
        observed = list(files.scan())
        others = files.others(observed)
        partitions = [files.partition(found.path, found.inode) for found in [*observed, *others]]
        offsets = self.context.offsets(partitions) if partitions else []
        files.begin(observed, offsets[: len(observed)], zip(others, offsets[len(observed) :], strict=True))

    def poll(self) -> Batch | None:
        assert self._source is not None, "started"
        batch = self._source.next(time.monotonic())
        if batch is None and not self.context.stopping.wait(0 if self._source.is_busy else _WAIT_S):
            batch = self._source.next(time.monotonic())
        return batch

    def lag(self) -> int | None:
        return None if self._source is None else self._source.lag()

    def stop(self) -> None:
        if self._source is not None:
            self._source.close()


class _Writer:
    """A writer of batches: it gives records their key, adds dead letters, and counts what the input's rules leave out."""

    def __init__(self, config: Input, *, as_bytes: bool) -> None:
        host = socket.gethostname()
        self.lane = Lane(config, host=host_fields(full=False), agent_id=host)
        self._config, self._host, self._as_bytes = config, host, as_bytes
        self._dropped: Counter[str] = Counter()
        self._say_at = 0.0

    def batch(
        self,
        records: Records,
        partition: dict[str, Any],
        before: dict[str, Any],
        after: dict[str, Any],
        path: str,
    ) -> Batch | None:
        """Makes a batch; None when there is no record."""
        for dropped in records.dropped:
            self._dropped[dropped.reason] += dropped.lines
        self.say_dropped(every=_SAY_S)
        if not records.values and not records.dead:
            return None
        key = {"none": None, "path": path, "host": self._host}[self._config.key]
        count = len(records.values)
        batch = SourceBatch(
            partition,
            self._config.topic,
            self._values(records.values),
            range(count),
            # Only the last record has the position behind the read.
            offset_of=lambda row: after if row == count - 1 else before,
            value_schema=BYTES if self._as_bytes else STRING,
            keys=None if key is None else Repeated(key, count),
            key_schema=None if key is None else STRING,
        )
        if not records.dead:
            return batch
        topic = self._config.stages.dead_letter_topic
        dead = records.dead if self._as_bytes else _texts(records.dead)
        schema = BYTES if self._as_bytes else STRING
        letters = [SourceRecord(partition, before, topic, None, None, None, schema, v, None) for v in dead]
        rest = list(batch)
        if not rest:
            letters[-1] = SourceRecord(partition, after, topic, None, None, None, schema, dead[-1], None)
        return [*letters, *rest]

    def _values(self, values: list[bytes]) -> list[Any] | RawValues:
        if self._as_bytes:
            return values
        return raw_texts(values) or _texts(values)

    def say_dropped(self, every: float = 0.0) -> None:
        """Logs, now and then, how many events rules of the configuration left out."""
        now = time.monotonic()
        if self._dropped and now >= self._say_at:
            self._say_at = now + every
            for reason, lines in self._dropped.items():
                log.info("%d events were left out: %s", lines, reason)
            self._dropped.clear()


def _texts(values: list[bytes]) -> list[Any]:
    return [v.decode(errors="replace") for v in values]


class _StreamSource:
    is_busy = False

    def __init__(self, config: Input, writer: _Writer, saved: dict[str, Any] | None) -> None:
        assert config.options is not None, "asked by the caller"
        self._writer = writer
        self._partition = {INPUT: config.options.name}
        self._reader: Reader = open_reader(config.options, parse=config.format != "raw", checkpoint=saved)
        self._comes_again = isinstance(config.options, JournaldSettings)
        begin = {"cursor": None} if self._comes_again else {"events": 0}
        # The offset before the first batch, so that a batch cut by a crash comes again as a whole
        self._before = dict(saved or self._reader.checkpoint() or begin)
        self._waiting: deque[Batch] = deque()

    def next(self, now: float) -> Batch | None:
        if not self._waiting:
            for events, position in self._reader.poll(now):
                after = {"cursor": position} if isinstance(position, str) else {"events": position}
                records = self._writer.lane.run(events)
                batch = self._writer.batch(records, self._partition, self._before, after, events.path)
                self._before = after
                if batch is not None:
                    self._waiting.append(batch)
            for path, lost in self._reader.lost():
                log.warning(
                    "%s: %d events (%d to %d): %s", path, lost.lines, lost.start, lost.end or 0, lost.reason
                )
        return self._waiting.popleft() if self._waiting else None

    def lag(self) -> int | None:
        return None

    def close(self) -> None:
        self._reader.finish()
        left = sum(map(len, self._waiting))
        while found := self._reader.poll(time.monotonic()):
            left += sum(len(events.values) for events, _ in found)
        if left and not self._comes_again:
            name = self._partition[INPUT]
            log.warning("%s: %d events had come and are not delivered: the task ends", name, left)
        self._reader.close()
        self._writer.say_dropped()


class _FileSource:
    def __init__(self, config: Input, writer: _Writer, *, share: tuple[int, int], scan_s: float) -> None:
        self._config, self._writer, self._share, self._scan_s = config, writer, share, scan_s
        self._scanner = Scanner((config,), self._trouble)
        self._roots = sorted({_root(pattern) for pattern in config.paths}, key=len, reverse=True)
        self._scan_at = 0.0
        self._ready: deque[Tracked] = deque()
        self._said = Sparing(_SAY_S)
        self._since = int(time.time() * 1000)
        self._offsets: dict[tuple[int, int], dict[str, Any]] = {}

    def scan(self) -> Iterator[Observed]:
        """Yields the files of this task."""
        task, tasks = self._share
        return (found for found in self._scanner.scan() if found.inode[1] % tasks == task)

    def partition(self, path: str, inode: tuple[int, int]) -> dict[str, Any]:
        root = next((r for r in self._roots if path.startswith(r)), "/")
        return {ROOT: root, INODE: inode[1]}

    def others(self, observed: list[Observed]) -> list[Observed]:
        """Returns files of this task, in the same folders, that no pattern names: they may have been renamed."""
        task, tasks = self._share
        known = {found.inode for found in observed}
        folders = {os.path.dirname(found.path) for found in observed}  # noqa: PTH120 - may be no text
        folders |= {r for r in self._roots if os.path.isdir(r)}  # noqa: PTH112
        found = [o for folder in sorted(folders) for o in regular_files(folder, self._trouble)]
        return [o for o in found if o.inode not in known and o.inode[1] % tasks == task]

    def begin(
        self,
        observed: Iterable[Observed],
        offsets: list[dict[str, Any] | None],
        others: Iterable[tuple[Observed, dict[str, Any] | None]] = (),
    ) -> None:
        """Goes on from `offsets`, one for each file that is there; `others` may be files that were renamed since."""
        known = [o[_FIRST] for o in offsets if o is not None and isinstance(o.get(_FIRST), int)]
        self._since = min(known, default=self._since)
        checkpoints = []
        for found, offset in zip(observed, offsets, strict=True):
            if offset is not None:
                checkpoints.append(_checkpoint(found, offset))
            elif known and self._config.start_position == "end" and found.modified * 1000 < self._since:
                # The first start left the file out, and it is as it was then
                checkpoints.append(_checkpoint(found, {POSITION: found.size}))
        for found, offset in others:
            if offset is not None and POSITION in offset:
                checkpoints.append(_checkpoint(replace(found, path=str(offset.get("path", ""))), offset))
        now = time.monotonic()
        first = not checkpoints and not any(offset is not None for offset in offsets)
        framers = [self._writer.lane.cutter.framer]
        self._tracker = Tracker([Limits.of(self._config)], None if first else checkpoints, now, framers)
        self._files = OpenFiles(self._tracker, self._trouble, _BLOCK, owner=self._scanner.owner)

    def next(self, now: float) -> Batch | None:
        """Returns the batch of one read of some file; files take turns."""
        if now >= self._scan_at:
            self._tracker.observe(self.scan(), now, time.time())
            self._files.open_new(now)
            self._tracker.expire(now)
            self._scan_at = time.monotonic() + self._scan_s
        if not self._ready:
            self._ready.extend(self._files.changed(now))
        batch = None
        while self._ready and batch is None:
            batch = self._read(self._ready.popleft(), now)
        self._say_gaps()
        return batch

    def _read(self, file: Tracked, now: float) -> Batch | None:
        if not file.is_open:
            return None
        before = self._offset(file)
        block = self._files.read(file, now)
        if block is None:
            return None
        lane = self._writer.lane
        if block.framed is not None:
            records = lane.framed(block.framed, len(block.data), file.path, time.time())
        else:
            records = lane.block(block.data, block.start, file.path, time.time())
        # The runtime commits offsets: here a block counts as acknowledged at once
        self._tracker.acknowledged(file, block.generation, block.end, block.tail, inside=block.inside)
        return self._writer.batch(
            records, self.partition(file.path, file.inode), before, self._offset(file), file.path
        )

    def _offset(self, file: Tracked) -> dict[str, Any]:
        c = file.checkpoint()
        offset: dict[str, Any] = {
            "path": os.fsencode(c.path).decode(errors="replace"),
            POSITION: c.offset,
            "head": f"{c.head.length}:{c.head.digest}",
            "tail": f"{c.tail.length}:{c.tail.digest}",
            _FIRST: self._since,
        }
        if c.size > c.offset:
            offset["size"] = c.size
        if c.inside:
            offset["inside"] = True
        if c.packed is not None:
            offset |= {"packed": c.packed, "total": c.total}
        return offset

    def _say_gaps(self) -> None:
        gaps, self._tracker.gaps = self._tracker.gaps, []
        for gap in gaps:
            log.warning("%s: bytes %d to %d are not delivered: %s", gap.path, gap.start, gap.end, gap.reason)

    def _trouble(self, path: str, error: OSError) -> None:
        self._said.warning(log, path, f"{path} cannot be read: {error.strerror}")

    @property
    def is_busy(self) -> bool:
        """True while an archive is looked through: then there is something to do at once."""
        return self._files.busy

    def lag(self) -> int | None:
        """Returns the bytes that are there and not handed over."""
        return sum(file.unread for file in self._tracker if file.is_there)

    def close(self) -> None:
        self._files.close_all()
        self._writer.say_dropped()


def _root(pattern: str) -> str:
    """Returns a pattern's folder before its first wildcard."""
    folder = PurePosixPath(pattern).parent
    while glob.has_magic(str(folder)):
        folder = folder.parent
    return str(folder)


def _checkpoint(found: Observed, offset: Mapping[str, Any]) -> Checkpoint:
    packed = offset.get("packed")
    return Checkpoint(
        path=found.path,
        inode=found.inode,
        head=_print(offset.get("head")),
        offset=int(offset[POSITION]),
        tail=_print(offset.get("tail")),
        inside=bool(offset.get("inside", False)),
        packed=None if packed is None else int(packed),
        total=int(offset.get("total", -1)),
        size=int(offset.get("size", -1)),
    )


def _print(text: Any) -> Print:
    """Reads a fingerprint of an offset; a fingerprint that a user left out fits any content."""
    length, colon, digest = str(text or "").partition(":")
    return Print(int(length), digest) if colon and length.isdigit() and int(length) else Print()
