"""Dumps files one after the other. Reports their faults on standard error, at the end, as Kafka does.

Reports a file that cannot be read further at once, and dumps the others all the same; the exit code is 1 then.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Final, TextIO

from klamm.logdump.decoders import Decoder
from klamm.logdump.errors import DumpError
from klamm.logdump.indexes import Mode, dump_index, dump_time_index, dump_txn_index
from klamm.logdump.log_file import WHOLE, dump_log
from klamm.logdump.snapshots import dump_snapshot

MAX_MESSAGE_SIZE: Final = 5 * 1024 * 1024
SUFFIXES: Final = (".log", ".checkpoint", ".index", ".timeindex", ".snapshot", ".txnindex")
_IN_MEMORY: Final = (
    1 << 20
)  # bytes of findings; a compacted segment can have many, they go to a temporary file


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpOptions:
    """DumpLogSegments' options. `decoder` prints contents; None leaves them out."""

    deep: bool = False
    decoder: Decoder | None = None
    skip_metadata: bool = False
    mode: Mode = field(default_factory=Mode)
    max_message_size: int = MAX_MESSAGE_SIZE
    max_bytes: int = WHOLE


class _Findings:
    """Lines under headings, in the order in which the headings came up. Bounded memory."""

    def __init__(self) -> None:
        self._files: dict[str, IO[str]] = {}

    def add(self, heading: str, line: str) -> None:
        if heading not in self._files:
            self._files[heading] = tempfile.SpooledTemporaryFile(_IN_MEMORY, "w+", encoding="utf-8")  # noqa: SIM115
        self._files[heading].write(line + "\n")

    def write(self, err: TextIO) -> None:
        for heading, file in self._files.items():
            err.write(heading + "\n")
            file.seek(0)
            err.writelines(file)
            file.close()


def dump(files: Sequence[str], options: DumpOptions, out: TextIO, err: TextIO) -> int:
    """Print the files; the exit code."""
    findings, failed = _Findings(), False
    for name in files:
        out.write(f"Dumping {name}\n")
        lines = _lines(Path(name), options, findings)
        if lines is None:
            err.write(f"Ignoring unknown file {name}\n")
            continue
        try:
            out.writelines(line + "\n" for line in lines)
        except DumpError as e:
            out.flush()
            err.write(f"{e}\n")
            failed = True
    out.flush()
    findings.write(err)
    return 1 if failed else 0


def why_not(path: Path) -> str | None:
    """Why there is nothing to dump; None for a file that may be one of Kafka's. Kafka's tool ignores such files."""
    if not path.exists():
        return "no such file"
    if path.is_dir():
        return "a directory: name the files in it"
    return None if path.suffix in SUFFIXES else f"none of Kafka's files, which end in {', '.join(SUFFIXES)}"


def _lines(path: Path, options: DumpOptions, findings: _Findings) -> Iterator[str] | None:
    """Yield the lines of a file; None for one that is none of a partition's."""

    def gap(before: int, this: int) -> None:
        findings.add(f"Non-consecutive offsets in {path.absolute()}", f"  {before} is followed by {this}")

    match path.suffix:
        case ".log" | ".checkpoint":
            return dump_log(
                path,
                deep=options.deep,
                decoder=options.decoder,
                skip_metadata=options.skip_metadata,
                max_bytes=options.max_bytes,
                gap=gap,
            )
        case ".index":
            return dump_index(path, options.mode, options.max_message_size, findings.add)
        case ".timeindex":
            return dump_time_index(path, options.mode, findings.add)
        case ".snapshot":
            return dump_snapshot(path)
        case ".txnindex":
            return dump_txn_index(path)
        case _:
            return None
