"""The tracker: a state machine without I/O that decides, through rotation and truncation, which bytes of which file come next.

Device and inode identify a file; its content confirms it: a fingerprint of its first bytes (up to HEAD; it grows with the file) and
of the last bytes before the position. Every read begins with the bytes before the position, in the same system call, so bytes that
do not continue what was read are never taken for its continuation. When they differ, the file was truncated, and is read from its
beginning as a new generation. In doubt lines come twice; no line is left out.

The shell tells the tracker what it sees (`observe`, `opened`, `looked`, `feed`, `acknowledged`, `closed`) and the time. The
tracker answers what to open, read and close. Bytes that can no longer be read go to `gaps`, by file and range.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from klamm_agent.files.archives import COPY_WAIT_S, Archives
from klamm_agent.files.tracked import (
    EXPIRE_S,
    HEAD,
    TAIL,
    Archive,
    Block,
    Checkpoint,
    Gap,
    Inode,
    Limits,
    Observed,
    Print,
    Tracked,
)
from klamm_agent.framing.framer import Framed, Framer, Place
from klamm_agent.framing.text import character_end

_MARKS: Final = 4  # blocks; no more are read between the end of a copy and the truncation of its original


class Tracker:
    """The files of an agent. `limits` and `framers` are by input; contents get numbers above `generations`. Not thread-safe."""

    def __init__(
        self,
        limits: list[Limits],
        checkpoints: Iterable[Checkpoint] | None = None,
        now: float = 0.0,
        framers: Sequence[Framer | None] = (),
        generations: int = 0,
    ) -> None:
        self._limits = limits
        self._framers = framers or [None] * len(limits)
        self._files: dict[Inode, Tracked] = {}
        self._ignored: set[Inode] = set()
        self._observed = False
        self._now = now  # of the last scan
        self._generations = generations  # over all files: blocks in flight of one never count for another
        self._first = checkpoints is None  # no agent ran before: `from_end` holds at the first scan
        self.cuts = 0  # of lines longer than allowed
        self.gaps: list[Gap] = []  # taken and emptied by the shell
        self.changed: dict[Inode, None] = {}
        """Files whose positions changed without a read, and files that are forgotten; emptied by the shell."""
        self.archives = Archives(
            self._files,
            lambda f, start, end, why: self._gap(f.path, f.was or f.inode, start, end, why),
            self._restart,
            lambda f: self._limits[f.source].topic if f.source >= 0 else "",
            self.changed,
        )
        for c in checkpoints or ():
            self._files[c.inode] = _restored(c, now)
            self._generations = max(self._generations, c.generation)

    def __len__(self) -> int:
        """Counts the followed files: those that the last scan saw, and those that are still open."""
        return sum(f.is_there for f in self._files.values())

    def limits(self, file: Tracked) -> Limits:
        return self._limits[file.source]

    def get(self, inode: Inode) -> Tracked | None:
        return self._files.get(inode)

    def __iter__(self) -> Iterator[Tracked]:
        return iter(self._files.values())

    def observe(self, scan: Iterable[Observed], now: float, wall: float) -> None:
        """Takes in one scan of all paths. When a path names another file than before, that file was rotated."""
        self._now = now
        self.archives.settle()  # before another file takes the inode of a file that is gone
        by_inode: dict[Inode, Observed] = {}
        for found in scan:
            known = self._files.get(found.inode)
            # Hard links are one file, which keeps its name.
            if found.inode not in by_inode or (known is not None and known.path == found.path):
                by_inode[found.inode] = found
        if not self._observed:
            self._renumber(by_inode)
            self._observed = True
        for file in self._files.values():
            there = by_inode.get(file.inode)
            if there is None:
                if file.seen or file.gone_at is None:
                    file.seen, file.gone_at, file.rotated = False, now, True
                    if not file.is_open and not file.removed and file.archive is None and file.was is None:
                        file.astray = "look"
            else:
                self._update(file, there, now)
        for inode, found in by_inode.items():
            if inode not in self._files:
                self._add(found, now, wall)
        self._ignored &= by_inode.keys()
        self._first = False
        self.archives.age(now)
        self.archives.settle()

    def _renumber(self, by_inode: dict[Inode, Observed]) -> None:
        """Finds files of the registry whose device number changed, as it may at a start of the machine.

        Path and inode tell them; `opened` compares their content.
        """
        missing = {(f.path, f.inode[1]): f for f in self._files.values() if f.inode not in by_inode}
        for inode, found in by_inode.items():
            file = missing.get((found.path, inode[1]))
            if file is not None and inode not in self._files:
                del self._files[file.inode]
                self.changed |= {file.inode: None, inode: None}
                file.inode = inode
                self._files[inode] = file

    def _update(self, file: Tracked, there: Observed, now: float) -> None:
        file.named_by = there.source
        # Of the registry, the name may have changed while nobody looked; a file of which nothing is known may be any other
        if file.source == -1 or not (file.position or file.head_print.length or file.is_open):
            file.source = there.source
        file.rotated = file.rotated or file.path != there.path
        file.path, file.seen, file.gone_at, file.astray = there.path, True, None, ""
        file.where = ""
        if file.archive is not None:
            file.modified = there.modified
            self.archives.seen(file, there.size, there.modified)
        elif not file.is_open:
            self._sized(file, there.size, there.modified, now)

    def _add(self, found: Observed, now: float, wall: float) -> None:
        limits = self._limits[found.source]
        if limits.ignore_older is not None and wall - found.modified > limits.ignore_older:
            if found.inode not in self._ignored and found.size:
                self._ignored.add(found.inode)
                self._gap(found.path, found.inode, 0, found.size, "ignore_older")
            return
        file = Tracked(inode=found.inode, path=found.path, source=found.source, grew_at=now)
        file.generation = self._next_generation()
        file.size, file.modified = found.size, found.modified
        if self._first and limits.from_end and found.size:
            file.position = file.acked = found.size
            file.left_out = True
            self._gap(found.path, found.inode, 0, found.size, "start_position")
        self._files[found.inode] = file

    def to_open(self) -> list[Tracked]:
        """Returns closed files with something new, oldest first (newest first, if the input asks for that)."""
        found = [f for f in self._files.values() if not f.is_open and f.is_there and self._wants_opening(f)]
        # Files of the registry come first: only when these are confirmed is it known which files are copies
        return sorted(found, key=lambda f: (bool(f.head) or not f.head_print.length, self.turn(f)))

    def astray(self) -> list[Tracked]:
        """Returns closed files that lost their name. The shell reports by `found`, or in `Tracked.astray`, whether they have another."""
        return [f for f in self._files.values() if f.astray == "look"]

    def found(self, file: Tracked, path: str, size: int, modified: float, now: float) -> None:
        """Takes in that the file at `path` has the inode of a stray file; `recognised` tells whether it is that file."""
        if not file.head_print.length and not path.startswith(file.path):
            file.astray = "missing"  # it may be another file with its inode
            return
        file.where, file.ended = path, None
        self._sized(file, size, modified, now)
        file.astray = "found" if self._wants_opening(file) else ""

    def recognised(self, file: Tracked, head: bytes, tail: bytes) -> bool:
        """Tells whether the file that was found is the stray file: another file may have got its inode."""
        if self._is_known(file, head, tail):
            return True
        file.astray, file.size = "missing", max(file.size, file.lost)
        return False

    def turn(self, file: Tracked) -> float:
        """Returns the file's place in the order of reading: smaller numbers come first."""
        return -file.modified if self._limits[file.source].order == "newest_first" else file.modified

    def _wants_opening(self, file: Tracked) -> bool:
        if file.archive is not None:
            return file.archive.state == "recheck" or (file.archive.state == "ready" and file.unread > 0)
        return bool(file.size or file.position or file.lost) and self._changed(file)

    def opened_archive(self, file: Tracked, head: bytes, now: float) -> None:
        """Takes note that an archive is open, which `archives.opened` called readable; `head` is its first unpacked bytes."""
        file.is_open, file.grew_at, file.head = True, now, head

    def not_packed(self, file: Tracked) -> None:
        """Takes note that a former archive holds text now."""
        file.archive = None
        self._restart(file, "replaced")

    def met(self, file: Tracked, head: bytes, tail: bytes) -> None:
        """Begins `file` anew if it has other content than is known: another file, which may be a copy, has got its inode. For `head` and
        `tail` see `opened`.
        """
        if file.position and not self._is_known(file, head, tail):
            self._begin_anew(file)

    def opened(self, file: Tracked, head: bytes, tail: bytes, now: float) -> None:
        """Takes note that `file` is open: `head` is its first HEAD bytes, `tail` the bytes before its position (see `tail_range`)."""
        file.is_open, file.grew_at, file.left_out, file.astray = True, now, False, ""
        unknown = not file.position and file.lost and not file.head_print.length
        if unknown or not self._is_known(file, head, tail):
            self._begin_anew(file)
        else:
            file.tail = tail
        self._extend_head(file, head, 0)

    def _begin_anew(self, file: Tracked) -> None:
        """Begins a file that has other content under its inode than was known."""
        self._restart(file, "truncated" if file.lost else "replaced")
        file.rotated = file.removed = False

    @staticmethod
    def tail_range(file: Tracked) -> tuple[int, int]:
        """Returns start and count of the bytes that `opened` wants as `tail`."""
        count = len(file.tail) or file.acked_tail.length or min(TAIL, file.position)
        return file.position - count, count

    @staticmethod
    def _is_known(file: Tracked, head: bytes, tail: bytes) -> bool:
        if not file.head_print.fits(head) or len(tail) < Tracker.tail_range(file)[1]:
            return False
        # Either this process closed the file and opens it again, or the registry knows it
        return tail == file.tail if file.tail else file.acked_tail.fits(tail)

    def looked(self, file: Tracked, size: int, modified: float, links: int, now: float) -> bool:
        """Takes in a look (fstat) at an open file; returns whether it should be read."""
        file.removed = links == 0
        file.rotated = file.rotated or file.removed
        if file.archive is not None:
            self.archives.seen(file, size, modified)
            return file.archive.state == "ready" and file.unread > 0
        self._sized(file, size, modified, now)
        return self._changed(file)

    @staticmethod
    def _changed(file: Tracked) -> bool:
        return file.ended != (file.size, file.modified)

    @staticmethod
    def _sized(file: Tracked, size: int, modified: float, now: float) -> None:
        if (size, modified) != (file.size, file.modified):
            file.grew_at = now
        file.modified = modified
        if size < file.size:
            file.lost = max(file.lost, file.size)
        elif size > file.size:
            # The growth may be of other content, until a read has shown that it is not
            file.before = file.size
        if size < file.position:
            file.ended = None  # truncated: the next read notices
        else:
            file.size = size

    def range(self, file: Tracked, block: int) -> tuple[int, int]:
        """Returns start and count of the next read: the known bytes before the position and up to `block` more."""
        wanted = block
        if file.long_line:
            framer = self._framers[file.source]
            wanted = max(block, self._limits[file.source].max_line + 1 if framer is None else framer.reach)
        return file.position - len(file.tail), len(file.tail) + wanted

    def feed(
        self, file: Tracked, data: bytes, count: int, *, final: bool = False, quiet: bool = False
    ) -> Block | None:
        """Takes in what was read by `range` (`count` bytes were asked for); returns its whole lines, or None when it has none.

        `final`: the last line needs no end; `quiet`: the last event is whole. A read that does not continue the file begins its next
        generation.
        """
        known = len(file.tail)
        if data[:known] != file.tail:
            self._restart(file, "truncated")
            return None
        whole = len(data) >= file.head_print.length or len(data) < count
        if not file.position and whole and not file.head_print.fits(data):
            self.glimpsed(file, data)
            return None
        file.before = file.size
        self._extend_head(file, data, file.position - known)
        new = len(data) - known
        at_end = len(data) < count
        if at_end and file.lost > file.position + new:  # cut off in the middle
            self._gap(file.path, file.inode, file.position + new, file.lost, "truncated")
            file.lost = 0
        framer = self._framers[file.source]
        if framer is not None:
            place = Place(
                path=file.path, start=file.position, head=file.head, inside=file.inside, final=final and at_end,
                quiet=quiet and at_end, full=file.long_line and not at_end,
            )  # fmt: skip
            return self._feed_framed(file, data, framer.frame(data[known:], place), at_end=at_end)
        cut = data.rfind(b"\n", known) + 1 - known
        if cut <= 0:
            cut = self._cut_without_end(file, data, known, final=final and at_end)
        file.long_line = not cut and not at_end
        if at_end and (cut == new or not cut):
            file.ended = (file.position + new, file.modified)
        if not cut:
            return None
        return self._advance(file, data, known, cut)

    def glimpsed(self, file: Tracked, head: bytes) -> None:
        """Takes in the present first bytes of a file of which nothing was read yet."""
        if not file.head_print.fits(head):
            self._restart(file, "truncated")
        self._extend_head(file, head, 0)

    def _feed_framed(self, file: Tracked, data: bytes, framed: Framed, *, at_end: bool) -> Block | None:
        known, cut = len(file.tail), framed.consumed
        file.held, file.long_line = framed.held, not cut and not at_end
        if at_end and (framed.held or not cut or known + cut == len(data)):
            file.ended = (file.position + len(data) - known, file.modified)
        if not cut:
            return None
        file.inside = framed.inside
        return self._advance(file, data, known, cut, framed)

    def _cut_without_end(self, file: Tracked, data: bytes, known: int, *, final: bool) -> int:
        """Returns how many bytes to give out of a line without an end: all when `final`, a piece when it is too long."""
        limit, new = self._limits[file.source].max_line, len(data) - known
        if new > limit:
            self.cuts += 1
            return character_end(data, known, limit)
        return new if final else 0

    @staticmethod
    def _advance(file: Tracked, data: bytes, known: int, cut: int, framed: Framed | None = None) -> Block:
        tail = data[max(0, known + cut - TAIL) : known + cut]
        block = Block(
            data=data[known : known + cut],
            start=file.position,
            end=file.position + cut,
            tail=tail,
            generation=file.generation,
            framed=framed,
        )
        if file.tail and not file.inside:
            file.marks = (*file.marks[-_MARKS + 1 :], (file.position, file.tail))
        file.position, file.tail = block.end, tail
        file.size = max(file.size, file.position)
        return block

    def acknowledged(
        self, file: Tracked | None, generation: int, offset: int, tail: bytes, *, inside: bool = False
    ) -> None:
        """Takes note that everything before `offset` is delivered. Blocks of an older generation say nothing about the present one. `file`
        is None when it is forgotten meanwhile.
        """
        if file is not None and generation == file.generation:
            file.acked, file.acked_tail, file.acked_inside = offset, Print.of(tail), inside
        else:
            self.archives.acknowledged(generation, offset, tail, inside=inside)

    def is_final(self, file: Tracked, now: float) -> bool:
        """Tells whether the last line of a file, which has no line end, will get no more bytes."""
        if file.archive is not None:
            return True
        limits, quiet = self._limits[file.source], now - file.grew_at
        return quiet >= limits.close_inactive or (file.rotated and quiet >= limits.rotate_wait)

    def is_quiet(self, file: Tracked, now: float) -> bool:
        """Tells whether lines that were held, because their event might grow, have waited long enough."""
        framer = self._framers[file.source]
        return (
            file.held
            and framer is not None
            and framer.timeout is not None
            and now - file.grew_at >= framer.timeout
        )

    def may_close(self, file: Tracked, now: float) -> bool:
        """Tells whether an open file that is read to its end need not be watched any more."""
        if file.archive is not None:
            return file.archive.state != "ready" or not file.unread
        limits, quiet = self._limits[file.source], now - file.grew_at
        nameless = file.removed or not file.seen
        if file.unread or quiet < (limits.close_rotated if nameless else limits.close_inactive):
            return False
        return not (file.removed and self.archives.holds(file))

    def closed(self, file: Tracked, now: float) -> None:
        file.is_open = False
        if file.gone_at is None and file.removed:
            file.seen, file.gone_at = False, now

    def expire(self, now: float) -> None:
        """Forgets files that are gone. Their unread bytes become a gap."""
        for inode, file in list(self._files.items()):
            if file.is_open or file.seen or file.gone_at is None or file.position != file.acked:
                continue
            if self.archives.wants(file) or file.astray == "found":
                continue
            self.archives.missed(file, now)
            self._missing(file, now)
            # A file without any name cannot come back, and another file may soon get its inode.
            if file.removed or now - file.gone_at >= EXPIRE_S:
                if file.unread:
                    self._gap(file.path, inode, file.position, file.size, "gone")
                del self._files[inode]
                self.changed[inode] = None

    def _missing(self, file: Tracked, now: float) -> None:
        """Notes as lost the unread bytes of a file that is nowhere."""
        reason = {"missing": "gone", "unwanted": "no input names it any more"}.get(file.astray)
        if reason and file.gone_at is not None and now - file.gone_at >= COPY_WAIT_S and file.unread:
            self._gap(file.path, file.inode, file.position, file.size, reason)
            file.size = file.position

    def checkpoints(self) -> list[Checkpoint]:
        """Returns checkpoints of all files that have content: unacknowledged bytes may not be there at the next start."""
        return [f.checkpoint() for f in self._files.values() if f.acked or f.is_begun]

    def _restart(self, file: Tracked, reason: str) -> None:
        # Of unread bytes only the size is known, as it was at the last look
        known = max(file.before, file.lost) or (file.size if file.head_print.length else 0)
        if file.archive is None and file.head_print.length and max(file.position, known):
            self.archives.remember(file, known, reason, self._now)
        elif known > file.position:
            self._gap(file.path, file.inode, file.position, known, reason)
        self.changed[file.inode] = None
        if file.named_by >= 0:  # other content belongs to the input that names the file now
            file.source = file.named_by
        file.generation = self._next_generation()
        file.position = file.acked = 0
        file.tail, file.acked_tail, file.marks = b"", Print(), ()
        file.head, file.head_print = b"", Print()
        file.ended, file.long_line, file.held = None, False, False
        file.inside = file.acked_inside = False
        file.size = file.before = file.lost = 0

    def _next_generation(self) -> int:
        self._generations += 1
        return self._generations

    @staticmethod
    def _extend_head(file: Tracked, data: bytes, start: int) -> None:
        """Extends the fingerprint of the first bytes. Before the first line is given out it follows what is there."""
        if file.archive is not None:
            return
        known = 0 if file.position == 0 else len(file.head)
        if known < HEAD and start <= known and start + len(data) > known:
            file.head = file.head[:known] + data[known - start : HEAD - start]
            file.head_print = Print.of(file.head)

    def _gap(self, path: str, inode: Inode, start: int, end: int, reason: str) -> None:
        self.gaps.append(Gap(path=path, inode=inode, start=start, end=end, reason=reason))


def _restored(c: Checkpoint, now: float) -> Tracked:
    file = Tracked(
        inode=c.inode, path=c.path, source=-1, position=c.offset, acked=c.offset, inside=c.inside,
        acked_inside=c.inside, seen=False, gone_at=now, generation=c.generation,
    )  # fmt: skip
    file.size = file.before = max(c.size, c.total, c.offset)
    if c.inode[0] < 0:
        file.was = c.inode  # the registry does not keep which file had it
        file.reason = "truncated"
    elif c.packed is None:
        file.astray = "look"
    if c.packed is None:
        file.head_print, file.acked_tail = c.head, c.tail
        file.left_out = c.offset > 0 and not c.head.length and not c.tail.length
    else:
        file.archive = Archive(c.packed, 0.0, c.head, c.tail, "recheck", c.total, begun=True)
    return file
