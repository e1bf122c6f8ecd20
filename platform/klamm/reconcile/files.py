"""The source side: every line of every file, with the id in it."""

from __future__ import annotations

import glob
import gzip
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

from klamm.reconcile.compare import SourceLine
from klamm_base.errors import ConfigError, KlammError


class RawLine(NamedTuple):
    """A line without its end; `offset` in bytes of the file's content (of a `.gz`: of what it holds)."""

    file: str
    offset: int
    data: bytes


def expand(patterns: Sequence[str], *, must: bool = True) -> list[Path]:
    """Return the files that the patterns name, `**` for any folders.

    With `must`, raises ConfigError for a pattern without files.
    """
    found: set[Path] = set()
    for pattern in patterns:
        # not Path.glob, which takes no absolute pattern
        paths = {Path(p) for p in glob.glob(pattern, recursive=True) if Path(p).is_file()}  # noqa: PTH207
        if must and not paths:
            raise ConfigError(f"no file matches {pattern!r}", key="source")
        found |= paths
    return sorted(found)


def raw_lines(paths: Iterable[Path]) -> Iterator[RawLine]:
    """Yield all complete lines.

    Text after a file's last line end is no line: it is being written still, or was cut off.
    """
    for path in paths:
        name, offset = str(path), 0
        try:
            with _open(path) as file:
                for data in file:
                    if data.endswith(b"\n"):
                        yield RawLine(name, offset, data[:-1])
                    offset += len(data)
        except OSError as e:
            raise KlammError(f"cannot read {path}: {e.strerror or e}") from None


def _open(path: Path) -> BinaryIO:
    return cast(BinaryIO, gzip.open(path, "rb")) if path.suffix == ".gz" else path.open("rb")


def identifier(pattern: str) -> re.Pattern[bytes]:
    """Return the regular expression whose first group is a line's id. Raises ConfigError when it has none."""
    try:
        compiled = re.compile(pattern.encode())
    except re.error as e:
        raise ConfigError(f"{pattern!r} is not a regular expression: {e}", key="id-regex") from None
    if not compiled.groups:
        raise ConfigError(f"{pattern!r} has no group for the id: write (…) around it", key="id-regex")
    return compiled


def json_field(name: str) -> str:
    """Return the expression for a string field of a JSON document in a line."""
    return rf'"{re.escape(name)}"\s*:\s*"([^"]+)"'


def source_lines(paths: Iterable[Path], id_: re.Pattern[bytes]) -> Iterator[SourceLine]:
    """Yield all lines with their ids."""
    return with_ids(raw_lines(paths), id_)


def with_ids(lines: Iterable[RawLine], id_: re.Pattern[bytes]) -> Iterator[SourceLine]:
    """Yield lines with their ids; the id is empty where a line has none."""
    search = id_.search
    for file, offset, data in lines:
        found = search(data)
        yield SourceLine(found[1].decode("utf-8", "replace") if found else "", file, offset)
