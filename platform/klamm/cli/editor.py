"""A text in the user's editor."""

from __future__ import annotations

import contextlib
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from klamm_base.errors import ConfigError, KlammError

_USUAL: Final = "vi"


@contextlib.contextmanager
def editing(text: str, *, name: str) -> Iterator[Path]:
    """Let the editor of VISUAL or EDITOR (else vi) change a text, in a file of this name; yield the file, which is removed afterwards.

    Raises KlammError where the editor fails.
    """
    chosen = os.environ.get("VISUAL") or os.environ.get("EDITOR")
    if not chosen and not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise KlammError(f"no terminal for the editor {_USUAL}: set EDITOR to a command that needs none")
    editor = shlex.split(chosen or _USUAL)
    with tempfile.TemporaryDirectory() as folder:  # 0700: passwords may be written into the file
        file = Path(folder, name)
        file.write_text(text, encoding="utf-8")
        try:
            code = subprocess.run([*editor, str(file)], check=False).returncode
        except OSError as e:
            raise KlammError(f"the editor {editor[0]} failed: it cannot be started: {e.strerror}") from None
        if code:
            raise KlammError(
                f"the editor {editor[0]} failed: it ended with exit code {code}: nothing is changed"
            )
        yield file


@contextlib.contextmanager
def kept(text: str, *, name: str) -> Iterator[None]:
    """Keep what the user wrote where the work with it fails, in a file that the error names."""
    try:
        yield
    except KlammError as e:
        file = Path(tempfile.mkdtemp(prefix="klamm-"), name)
        file.write_text(text, encoding="utf-8")
        said = f"{e} (what you wrote is in {file})"
        raise (ConfigError if isinstance(e, ConfigError) else KlammError)(said) from None


def edited(text: str, *, name: str) -> str:
    """Return what the user makes of a text by `editing` it. Raises KlammError."""
    with editing(text, name=name) as file:
        return file.read_text(encoding="utf-8")
