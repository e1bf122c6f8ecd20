"""The file that keeps the end of the last block of producer ids: `producer-id-block` in the data directory.

It has two lines, as in Kafka's checkpoints: version 0, then the first id that was never handed out.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from klamm_base.errors import KlammError
from klamm_base.files import write_atomically
from klamm_broker.coordinator.producer_ids import ProducerIds

FILE_NAME: Final = "producer-id-block"
_VERSION: Final = "0"


class ProducerIdFileError(KlammError):
    """The file cannot be used. To start at 0 instead would hand out ids that are in use."""


def open_producer_ids(directory: Path) -> ProducerIds:
    """Returns producer ids that continue where the file says. Raises ProducerIdFileError."""
    path = directory / FILE_NAME
    return ProducerIds(_read(path), lambda first_free: _write(path, first_free))


def _read(path: Path) -> int:
    try:
        text = path.read_text("ascii")
        if not text.endswith("\n"):  # a part of a number is a number
            raise ValueError("the end of the second line is missing")
        version, first_free = text.split()
        if version != _VERSION:
            raise ProducerIdFileError(
                f"{path}: version {version} is not {_VERSION}: written by a newer Klamm"
            )
        if not first_free.isdecimal():
            raise ValueError(first_free)
        return int(first_free)
    except FileNotFoundError:
        return 0
    except ValueError as e:
        raise ProducerIdFileError(
            f"{path}: damaged ({e}). It must hold two lines, each with its end: {_VERSION}, and a number above every "
            "producer id that was ever handed out. Without the file ids go on far above those that the logs know."
        ) from e


def _write(path: Path, first_free: int) -> None:
    write_atomically(path, f"{_VERSION}\n{first_free}\n".encode("ascii"))
