"""Text that is not UTF-8: finds its line ends, and decodes it to UTF-8. Pure."""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

_BOMS: Final = (  # the longer first: UTF-32's begins with UTF-16's
    (codecs.BOM_UTF32_LE, "utf-32-le"), (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"),
)  # fmt: skip
_NARROW: Final = "a line ends with the byte 0A, or the encoding is UTF-16 or UTF-32"


@dataclass(frozen=True, slots=True)
class Encoding:
    """A text encoding. `codec` is Python's name, empty for UTF-8, which needs no work; `width` is the bytes of a line end."""

    codec: str = ""
    width: int = 1
    by_mark: bool = False
    """The file's first bytes tell the byte order; without a mark it is little endian."""

    def of_file(self, head: bytes) -> Encoding:
        """Returns this encoding, with the byte order of a file that begins with `head`."""
        if not self.by_mark:
            return self
        found = next((name for mark, name in _BOMS if head.startswith(mark) and len(mark) == self.width), "")
        return Encoding(found or f"{self.codec}-le", self.width)

    def cut(self, data: bytes) -> tuple[list[bytes], list[int], int]:
        """Returns the whole lines as UTF-8 without their ends, where each ends in `data`, and where the rest begins."""
        if self.width == 1:
            raw = data.split(b"\n")
            raw.pop()
            ends = [length + n for n, length in enumerate(accumulate(map(len, raw)), 1)]
            return self._narrow(raw), ends, ends[-1] if ends else 0
        end_mark = "\n".encode(self.codec)
        ends = [m.end() for m in re.finditer(re.escape(end_mark), data) if m.start() % self.width == 0]
        rest = ends[-1] if ends else 0
        text = data[:rest].decode(self.codec, errors="replace").encode(errors="replace")
        lines = text.split(b"\n")
        lines.pop()
        if len(lines) != len(ends):  # invalid bytes swallowed a line end
            starts = [0, *ends[:-1]]
            lines = [
                data[s:e]
                .decode(self.codec, errors="replace")
                .rstrip("\n")
                .replace("\n", " ")
                .encode(errors="replace")
                for s, e in zip(starts, ends, strict=True)
            ]
        return lines, ends, rest

    def _narrow(self, raw: list[bytes]) -> list[bytes]:
        if not self.codec or not raw:
            return raw
        lines = b"\n".join(raw).decode(self.codec, errors="replace").encode(errors="replace").split(b"\n")
        if len(lines) != len(raw):
            lines = [line.decode(self.codec, errors="replace").replace("\n", " ").encode() for line in raw]
        return lines

    def whole(self, data: bytes, limit: int) -> int:
        """Returns how many bytes, at most `limit` but one character at least, can be cut off without cutting a character."""
        cut = max(self.width, min(limit, len(data)) // self.width * self.width)
        high = data[cut - 1 if self.codec == "utf-16-le" else cut - 2]
        if self.width == 2 and cut > 2 and 0xD8 <= high < 0xDC:  # the first half of a surrogate pair
            cut -= 2
        return cut

    def text(self, data: bytes) -> bytes:
        """Returns a piece of a line as UTF-8; bytes that are no text become U+FFFD."""
        return data.decode(self.codec, errors="replace").encode(errors="replace") if self.codec else data


def encoding(name: str) -> Encoding:
    """Finds an encoding by Python's name, or by `utf-16-bom` and the like. Raises ValueError."""
    short = name.lower().replace("_", "-").removesuffix("-bom")
    try:
        codec = codecs.lookup(short).name
        if codec in {"utf-8", "utf-8-sig", "ascii"}:
            return Encoding("" if codec != "ascii" else "ascii")
        if codec in {"utf-16", "utf-32"}:
            return Encoding(codec, 2 if codec == "utf-16" else 4, by_mark=True)
        if codec in {"utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"}:
            return Encoding(codec, 2 if "16" in codec else 4)
        usable = "\n\r{}".encode(codec) == b"\n\r{}" and b"\n".decode(codec) == "\n"
    except (LookupError, UnicodeError):
        raise ValueError("no such encoding is known") from None
    if not usable:
        raise ValueError(f"it cannot be read: {_NARROW}")
    return Encoding(codec)
