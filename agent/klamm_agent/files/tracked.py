"""What is known of a file that is followed, and what passes between the tracker and its shell. Pure data."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Final

from klamm_agent.config.inputs import Input
from klamm_agent.framing.framer import Framed

HEAD: Final = 1024  # first bytes by which a file is known again
TAIL: Final = 256  # bytes before the position that every read repeats
EXPIRE_S: Final = 600.0  # how long a file that is gone is remembered, in case it comes back

Inode = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Print:
    """Fingerprint of `length` bytes; no content is kept, as the registry must not repeat what logs say."""

    length: int = 0
    digest: str = ""

    @classmethod
    def of(cls, data: bytes) -> Print:
        return cls(len(data), hashlib.blake2b(data, digest_size=12).hexdigest()) if data else cls()

    def fits(self, data: bytes) -> bool:
        """Whether `data` begins with the bytes this was taken of."""
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
    """Bytes that are not delivered, and why. `end` is what was known of the file when that was decided."""

    path: str
    inode: Inode
    start: int
    end: int
    reason: str
    lines: int = 0
    """How many; 0: not known."""
    policy: bool = False
    """Left out because the configuration says so: of the range, only that many lines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """How far a file is acknowledged; what the registry keeps of it."""

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
    """Of a file that is not packed: how much was seen to be there; -1: not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Whole lines read from `start` up to `end`, where `tail` precedes; `framed`: their events, of inputs that have a framer."""

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
    """Times in seconds; None switches the rule off."""

    topic: str = ""
    from_end: bool = False  # files that are there at the very first scan are read from their end
    max_line: int = 500_000  # bytes; longer lines are split
    ignore_older: float | None = None
    close_inactive: float = 300.0
    rotate_wait: float = 5.0  # how long a rotated file must be quiet before its last line needs no end
    order: str = "parallel"  # of files with something to read: parallel, oldest_first, newest_first
    compression: str = "auto"  # whether files may be packed: auto, gzip, none
    close_rotated: float = 60.0  # how long a file without a name that matches must be quiet to be closed

    @classmethod
    def of(cls, config: Input) -> Limits:
        """What an input's configuration asks for."""
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
    """What is known of a file that is packed."""

    packed: int
    """Its size."""
    modified: float
    head: Print
    tail: Print
    """Of packed bytes."""
    state: str
    """`look`: to be looked through; `partial`: its end is not there yet; `decide`: it waits for what it may be the content
    of; `ready`: to be read from its position; `recheck`: it changed since.
    """
    total: int = -1
    """Unpacked size, -1 as long as nobody looked."""
    begun: bool = False
    """It was decided that it is read itself."""
    still: bool = False
    """It did not change between two scans."""
    since: float = 0.0
    problem: str = ""
    matches: dict[Inode, int] = field(default_factory=dict)
    """Files whose content it is up to an offset."""

    def is_same(self, head: bytes, tail: bytes, size: int) -> bool:
        return size == self.packed and self.head.fits(head) and self.tail == Print.of(tail)


@dataclass(slots=True, kw_only=True)
class Tracked:
    """One file: where reading is (`position`) and how far it is acknowledged (`acked`)."""

    inode: Inode
    path: str
    source: int
    head: bytes = b""
    head_print: Print = field(default_factory=Print)
    position: int = 0
    tail: bytes = b""
    acked: int = 0
    acked_tail: Print = field(default_factory=Print)
    generation: int = 0
    is_open: bool = False
    size: int = 0  # as last seen
    before: int = (
        0  # size when the content was last known to be what is read: at a look before the last, or at a read
    )
    lost: int = 0  # size that it had when it was seen to shrink
    modified: float = 0.0
    ended: tuple[int, float] | None = None  # size and time of change when a read last came to the end
    grew_at: float = 0.0  # clock time of the last change
    seen: bool = True  # by the last scan
    gone_at: float | None = None
    rotated: bool = False  # renamed, replaced or removed: no new lines are expected for long
    removed: bool = False  # no name is left
    long_line: bool = False  # the last read held no line end
    held: bool = False  # the last read left whole lines, whose event may grow
    inside: bool = False  # the position is inside a line whose rest is left out
    acked_inside: bool = False
    archive: Archive | None = None
    was: Inode | None = None  # the file that had this content, which was replaced there
    copy_since: tuple[int, float] | None = None  # taken for a copy: its size, and since when it has that
    marks: tuple[
        tuple[int, bytes], ...
    ] = ()  # ends of the blocks before the position, with the bytes before them
    reason: str = (
        ""  # of content that was replaced: why what was known beyond the position cannot be read there
    )
    left_out: bool = False  # `start_position = "end"` put the position there, and nobody looked inside since
    astray: str = ""
    """Of a closed file that the last scan did not see: `look`: its folder is to be looked through; `found`: it was renamed, and is
    to be opened; `missing`: it is not there; `unwanted`: no input names it any more.
    """

    where: str = ""
    """Its name now, if no pattern names that; `path` stays the one by which an input named it."""

    @property
    def unread(self) -> int:
        return max(0, self.size - self.position)

    @property
    def is_there(self) -> bool:
        """Whether it can be read as far as is known."""
        return self.seen or self.is_open or self.astray == "found"

    @property
    def owes(self) -> bool:
        """Content that was replaced before all that was known of it was read: a copy may have the rest, or it is lost."""
        return bool(self.reason) and self.unread > 0

    @property
    def lag(self) -> int:
        """Bytes that are there and not acknowledged."""
        return max(0, self.size - self.acked)

    def checkpoint(self) -> Checkpoint:
        archive = self.archive
        if archive is not None:
            return Checkpoint(
                path=self.path, inode=self.inode, head=archive.head, offset=self.acked, tail=archive.tail,
                inside=self.acked_inside, packed=archive.packed, total=archive.total,
            )  # fmt: skip
        return Checkpoint(
            path=self.path, inode=self.inode, head=self.head_print, offset=self.acked, tail=self.acked_tail,
            inside=self.acked_inside, size=max(self.size, self.lost),
        )  # fmt: skip
