"""The sentence for a file that this user may not read. Files with secrets are for one user alone."""

from __future__ import annotations

import errno
import os
from pathlib import Path


def why_unreadable(path: Path, error: OSError) -> str:
    """Returns why a file cannot be read; where only another user may, who that is, and what to do."""
    said = f"cannot be read: {error.strerror or error}"
    if error.errno != errno.EACCES:
        return said
    owner, reader = _name(_owner(path)), _name(os.geteuid())
    if owner == reader:
        return f"{said}; it is a file of {owner}, whose mode gives no right to read (chmod u+r)"
    return (
        f"{said}; it is for {owner} alone, and this is {reader}: run this as {owner}, "
        f"or let {owner} make a copy (install -o {reader} -m 600)"
    )


def _owner(path: Path) -> int:
    """Returns the owner of the file; of the folder that lets nobody in, where the file cannot be seen."""
    for each in (path, *path.absolute().parents):
        try:
            return each.stat().st_uid
        except OSError:
            continue
    return 0


def _name(uid: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"
