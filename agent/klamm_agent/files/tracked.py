"""The data of a followed file, and what passes between the tracker and its shell. Pure data."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Final

from klamm_agent.config.inputs import Input
from klamm_agent.framing.framer import Framed

HEAD: Final = 1024  # first bytes that identify a file
TAIL: Final = 256  # bytes before the position that every read repeats
EXPIRE_S: Final = 600.0  # a file that is gone is remembered so long, in case it comes back

Inode = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Print:
    """A fingerprint of `length` bytes. It keeps no content: the registry must not repeat what logs say."""

    length: int = 0
    digest: str = ""

    @classmethod
    def of(cls, data: bytes) -> Print:
        return cls(len(data), hashlib.blake2b(data, digest_size=12).hexdigest()) if data else cls()

    def fits(self, data: bytes) -> bool:
        """Tells whether `data` begins with the fingerprint's bytes."""
        return len(data) >= self.length and Print.of(data[: self.length]) == self


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """One path as a scan saw it; times in seconds since the epoch."""

    path: str
    inode: Inode
    size: int
    modified: float
    source: int  # index of the input that names it


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """Bytes that are not delivered, and the reason. `end` is the file's size as it was known at the decision."""

    path: str
    inode: Inode
    start: int
    end: int
    reason: str
    lines: int = 0
    """Lines in the gap; 0: not known."""
    policy: bool = False
    """True for lines that the configuration leaves out: only `lines` lines of the range are missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """The acknowledged position of a file, as the registry keeps it."""

    path: str
    inode: Inode
    head: Print
    offset: int
    tail: Print
    inside: bool = False
    """The position is inside a line whose rest is left out (`long_lines = "truncate"`)."""
    packed: int | None = None
    """Size of an archive; `head` and `tail` are then of packed bytes, `offset` and `total` count unpacked ones."""
    total: int = -1
    size: int = -1
    """Bytes of an unpacked file that were seen to be there; -1: not known."""
    generation: int = 0
    """Number of the content; 0: not known. A file that begins anew has another one, and no two contents have the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Whole lines of one read, from `start` to `end`; `tail` is the bytes before `end`. `framed` has their events, for inputs with a
    framer.
    """

    data: bytes
    start: int
    end: int
    tail: bytes
    generation: int
    framed: Framed | None = None

    @property
    def inside(self) -> bool:
        return self.framed is not None and self.framed.inside


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """An input's rules for its files. Times are in seconds; None switches a rule off."""

    topic: str = ""
    from_end: bool = False  # files of the very first scan are read from their end
    max_line: int = 500_000  # bytes; longer lines are split
    ignore_older: float | None = None
    close_inactive: float = 300.0
    rotate_wait: float = 5.0  # after so long without growth a rotated file's last line needs no end
    order: str = "parallel"  # of files with something to read: parallel, oldest_first, newest_first
    compression: str = "auto"  # whether files may be packed: auto, gzip, none
    close_rotated: float = 60.0  # after so long without growth a file without a matching name is closed

    @classmethod
    def of(cls, config: Input) -> Limits:
        """Takes the rules from an input's configuration."""
        return cls(
            topic=config.topic,
            from_end=config.start_position == "end",
            max_line=config.max_line_bytes,
            ignore_older=config.ignore_older,
            close_inactive=config.close_inactive,
            rotate_wait=config.rotate_wait,
            order=config.order,
            compression=config.compression,
            close_rotated=config.close_rotated,
        )


@dataclass(slots=True)
class Archive:
    """The state of a packed file."""

    packed: int
    """The packed size."""
    modified: float
    head: Print
    tail: Print
    """Fingerprints of packed bytes."""
    state: str
    """`look`: it has to be looked through. `partial`: its end is not there yet. `decide`: it waits for the file whose content it may
    have. `ready`: it is to be read from its position. `recheck`: it changed since.
    """
    total: int = -1
    """Unpacked size; -1 while nobody has looked."""
    begun: bool = False
    """It is read itself: this was decided."""
    still: bool = False
    """It did not change between two scans."""
    since: float = 0.0
    problem: str = ""
    matches: dict[Inode, int] = field(default_factory=dict)
    """Files whose content the archive has, each up to an offset."""

    def is_same(self, head: bytes, tail: bytes, size: int) -> bool:
        return size == self.packed and self.head.fits(head) and self.tail == Print.of(tail)


