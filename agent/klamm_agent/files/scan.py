"""The search for the files that inputs name: patterns with `*`, `?`, `[...]` and `**`, without excluded files."""

from __future__ import annotations

import errno
import fnmatch
import glob
import os
import re
import stat
from collections.abc import Callable, Iterator
from typing import Final

from klamm_agent.config.inputs import Input
from klamm_agent.files.tracked import Observed

_FOLDERS_EVERY: Final = 60  # scans; globbing skips unreadable folders in silence


class Scanner:
    """The scanner of all inputs' paths. A file that two inputs name belongs to the first."""

    def __init__(self, inputs: tuple[Input, ...], on_error: Callable[[str, OSError], None]) -> None:
        self._inputs = inputs
        self._excluded = [matcher(i.exclude) for i in inputs]
        self._named = [matcher(i.paths) for i in inputs]
        self._on_error = on_error
        self._count = 0

    def scan(self) -> Iterator[Observed]:
        """Yields regular files; a file that vanishes meanwhile is left out."""
        if self._count % _FOLDERS_EVERY == 0:
            for path in {p for config in self._inputs for p in config.paths}:
                self._look_at_folders(path)
        self._count += 1
        seen: set[str] = set()
        for source, config in enumerate(self._inputs):
            for pattern in config.paths:
                for path in glob.iglob(pattern, recursive=True):  # noqa: PTH207 - half of Path.glob's time
                    if path not in seen and not self._excluded[source](path):
                        seen.add(path)
                        if (found := self._observe(path, source)) is not None:
                            yield found

    def owner(self, path: str) -> int:
        """Returns the index of the input that names `path`; -1: none."""
        owners = (i for i, named in enumerate(self._named) if named(path) and not self._excluded[i](path))
        return next(owners, -1)

    def _look_at_folders(self, pattern: str) -> None:
        """Tells `on_error` of folders in which `pattern` cannot be followed."""
        above = os.path.dirname(pattern)  # noqa: PTH120 - of a pattern
        named = not glob.has_magic(os.path.basename(pattern))  # noqa: PTH119
        needed = os.X_OK if named else os.R_OK | os.X_OK
        if glob.has_magic(above):
            folders = list(glob.iglob(os.path.join(above, ""), recursive=True))  # noqa: PTH118, PTH207
            self._look_at_folders(above)
        else:
            folders = [above]
        for folder in folders:
            try:
                os.stat(folder)  # noqa: PTH116
            except FileNotFoundError:
                continue
            except OSError as e:
                self._on_error(folder, e)
                continue
            if not os.access(folder, needed):
                self._on_error(folder, PermissionError(errno.EACCES, os.strerror(errno.EACCES)))

    def _observe(self, path: str, source: int) -> Observed | None:
        try:
            there = os.stat(path)  # noqa: PTH116 - a Path for each file of each scan costs more than the call
        except FileNotFoundError:
            return None
        except OSError as e:
            self._on_error(path, e)
            return None
        if not stat.S_ISREG(there.st_mode):
            return None
        return Observed(
            path=path,
            inode=(there.st_dev, there.st_ino),
            size=there.st_size,
            modified=there.st_mtime,
            source=source,
        )


def matcher(patterns: tuple[str, ...]) -> Callable[[str], bool]:
    if not patterns:
        return lambda _path: False
    compiled = re.compile("|".join(f"(?:{expression(p)})" for p in patterns))
    return lambda path: compiled.fullmatch(path) is not None


def expression(pattern: str) -> str:
    """Turns a path pattern into a regular expression: `*` and `?` stay within a folder, `**/` is any number of folders."""
    parts = []
    for part in re.split(r"(\*\*/|\*\*|\*|\?|\[[^\]]+\])", pattern):
        match part:
            case "**/":
                parts.append("(?:[^/]+/)*")
            case "**":
                parts.append(".*")
            case "*":
                parts.append("[^/]*")
            case "?":
                parts.append("[^/]")
            case _ if part.startswith("[") and part.endswith("]"):
                translated = fnmatch.translate(part)  # (?s:[...])\Z, or \z in later Pythons
                parts.append(translated[len("(?s:") : -len(r")\Z")])
            case _:
                parts.append(re.escape(part))
    return "".join(parts)
