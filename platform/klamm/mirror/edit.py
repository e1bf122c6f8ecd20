"""Changes single properties in the text of mm2.properties; comments, order and all other lines stay as they are. Pure,
except for `change_file`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

from klamm_base.errors import ConfigError
from klamm_base.files import write_atomically

_KEY: Final = re.compile(r"\s*((?:[^\s=:\\]|\\.)+)")
_ESCAPED: Final = re.compile(r"\\(.)")


def _logical_lines(text: str) -> list[tuple[str, list[str]]]:
    """Returns each property with its lines, continuations included; comments and blank lines have the key ''."""
    found: list[tuple[str, list[str]]] = []
    lines = text.splitlines(keepends=True)
    while lines:
        first = lines.pop(0)
        taken = [first]
        if first.strip() and first.lstrip()[0] not in "#!":
            while _continues(taken[-1]) and lines:
                taken.append(lines.pop(0))
            match = _KEY.match(first)
            found.append((_ESCAPED.sub(r"\1", match[1]) if match else "", taken))
        else:
            found.append(("", taken))
    return found


def _continues(line: str) -> bool:
    body = line.rstrip("\r\n")
    return (len(body) - len(body.rstrip("\\"))) % 2 == 1


def set_property(text: str, key: str, value: str | None) -> str:
    """Returns the text with another value: in place where the key stands (its last line counts), else at the end.

    None removes the key.
    """
    lines = _logical_lines(text)
    places = [i for i, (name, _) in enumerate(lines) if name == key]
    wanted = [] if value is None else [f"{key}={_escaped(value)}\n"]
    if not places:
        if text and not text.endswith("\n"):
            wanted = ["\n", *wanted]
        return text + "".join(wanted)
    for i in places:
        lines[i] = ("", wanted if i == places[-1] else [])
    return "".join(line for _, taken in lines for line in taken)


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\")


def change_file(path: Path, edit: Callable[[str], str], check: Callable[[Path], object]) -> bool:
    """Replaces the file by its edited text, if `check` accepts it. Returns False when nothing changes. Raises ConfigError."""
    try:
        before = path.read_text()
    except (OSError, UnicodeDecodeError) as e:
        raise ConfigError(f"{path} cannot be read: {e}") from None
    after = edit(before)
    if after == before:
        return False
    trial = path.with_name(f".{path.name}.trial")
    write_atomically(trial, after.encode())
    try:
        check(trial)
    except ConfigError as e:
        raise ConfigError(str(e).replace(str(trial), str(path)), key=e.key) from None
    finally:
        trial.unlink(missing_ok=True)
    write_atomically(path.resolve(), after.encode(), keep_mode=True)
    return True
