"""`./dev test`: chooses tests by kind, part or change, and hands the rest of the command line to pytest."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

from support.running import changed, session, slices

ROOT: Final = Path(__file__).parents[3]
DEFAULT: Final = "pure or essential"
WHOLE: Final = "not suite and not soak"
KINDS: Final = {
    "--process": "process",
    "--peers": "peer",
    "--suites": "suite",
    "--soak": "soak",
    "--slow": "process or peer",
    "--all": WHOLE,
}
WORKERS: Final = "3"
"""One more than two cores: a third of the time of a test process goes into waiting for the processes that its tests start."""
MORE_FOLDERS: Final = {"spark": ("tests/connectors/spark",)}
"""Folders that belong to a part beside the one that is called like it."""


class UnknownPart(Exception):
    """A word names no part, no file and no option: the message says which parts there are."""


class NothingToRun(Exception):
    """No test is to be run: the message says why."""


def parts() -> dict[str, tuple[str, ...]]:
    """Returns the folders of tests by the name of their part."""
    found = {p.name: (f"tests/{p.name}", *MORE_FOLDERS.get(p.name, ())) for p in (ROOT / "tests").iterdir()}
    return {name: folders for name, folders in found.items() if list((ROOT / folders[0]).rglob("test_*.py"))}


def pytest_arguments(words: list[str], known: dict[str, tuple[str, ...]]) -> list[str]:
    """Returns pytest's arguments for those of `./dev test`.

    Raises NothingToRun for a change that no test reaches, UnknownRevision and UnknownPart.
    """
    words = list(words)
    marks: list[str] = []
    paths: list[str] = []
    while words and (words[0] in KINDS or words[0] in known or words[0] == "--changed"):
        word = words.pop(0)
        if word in KINDS:
            marks.append(KINDS[word])
        elif word in known:
            paths += known[word]
        else:
            named = words and words[0] not in known and not words[0].startswith(("-", "tests/"))
            reached = changed.tests_reached(changed.changed_files(words.pop(0) if named else None))
            if not reached:
                raise NothingToRun("no test reaches what has changed")
            paths += reached
    if words and not words[0].startswith("-") and not (ROOT / words[0].partition("::")[0]).exists():
        raise UnknownPart(f"there is no part {words[0]}; there are {', '.join(sorted(known))}")
    named = paths or any(word.startswith("tests") for word in words)
    chosen = " or ".join(marks) if marks else WHOLE if named else DEFAULT
    workers = os.environ.get("KLAMM_TEST_WORKERS", WORKERS)
    return ["-m", chosen, "-n", workers, "--dist", "loadfile", *paths, *words]


def main(words: list[str]) -> int:
    """Runs pytest, or the slices of CI, and returns the exit code."""
    if words[:1] == ["--slices"]:
        return slices.run()
    if words[:1] == ["--slow"]:
        print("dev: --slow is --process and --peers now; ./dev help has more", file=sys.stderr)
    try:
        arguments = pytest_arguments(words, parts())
    except NothingToRun as e:
        print(f"dev: {e}", file=sys.stderr)
        return 0
    except (changed.UnknownRevision, UnknownPart) as e:
        print(f"dev: {e}", file=sys.stderr)
        return 2
    return session.run(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
