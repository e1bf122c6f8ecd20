"""Contexts: named clusters, each with what a command needs to reach and log in to it, in a file of the user's.

The file is `$XDG_CONFIG_HOME/klamm/contexts.toml` (mode 0600). Client settings that were given as properties stand in
a file of the context's own beside it, because commands take such a file.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from klamm_base.errors import ConfigError, KlammError

GROUPS: Final = {
    "bootstrap_server": ("command_config",),
    "rest_url": ("rest_user", "rest_token", "rest_cacert"),
    "registry_url": ("registry_user",),
}
"""Addresses, and the settings that belong to each: nobody sends a login of one address to another."""
SETTINGS: Final = tuple(name for url, others in GROUPS.items() for name in (url, *others))
SECRET: Final = ("rest_user", "rest_token", "registry_user")
"""Settings that may hold a password."""
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_READ_BY_OTHERS: Final = 0o077


def environment_name(setting: str) -> str:
    """Return the environment variable that goes before a setting."""
    return f"KLAMM_{setting.upper()}"


def folder() -> Path:
    """Return the folder of the user's settings."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "klamm"


@dataclass(slots=True)
class Contexts:
    """The contexts of one file, by name; `current` is the one that commands use by themselves."""

    path: Path
    by_name: dict[str, dict[str, str]] = field(default_factory=dict)
    current: str | None = None

    def get(self, name: str) -> Mapping[str, str]:
        """Return a context's settings. Raises KlammError for an unknown name."""
        if name not in self.by_name:
            known = ", ".join(sorted(self.by_name)) or "none"
            raise KlammError(f"no context {name!r} in {self.path} (there: {known})")
        return self.by_name[name]

    def add(self, name: str, settings: Mapping[str, str], *, replace: bool = False) -> None:
        """Add a context. Raises KlammError for a name that is taken or impossible."""
        require_name(name)
        if name in self.by_name and not replace:
            raise KlammError(f"context {name!r} is there already; --replace puts this one in its place")
        self.by_name[name] = dict(settings)

    def remove(self, name: str) -> None:
        """Remove a context and the file of its properties, once the contexts are saved without it."""
        own = self.own_file(name)
        del self.by_name[self._known(name)]
        self.current = None if self.current == name else self.current
        self.save()
        own.unlink(missing_ok=True)

    def rename(self, name: str, to: str) -> None:
        """Give a context another name, and its file of properties too."""
        require_name(to)
        if to in self.by_name:
            raise KlammError(f"context {to!r} is there already")
        settings = self.by_name[self._known(name)]
        own, new = self.own_file(name), self.own_file(to)
        from klamm_base.files import write_atomically

        moved = settings.get("command_config") == str(own) and own.exists()
        if moved:
            write_atomically(new, own.read_bytes())
            settings = settings | {"command_config": str(new)}
        self.by_name = {to if n == name else n: settings if n == name else s for n, s in self.by_name.items()}
        self.current = to if self.current == name else self.current
        self.save()
        if moved:
            own.unlink()

    def own_file(self, name: str) -> Path:
        """Return the place of the properties that were given for a context."""
        return self.path.parent / "contexts" / f"{name}.properties"

    def save(self) -> None:
        """Write the file, readable by its owner only. Raises KlammError."""
        from klamm_base.files import make_private_folder, write_atomically

        try:
            make_private_folder(self.path.parent)
            write_atomically(self.path, as_toml(self.by_name, self.current).encode())
        except OSError as e:
            raise KlammError(f"cannot write {self.path}: {e.strerror or e}") from None

    def _known(self, name: str) -> str:
        self.get(name)
        return name


def require_name(name: str) -> None:
    """Raise ConfigError for a word that is no name of a context."""
    if not _NAME.fullmatch(name):
        raise ConfigError(f"{name!r} is no name of a context: letters, digits, '.', '_' and '-', at most 64")


def load(path: Path | None = None) -> Contexts:
    """Return the contexts of a file; none where there is no file. Raises ConfigError naming what is wrong with it."""
    path = path or folder() / "contexts.toml"
    try:
        text = path.read_text(encoding="utf-8")
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return Contexts(path)
    except (OSError, UnicodeDecodeError) as e:
        raise ConfigError(f"{path}: cannot be read: {getattr(e, 'strerror', None) or e}") from None
    found = parse(text, path)
    secrets = any(name in SECRET for settings in found.by_name.values() for name in settings)
    if secrets and mode & _READ_BY_OTHERS:
        raise ConfigError(
            f"{path}: other users may read it, and it holds credentials (mode {mode & 0o777:o}); `chmod 600` it"
        )
    return found


@contextmanager
def changing() -> Iterator[Contexts]:
    """Yield the user's contexts, which no other command changes meanwhile. Raises KlammError."""
    import fcntl

    from klamm_base.files import make_private_folder

    place = folder()
    try:
        make_private_folder(place)
        lock = os.open(place, os.O_RDONLY)
    except OSError as e:
        raise KlammError(f"cannot write {place}: {e.strerror or e}") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield load()
    finally:
        os.close(lock)


def parse(text: str, path: Path) -> Contexts:
    """Return the contexts of a file's text. Raises ConfigError."""
    import tomllib

    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as e:
        raise ConfigError(f"{path}: {e}") from None
    unknown = sorted(document.keys() - {"current", "contexts"})
    if unknown:
        raise ConfigError(f"{path}: {unknown[0]} is not one of current, contexts")
    tables = document.get("contexts", {})
    if not isinstance(tables, dict):
        raise ConfigError(f"{path}: contexts must be tables: [contexts.NAME]")
    by_name = {name: _settings(name, table, path) for name, table in tables.items()}
    current = document.get("current")
    if current is not None and current not in by_name:
        raise ConfigError(f"{path}: current = {json.dumps(current)}: there is no such context")
    return Contexts(path, by_name, current)


def _settings(name: str, table: Any, path: Path) -> dict[str, str]:
    try:
        require_name(name)
    except ConfigError as e:
        raise ConfigError(f"{path}: {e}") from None
    if not isinstance(table, dict):
        raise ConfigError(f"{path}: [contexts.{name}] must be a table")
    for key, value in table.items():
        if key not in SETTINGS:
            raise ConfigError(f"{path}: [contexts.{name}] {key} is not one of {', '.join(SETTINGS)}")
        if not isinstance(value, str):
            raise ConfigError(f"{path}: [contexts.{name}] {key} must be text")
    return dict(table)


def as_toml(by_name: Mapping[str, Mapping[str, str]], current: str | None) -> str:
    """Return contexts as the text of their file."""
    lines = ["# Made by `klamm context`; it may be edited."]
    if current is not None:
        lines.append(f"current = {_quoted(current)}")
    for name, settings in sorted(by_name.items()):
        lines += ["", f"[contexts.{_quoted(name)}]"]
        lines += [f"{key} = {_quoted(settings[key])}" for key in SETTINGS if key in settings]
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
