"""A text in the user's editor."""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
from pathlib import Path

from klamm_base.errors import KlammError


def edited(text: str, *, name: str) -> str:
    """Return what the editor of VISUAL or EDITOR (else vi) makes of a text, in a file of this name. Raises KlammError."""
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_text(text, encoding="utf-8")
        try:
            subprocess.run([*shlex.split(editor), str(path)], check=True)
        except (OSError, subprocess.CalledProcessError) as e:
            raise KlammError(f"the editor {editor!r} failed: {e}; nothing was changed") from None
        return path.read_text(encoding="utf-8")