@dataclass(slots=True, kw_only=True)
class Tracked:
    """A followed file: reading has come to `position`, acknowledgements to `acked`."""

    inode: Inode
    path: str
    source: int
    """The input of its content, which a rename does not change; -1: not known yet."""
    named_by: int = -1
    """The input whose pattern named it at the last scan."""
    head: bytes = b""
    head_print: Print = field(default_factory=Print)
    position: int = 0
    tail: bytes = b""
    acked: int = 0
    acked_tail: Print = field(default_factory=Print)
    generation: int = 0
    is_open: bool = False
    size: int = 0  # as last seen
    before: int = 0
    """Size when the content was last known to be the one that is read: at the last look but one, or at a read."""
    lost: int = 0  # its size before it was seen to shrink
    modified: float = 0.0
    ended: tuple[int, float] | None = None  # size and time of change at the last read that came to the end
    grew_at: float = 0.0  # clock time of the last change
    seen: bool = True  # by the last scan
    gone_at: float | None = None
    rotated: bool = False  # renamed, replaced or removed: no new lines are expected for long
    removed: bool = False  # no name is left
    long_line: bool = False  # the last read held no line end
    held: bool = False  # the last read left whole lines unread, as their event may grow
    inside: bool = False  # the position is inside a line whose rest is left out
    acked_inside: bool = False
    archive: Archive | None = None
    was: Inode | None = None  # for replaced content: the file that had it
    copy_since: tuple[int, float] | None = None
    """For a file that is taken for a copy: its size, and since when it has that."""
    marks: tuple[tuple[int, bytes], ...] = ()
    """Ends of the blocks before the position, each with the bytes before it."""
    reason: str = ""
    """For replaced content: why the bytes that were known beyond the position cannot be read."""
    left_out: bool = False  # `start_position = "end"` chose the position, and nobody has looked inside since
    astray: str = ""
    """The search for a closed file that the last scan did not see. `look`: its folder has to be looked through. `found`: it was
    renamed, and is to be opened. `missing`: it is not there. `unwanted`: no input names it any more.
    """

    where: str = ""
    """Its present name, if no pattern names it; `path` stays the name by which an input named it."""

    @property
    def unread(self) -> int:
        return max(0, self.size - self.position)

    @property
    def is_there(self) -> bool:
        """True while the file can be read, as far as is known."""
        return self.seen or self.is_open or self.astray == "found"

    @property
    def is_begun(self) -> bool:
        """True when there are unacknowledged bytes. An archive's bytes count once it is decided that they are new."""
        return self.lag > 0 and (self.archive is None or self.archive.state == "ready")

    @property
    def owes(self) -> bool:
        """True for replaced content that was not read to the end: a copy may have the rest, or it is lost."""
        return bool(self.reason) and self.unread > 0

    @property
    def lag(self) -> int:
        """Bytes that are there and not acknowledged."""
        return max(0, self.size - self.acked)

    def checkpoint(self) -> Checkpoint:
        """Returns the place up to which everything is acknowledged."""
        return self._place(self.acked, self.acked_tail, inside=self.acked_inside)

    def read_to(self) -> Checkpoint:
        """Returns the place up to which everything is read."""
        return self._place(self.position, self.tail_print, inside=self.inside)

    @property
    def tail_print(self) -> Print:
        """The fingerprint of the bytes before the position."""
        if not self.position:
            return Print()
        return Print.of(self.tail) if self.tail else self.acked_tail

    def _place(self, offset: int, tail: Print, *, inside: bool) -> Checkpoint:
        archive = self.archive
        if archive is not None:
            return Checkpoint(
                path=self.path, inode=self.inode, head=archive.head, offset=offset, tail=archive.tail,
                inside=inside, packed=archive.packed, total=archive.total, generation=self.generation,
            )  # fmt: skip
        return Checkpoint(
            path=self.path, inode=self.inode, head=self.head_print, offset=offset, tail=tail,
            inside=inside, size=max(self.size, self.lost), generation=self.generation,
        )  # fmt: skip
