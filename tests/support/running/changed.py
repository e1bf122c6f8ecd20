"""The test files that a change can reach: by imports (`support.running.imports`), and by rules for what nothing imports.

A connector stands for its test folder, too: entry points lead to it, which no import shows. A conftest.py that changed stands for
its folder; so does one with hooks or `autouse` fixtures when what it imports has changed. A file that is no module stands for the tests of its folder or part, and for the test code that names it or its folder in a
string: a table that was recorded from Kafka, a Java program that a fixture compiles, an example.
"""

from __future__ import annotations

import functools
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from support.running.imports import Graph

ROOT: Final = Path(__file__).parents[3]
FOLDERS: Final = {"platform": ("tests/connect", "tests/cli"), "spark_sinks": ("tests/spark",)}
"""The test folders of a part, where they are not called like it."""
NEAR: Final = 1
FAR: Final = 1_000
"""The steps to a test that is reached as all tests are: by pyproject.toml, say, or tests/conftest.py."""


class UnknownRevision(Exception):
    """A revision that git does not know: the message names it."""


def changed_files(revision: str | None = None) -> list[str]:
    """Returns the paths that differ from a revision (by default where this branch left main), uncommitted ones included.

    Raises UnknownRevision.
    """
    base = revision or _base()
    if not git("rev-parse", "--verify", "--quiet", f"{base}^{{commit}}"):
        raise UnknownRevision(f"{base!r} is no commit that git knows here, and no part of the tests")
    changed = git("diff", "--name-only", base) + git("ls-files", "--others", "--exclude-standard")
    return sorted(set(changed))


def files_of_commits(*, hours: int) -> list[str]:
    """Returns the paths that commits of the last hours touched, and those since this branch left main."""
    recent = git("log", f"--since={hours}.hours", "--name-only", "--format=")
    return sorted({path for path in recent if path} | set(changed_files()))


def tests_reached(changed: Iterable[str]) -> list[str]:
    """Returns the test files, sorted, that changed files can reach."""
    return sorted(steps_to_tests(changed))


def steps_to_tests(changed: Iterable[str]) -> dict[str, int]:
    """Returns the test files that changed files can reach, with the imports between the two: 0 for a changed test itself."""
    graph = _graph()
    found: dict[str, int] = {}
    seeds: set[str] = set()
    for path in changed:
        module = graph.modules.get(path)
        if module and (graph.is_imported(module) or _is_test(path) or _is_conftest(path)):
            seeds.add(module)
            _add(found, _tests_of_connector(path), NEAR)
        else:
            named = graph.naming(path)
            seeds |= named
            # The tests of the project talk about files more than they read them.
            read = any(not graph.paths[name].startswith("tests/project/") for name in named)
            _add_tests_of_other(found, path, is_named=read)
    for module, steps in graph.users(seeds).items():
        path = graph.paths[module]
        if _is_test(path):
            _add(found, {path}, steps)
        elif _is_conftest(path) and (steps == 0 or module in graph.acting_unasked):
            _add_folder(found, Path(path).parent.as_posix(), steps + NEAR)
    return found


def _add(found: dict[str, int], tests: Iterable[str], steps: int) -> None:
    for test in tests:
        found[test] = min(steps, found.get(test, steps))


def _add_folder(found: dict[str, int], folder: str, steps: int = NEAR) -> None:
    _add(found, _tests_below(folder), FAR if folder == "tests" else steps)


@functools.cache
def _graph() -> Graph:
    return Graph()


def _is_test(path: str) -> bool:
    return path.startswith("tests/") and Path(path).name.startswith("test_")


def _is_conftest(path: str) -> bool:
    return path.startswith("tests/") and Path(path).name == "conftest.py"


def _tests_below(folder: str) -> set[str]:
    return {p.relative_to(ROOT).as_posix() for p in (ROOT / folder).rglob("test_*.py")}


def _tests_of_connector(path: str) -> set[str]:
    parts = Path(path).parts
    if parts[0] != "connectors":
        return set()
    return _tests_below(f"tests/connectors/{parts[2]}") or _tests_below("tests/connectors")


def _add_tests_of_other(found: dict[str, int], path: str, *, is_named: bool) -> None:
    """Adds the tests of a file that is no module: those of its folder or part, else all where no test code names it, or those
    about the project."""
    top, *rest = Path(path).parts
    if path == "pyproject.toml":
        _add_folder(found, "tests")
    elif (top == "tests" and len(rest) > 1) or top == "examples":
        folder = Path(path).parent
        while folder.parts and not list((ROOT / folder).glob("test_*.py")):
            folder = folder.parent
        if top == "tests" and folder.parts:
            _add_folder(found, folder.as_posix())
        elif not is_named:
            _add_folder(found, "tests")
    else:
        folders = FOLDERS.get(top, (f"tests/{top}",)) if top not in {"tests", "docs"} else ()
        tests = set[str]().union(*map(_tests_below, folders))
        _add(found, tests or _tests_below("tests/project"), NEAR)


def _base() -> str:
    """Returns where this branch left main; the commit before, on main itself."""
    for main in ("origin/main", "main", "master"):
        if (found := git("merge-base", "HEAD", main)) and found != git("rev-parse", "HEAD"):
            return found[0]
    return "HEAD~1" if git("rev-parse", "--verify", "--quiet", "HEAD~1") else "HEAD"


def git(*words: str) -> list[str]:
    """Returns the lines that git says; none where it fails. Raises SystemExit, with a sentence, where there is no git."""
    if shutil.which("git") is None:
        message = "what has changed is asked of git, which is not installed (Debian: apt-get install git)"
        raise SystemExit(message)
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.split("\n")[:-1] if done.returncode == 0 else []
