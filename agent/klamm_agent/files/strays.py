"""Files that lost their name while they were closed: their folders are looked through, once for each such file.

This happens when logs are rotated at night, while the service is quiet: its lines of the morning may go to `app.log.1`, which
no pattern names.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Container, Iterator
from typing import Final

from klamm_agent.files.tracked import Observed, Tracked
from klamm_agent.files.tracker import Tracker

NOBODY: Final = -1  # no input


def look_for(
    tracker: Tracker, owner: Callable[[str], int], on_error: Callable[[str, OSError], None], now: float
) -> None:
    """Tells the tracker where closed files are that the last scan did not see. `owner` gives the input that names a path."""
    folders: dict[str, list[Tracked]] = {}
    for file in tracker.astray():
        source = file.source if file.source >= 0 else owner(file.path)
        if source == NOBODY:
            file.astray = "unwanted"
        else:
            file.source = source
            folders.setdefault(os.path.dirname(file.path), []).append(file)  # noqa: PTH120 - may be no text
    for folder, files in folders.items():
        _look_in(folder, {f.inode[1]: f for f in files}, tracker, on_error, now)


def _look_in(
    folder: str,
    files: dict[int, Tracked],
    tracker: Tracker,
    on_error: Callable[[str, OSError], None],
    now: float,
) -> None:
    try:
        for there in _observed(folder, files):
            file = files[there.inode[1]]
            if there.inode == file.inode:
                tracker.found(file, there.path, there.size, there.modified, now)
                del files[file.inode[1]]
    except FileNotFoundError:
        pass  # the folder is gone as well
    except OSError as e:
        on_error(folder, e)
        for file in files.values():
            file.astray = ""  # it may be there: if it does not come back, expiry notes the loss
        return
    device = _device(folder)
    for file in files.values():
        # A file system that is not mounted now may come back
        file.astray = "missing" if device == file.inode[0] else ""


def regular_files(folder: str, on_error: Callable[[str, OSError], None]) -> list[Observed]:
    """Returns the regular files of one folder, without links; they have no `source`."""
    try:
        return list(_observed(folder, None))
    except OSError as e:
        on_error(folder, e)
        return []


def _observed(folder: str, wanted: Container[int] | None) -> Iterator[Observed]:
    """Yields a folder's regular files; with `wanted` only those with these inode numbers."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if (wanted is not None and entry.inode() not in wanted) or not entry.is_file(
                follow_symlinks=False
            ):
                continue
            try:
                there = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue  # renamed or removed at this moment
            yield Observed(
                path=entry.path, inode=(there.st_dev, there.st_ino), size=there.st_size,
                modified=there.st_mtime, source=NOBODY,
            )  # fmt: skip


def _device(folder: str) -> int:
    """Returns the device of the folder, or of the nearest existing folder above; -1: none is there."""
    while True:
        try:
            return os.stat(folder).st_dev  # noqa: PTH116 - may be no text
        except OSError:
            above = os.path.dirname(folder)  # noqa: PTH120
            if above == folder:
                return -1
            folder = above
