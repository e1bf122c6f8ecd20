"""Runs a module with an environment laid over the worker's packages.

`python -m klamm.environments.overlay SITE MODULE ARG…`: the folder SITE goes onto the import path
before the interpreter's site-packages (and after the standard library, as site-packages do), then
MODULE runs as `__main__`. The process and its forks hold a shared lock on the environment, so that
nobody removes it meanwhile. This module imports nothing of Klamm, because such an import would not come
from the environment.
"""

from __future__ import annotations

import errno
import fcntl
import os
import runpy
import site
import sys
import sysconfig

IN_USE = "in-use"


def lay_over(path: str) -> None:
    """Put `path` before the first folder of installed packages."""
    installed = {*site.getsitepackages(), site.getusersitepackages(), sysconfig.get_path("purelib")}
    places = [i for i, entry in enumerate(sys.path) if entry in installed]
    sys.path.insert(min(places, default=len(sys.path)), path)


def hold(path: str) -> None:
    """Lock the environment of this site folder until this process and its forks have ended.

    Raises FileNotFoundError when another process removes it at this moment.
    """
    name = os.path.join(os.path.dirname(path), IN_USE)  # noqa: PTH118, PTH120
    try:
        marker = os.open(name, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as e:
        if e.errno not in {errno.EACCES, errno.EPERM, errno.EROFS}:
            raise
        marker = os.open(name, os.O_RDONLY)  # of another user, or in an image
    fcntl.flock(marker, fcntl.LOCK_SH)
    if os.fstat(marker).st_ino != os.stat(name).st_ino:  # noqa: PTH116
        raise FileNotFoundError(errno.ENOENT, "The environment was removed a moment ago", path)


def main(argv: list[str]) -> None:
    path, module, *arguments = argv
    hold(path)
    lay_over(path)
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(sys.argv[1:])
