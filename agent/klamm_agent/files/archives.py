"""Rotated files that were packed or copied: decides whether their content was read already, in part, or is new. Pure.

An archive is looked through once. There are three results:

- it has the content of a file that is gone: it takes that file's place, and reading goes on inside it where the file's ended;
- it has the content of a file that is still there: it waits, as that file is read itself; when the file goes, as above;
- neither: it is read from its beginning.

Positions of archives count unpacked bytes. The tracker recognises an archive by its packed size and its first and last packed
bytes (gzip's checksum is there), so that a finished archive is not unpacked again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from klamm_agent.files.gzip import Candidate, Inspection
from klamm_agent.files.tracked import HEAD, Archive, Inode, Print, Tracked

BROKEN_AFTER_S: Final = 60.0  # without growth; until then an archive without an end is still being written

COPY_WAIT_S: Final = 10.0  # how long a copy of a file that is still there waits for that file's truncation


class Archives:
    """The archives and copies among a tracker's files. `gap` takes a file, a range and a reason; `restart` begins a file anew; `topic`
    gives the topic of a file's lines, empty when it is unknown. `changed` gets the files whose positions change without a read.
    """

    def __init__(
        self,
        files: dict[Inode, Tracked],
        gap: Callable[[Tracked, int, int, str], None],
        restart: Callable[[Tracked, str], None],
        topic: Callable[[Tracked], str],
        changed: dict[Inode, None],
    ) -> None:
        self._changed = changed
        self._files, self._gap, self._restart, self._topic = files, gap, restart, topic
        self._heads: dict[str, list[Tracked]] = {}  # by digest, of whole beginnings
        self._short: dict[str, list[Tracked]] = {}  # by path: what is known of them is shorter
        self._replaced: dict[int, Tracked] = {}  # by generation, as long as something of it is in flight

    def remember(self, file: Tracked, known: int, reason: str, now: float) -> None:
        """Remembers the content of `file`, of which `known` bytes were seen: other content has replaced it, but a copy or an archive may
        still bring it.
        """
        number = -1
        while (-1, number) in self._files:  # no file has such a device
            number -= 1
        inode = (-1, number)
        self._files[inode] = content = Tracked(
            inode=inode, path=file.path, source=file.source, head_print=file.head_print, position=file.position,
            tail=file.tail, acked=file.acked, acked_tail=file.acked_tail, inside=file.inside,
            acked_inside=file.acked_inside, size=max(file.position, known), seen=False, gone_at=now, was=file.inode,
            marks=file.marks, reason=reason, generation=file.generation,
        )  # fmt: skip
        self._changed[inode] = None
        self._index(content)
        if content.acked != content.position:
            self._replaced[file.generation] = content

    def missed(self, content: Tracked, now: float) -> None:
        """Notes unread content as lost when no copy of it has come for COPY_WAIT_S."""
        if content.owes and content.gone_at is not None and now - content.gone_at >= COPY_WAIT_S:
            self._lost(content, content.position)
            content.size = content.position

    def _lost(self, content: Tracked, since: int) -> None:
        """Notes as lost what was seen of replaced content behind `since`."""
        reason = content.reason or ("" if content.seen else "gone")
        if reason and content.size > since:
            self._gap(content, since, content.size, reason)
        content.reason = ""

    def acknowledged(self, generation: int, offset: int, tail: bytes, *, inside: bool) -> None:
        """Takes note that everything before `offset` of replaced content is delivered."""
        file = self._replaced.get(generation)
        if file is not None:
            file.acked, file.acked_tail, file.acked_inside = offset, Print.of(tail), inside
            if file.acked == file.position:
                del self._replaced[generation]

    def index(self) -> None:
        """Indexes files by their beginnings, for `copied`; call it before files are opened."""
        self._heads.clear()
        self._short.clear()
        for file in self._files.values():
            if file.archive is None and file.head_print.length:
                self._index(file)

    def _index(self, file: Tracked) -> None:
        if file.head_print.length == HEAD:
            self._heads.setdefault(file.head_print.digest, []).append(file)
        else:
            self._short.setdefault(file.path, []).append(file)

    def copied(self, file: Tracked, head: bytes, size: int) -> list[Candidate]:
        """Returns the contents that a new file with this beginning and `size` may be a copy of.

        These are replaced contents, and files that are there and may be truncated soon. The file is a copy of a candidate if the bytes
        before the candidate's offset are the same; a candidate without `tail` must be compared as far as the file goes, which may not be
        its end.
        """
        if file.position:
            return []
        found = [
            other
            for other in self._alike(file.path, head)
            if self._files.get(other.inode) is other and self._goes_with(other, file)
            and other is not file and other.was != file.inode and (other.seen or other.was is not None)
        ]  # fmt: skip
        found.sort(key=lambda other: other.was is None)
        return [c for other in found if (c := _candidate(other, size)) is not None]

    def _alike(self, path: str, head: bytes) -> Iterator[Tracked]:
        """Yields the contents that begin as `head` does. A shorter beginning proves little: the name must be theirs with an ending, too."""
        if len(head) == HEAD:
            yield from self._heads.get(Print.of(head).digest, ())
        if self._short:
            for end in range(path.rfind("/") + 2, len(path)):
                yield from (other for other in self._short.get(path[:end], ()) if other.head_print.fits(head))

    def is_copy(self, file: Tracked, candidate: Candidate, size: int, now: float) -> bool:
        """Takes `file`, of `size` bytes, for a copy of `candidate` up to its offset; returns whether it can be read now.

        A copy goes on where the original ended, once the original is truncated. A copy that is still being written has to wait. If the
        original is not truncated in COPY_WAIT_S, this is no copytruncate, and the file is read as any other.
        """
        source = self._files[candidate.inode]
        if source.was is not None:
            if source.position != source.acked:
                return False
            file.position = file.acked = candidate.offset
            file.acked_tail = candidate.tail
            if candidate.offset == source.position:
                file.inside = file.acked_inside = source.inside
            self._lost(source, max(size, source.position))
            self._changed |= {file.inode: None, source.inode: None}
            del self._files[source.inode]
            return True
        if file.copy_since is None or file.copy_since[0] != size:
            file.copy_since = size, now
        return now - file.copy_since[1] >= COPY_WAIT_S

    def _goes_with(self, other: Tracked, file: Tracked) -> bool:
        """Tells whether the lines of both files go to one topic, as far as that is known."""
        return self._topic(other) in {self._topic(file), ""}

    def opened(self, file: Tracked, head: bytes, tail: bytes, size: int, modified: float) -> bool:
        """Takes in the first and last packed bytes of `file`; returns whether it can be read now."""
        known = file.archive
        if known is not None and known.is_same(head, tail, size):
            known.modified = modified
            if known.state == "recheck":
                known.state = "ready" if known.total >= 0 else "look"
            file.size = max(file.size, known.total) if known.state == "ready" else file.size
            return known.state == "ready"
        if known is None and file.left_out:
            file.left_out = False
            file.archive = Archive(size, modified, Print.of(head), Print.of(tail), "ready", file.position)
            return True
        if known is not None and known.begun and known.total > file.position:
            self._gap(file, file.position, known.total, "replaced")
        self._restart(file, "replaced")
        file.size = size
        file.archive = Archive(size, modified, Print.of(head), Print.of(tail), "look")
        return False

    def seen(self, file: Tracked, size: int, modified: float) -> None:
        """Takes note that a scan or a look saw an archive with this packed size."""
        archive = file.archive
        assert archive is not None, "the caller asked"
        if (size, modified) == (archive.packed, archive.modified):
            archive.still = True
        else:
            archive.state, archive.still = "recheck", False

    def to_look(self) -> list[Tracked]:
        """Returns the archives to look through, oldest first: those that did not change between two scans."""
        found = [
            f
            for f in self._files.values()
            if f.archive is not None and f.archive.state == "look" and f.archive.still
        ]
        return sorted(found, key=lambda f: f.modified)

    def older(self, file: Tracked) -> bool:
        """Tells whether an older archive of the same input, which is not open, has or may have something to read."""
        for other in self._files.values():
            archive = other.archive
            if archive is None or other.source != file.source or other.is_open or not other.seen:
                continue
            waits = archive.state in {"look", "recheck"} or (archive.state == "ready" and other.unread)
            if waits and other.modified < file.modified:
                return True
        return False

    def candidates(self, like: Tracked, head: bytes) -> Iterator[Candidate]:
        """Yields the files that begin as `head` does, as far as they are known, and whose lines go to the topic of `like`."""
        prints: dict[int, Print] = {}
        for file in self._files.values():
            length = file.head_print.length
            if file.archive is not None or not 0 < length <= len(head) or not self._goes_with(file, like):
                continue
            if length not in prints:
                prints[length] = Print.of(head[:length])
            if prints[length] == file.head_print:
                yield Candidate(file.inode, file.position, file.tail_print)

    def found(self, file: Tracked, looked: Inspection, now: float) -> None:
        """Takes in the result of looking through `file`."""
        archive = file.archive
        assert archive is not None, "it was looked through"
        archive.matches, archive.total, archive.problem = looked.matches, looked.total, looked.problem
        archive.since = now
        archive.state = "partial" if looked.problem == "incomplete" else "decide"
        self._settle(file)

    def settle(self) -> None:
        """Decides all archives that can be decided."""
        for file in list(self._files.values()):
            if file.archive is not None:
                self._settle(file)

    def age(self, now: float) -> None:
        """Gives up waiting, after a scan, for the end of archives that have not grown for BROKEN_AFTER_S."""
        for file in self._files.values():
            archive = file.archive
            if archive is not None and archive.state == "partial" and now - archive.since >= BROKEN_AFTER_S:
                archive.state = "decide"

    def _settle(self, file: Tracked) -> None:
        archive = file.archive
        assert archive is not None, "the callers asked"
        if archive.state != "decide" or not file.seen:  # an archive that is gone takes no file's place
            return
        for inode, offset in archive.matches.items():
            source = self._files.get(inode)
            if source is None or (source.seen and source.size != archive.total):
                continue
            if source.seen or source.is_open or source.position != source.acked:
                file.size = 0  # this has to wait: the source is read itself
                return
            if source.position != offset:
                archive.state = "look"  # it was read further since
                return
            self._begin(file, source)
            return
        self._begin(file, None)

    def _begin(self, file: Tracked, source: Tracked | None) -> None:
        """Begins to read `file`, where `source` ended if the archive has its content."""
        archive = file.archive
        assert archive is not None, "it was decided"
        archive.state, archive.begun, archive.matches = "ready", True, {}
        file.size, file.position, file.acked, file.tail = archive.total, 0, 0, b""
        if source is not None:
            file.position = file.acked = source.position
            file.inside = file.acked_inside = source.acked_inside
            self._lost(source, max(archive.total, source.position))
            self._changed |= {file.inode: None, source.inode: None}
            del self._files[source.inode]
        if archive.problem:
            self._gap(file, archive.total, archive.total, f"the archive is {archive.problem}")

    def wants(self, file: Tracked) -> bool:
        """Tells whether `file` must be remembered because an archive may have its content."""
        return any(self._undecided(a, file) or file.inode in a.matches for a in self._others(file))

    def holds(self, file: Tracked) -> bool:
        """Tells whether a file without a name must stay open: while it is open, no other file gets its inode."""
        return any(
            self._undecided(a, file) or (file.inode in a.matches and file.position != file.acked)
            for a in self._others(file)
        )

    @staticmethod
    def _undecided(archive: Archive, file: Tracked) -> bool:
        return (file.position > 0 or file.unread > 0) and archive.state in {"look", "partial", "recheck"}

    def _others(self, file: Tracked) -> Iterator[Archive]:
        for other in self._files.values():
            if other.archive is not None and other is not file and other.gone_at is None:
                yield other.archive


def _candidate(other: Tracked, size: int) -> Candidate | None:
    """Returns the place where a copy of `size` bytes must agree with `other`; None when no such place is known."""
    least = HEAD if other.head_print.length == HEAD else 1  # a short beginning has all that was read
    if other.was is None and not least <= other.position <= size:
        return Candidate(other.inode, size, Print())
    if other.position <= size:
        return Candidate(other.inode, other.position, other.tail_print)
    # It was read further than the copy goes, before it was truncated
    mark = next((m for m in reversed(other.marks) if m[0] <= size), None)
    return None if mark is None else Candidate(other.inode, mark[0], Print.of(mark[1]))
