"""The files of `tests/fixtures/kafka-4.3.1/`, and the command lines that dump them, for Kafka's tool and for ours."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from support import archive

FIXTURES = Path(__file__).parent.parent / "fixtures" / "kafka-4.3.1"
SUFFIXES = (".log", ".index", ".timeindex", ".snapshot", ".txnindex")
DECODERS = {"__consumer_offsets-0": "--offsets-decoder", "__transaction_state-0": "--transaction-log-decoder"}


@dataclass(frozen=True, slots=True)
class Case:
    """A command line of kafka-dump-log on the files of one partition."""

    name: str
    directory: Path
    args: tuple[str, ...]

    def normal(self, out: str) -> list[str]:
        return out.replace(str(self.directory), "DIRECTORY").splitlines()

    def normal_err(self, err: str) -> list[str]:
        """Sorts, because Kafka collects findings in hash tables; leaves out traces and what clients log."""
        lines = [line for line in self.normal(err) if not line.startswith(("\t", "[20"))]
        return sorted(line.rpartition("Exception: ")[2] for line in lines if line)


def unpack(work: Path) -> dict[str, Path]:
    """Unpacks both archives; returns their folders by name."""
    return {name: archive.unpack(FIXTURES / f"{name}.tar.xz", work / name) for name in ("clean", "killed")}


def cases(name: str, root: Path) -> Iterator[Case]:
    """Yields every partition in every manner."""
    for directory in sorted(d for d in root.iterdir() if d.is_dir()):
        files = sorted(str(f) for f in directory.iterdir() if f.suffix in SUFFIXES)
        decoder = DECODERS.get(directory.name, "--print-data-log")
        manners = (
            (), ("--deep-iteration",), (decoder,), (decoder, "--skip-record-metadata"),
            ("--verify-index-only", "--max-bytes", "1000"),
        )  # fmt: skip
        for manner in manners:
            title = " ".join((name, directory.name, *manner))
            yield Case(title, root, (*manner, "--files", ",".join(files)))
        for index in (f for f in files if f.endswith((".index", ".timeindex"))):
            title = f"{name} {directory.name} {Path(index).name} sanity"
            yield Case(title, root, ("--index-sanity-check", "--files", index))
