"""Kafka's scripts that run servers, by their names: `klamm connect-distributed worker.properties`."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from klamm.cli.common import EXIT_USAGE, fail

COMMANDS: Final = {
    "connect-distributed": "Kafka's command to run a worker of a group.",
    "connect-standalone": "Kafka's command to run a lone worker.",
    "connect-mirror-maker": "Kafka's command to run MirrorMaker.",
}
USAGE: Final = {
    "connect-distributed": "connect-distributed worker.properties",
    "connect-standalone": "connect-standalone worker.properties [connector.properties|connector.json]...",
    "connect-mirror-maker": "connect-mirror-maker mm2.properties [--clusters ALIAS...]",
}


def main(name: str, words: Sequence[str]) -> int:
    """Run a server until it is told to end, as the script of this name does."""
    if set(words) & {"--help", "-h"}:
        print(f"usage: klamm {USAGE[name]}")
        return 0
    if "-daemon" in words:
        _refuse(name, "-daemon is not there: `klamm service install` makes a unit of systemd")
    if not words:
        _refuse(name, "which properties?")
    _RUN[name](name, list(words))
    return 0


def _refuse(name: str, said: str) -> None:
    fail(f"{said} (usage: klamm {USAGE[name]})", EXIT_USAGE)


def _command(module: str, name: str) -> Callable[..., None]:
    """Return a command of ours. By its name, as `own_commands` has all of them: they know more than a script does."""
    command: Callable[..., None] = getattr(importlib.import_module(module), name)
    return command


def _distributed(name: str, words: list[str]) -> None:
    if len(words) > 1:
        _refuse(name, f"{words[1]!r}: a distributed worker gets its connectors by REST")
    _command("klamm.cli.connect", "distributed")(config=Path(words[0]), override=None)


def _standalone(name: str, words: list[str]) -> None:
    _command("klamm.cli.connect", "standalone")(
        config=Path(words[0]), connectors=[Path(w) for w in words[1:]], override=None
    )


def _mirror_maker(name: str, words: list[str]) -> None:
    files, clusters = split_clusters(words)
    if len(files) != 1:
        _refuse(name, f"{len(files)} files were given, and it takes one")
    _command("klamm.cli.mirror", "start")(config=Path(files[0]), clusters=clusters or None, override=None)


def split_clusters(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the files, and the aliases that stand behind `--clusters`."""
    if "--clusters" not in words:
        return list(words), []
    at = words.index("--clusters")
    return list(words[:at]), list(words[at + 1 :])


_RUN: Final[dict[str, Callable[[str, list[str]], None]]] = {
    "connect-distributed": _distributed,
    "connect-standalone": _standalone,
    "connect-mirror-maker": _mirror_maker,
}
