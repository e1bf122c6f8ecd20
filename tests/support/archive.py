"""The fixtures' archives."""

from __future__ import annotations

import tarfile
from pathlib import Path


def unpack(archive: Path, target: Path) -> Path:
    """Unpack one of our own fixtures. Early releases of Python 3.11 have no extraction filters."""
    with tarfile.open(archive) as tar:
        if hasattr(tarfile, "data_filter"):
            tar.extractall(target, filter="data")
        else:
            tar.extractall(target)
    return target
