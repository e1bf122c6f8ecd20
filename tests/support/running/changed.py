"""The test files that a change can reach, by the imports of our modules and of the tests.

A string that is the dotted name of a module of ours counts as an import of it, for what is started by `python -m` or loaded by
name. A connector stands for its test folder beside that: entry points lead to it, which no import shows. So does a file that is
no Python for the folder of its part.
"""

from __future__ import annotations

import ast
import functools
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[3]
SOURCE_ROOTS: Final = (
    "base", "platform", "broker", "agent", "plugins", "connectors", "mirror", "spark_sinks", "tests",
)  # fmt: skip
COMMAND: Final = "klamm.cli.main"
"""What the program `klamm` runs."""
FOLDERS: Final = {"platform": ("tests/connect", "tests/cli"), "spark_sinks": ("tests/spark",)}
"""The test folders of a part, where they are not called like it."""


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
        beside: set[str] = set()
        if Path(path).name == "conftest.py":
            beside = _tests_below(str(Path(path).parent))
        elif module:
            seeds.add(module)
            beside = _tests_of_connector(path)
        else:
            beside = _tests_of_other(path)
        found |= dict.fromkeys(beside, 1)
    steps = graph.users(seeds)
    for path, module in graph.modules.items():
        if module in steps and _is_test(path):
            found[path] = min(steps[module], found.get(path, steps[module]))
    return found


class Graph:
    """Every module of ours and of the tests (`modules`: path to dotted name), and who imports it."""

    def __init__(self) -> None:
        self.modules: dict[str, str] = {}
        for root in SOURCE_ROOTS:
            for path in (ROOT / root).rglob("*.py"):
                parts = list(path.relative_to(ROOT / root).with_suffix("").parts)
                name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
                self.modules[path.relative_to(ROOT).as_posix()] = name
        self._names = set(self.modules.values())
        self._users: defaultdict[str, set[str]] = defaultdict(set)
        for path, name in self.modules.items():
            package = name if path.endswith("__init__.py") else name.rpartition(".")[0]
            for imported in self._imports((ROOT / path).read_text(), package):
                self._users[imported].add(name)

    def users(self, modules: Iterable[str]) -> dict[str, int]:
        """Returns these modules and all that import them, with the least number of imports between them."""
        found: dict[str, int] = {}
        ahead, steps = set(modules), 0
        while ahead:
            found |= dict.fromkeys(ahead, steps)
            ahead = {user for name in ahead for user in self._users[name]} - found.keys()
            steps += 1
        return found

    def _imports(self, source: str, package: str) -> Iterator[str]:
        for node in ast.walk(ast.parse(source)):
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
                base = ".".join([*above, *([node.module] if node.module else [])])
                names = [f"{base}.{alias.name}" for alias in node.names]
            elif isinstance(node, ast.Constant) and node.value in self._names:
                names = [node.value, f"{node.value}.__main__"]
            elif isinstance(node, ast.Call) and ast.unparse(node).endswith(".with_name('klamm')"):
                names = [COMMAND]
            for name in names:
                yield from self._with_packages(name)

    def _with_packages(self, name: str) -> Iterator[str]:
        """Yields a module and the packages above it, whose `__init__` runs, too."""
        while name:
            if name in self._names:
                yield name
            name = name.rpartition(".")[0]


@functools.cache
def _graph() -> Graph:
    return Graph()


def _is_test(path: str) -> bool:
    return path.startswith("tests/") and Path(path).name.startswith("test_")


def _tests_below(folder: str) -> set[str]:
    return {p.relative_to(ROOT).as_posix() for p in (ROOT / folder).rglob("test_*.py")}


def _tests_of_connector(path: str) -> set[str]:
    parts = Path(path).parts
    if parts[0] != "connectors":
        return set()
    return _tests_below(f"tests/connectors/{parts[2]}") or _tests_below("tests/connectors")


def _tests_of_other(path: str) -> set[str]:
    """Returns the tests of a file that is no module: those of its folder or part, else those about the project."""
    top, *rest = Path(path).parts
    if top == "tests" and len(rest) > 1:
        folder = Path(path).parent
        while folder != Path("tests") and not list((ROOT / folder).glob("test_*.py")):
            folder = folder.parent
        return _tests_below(folder.as_posix()) if folder != Path("tests") else set()
    folders = FOLDERS.get(top, (f"tests/{top}",)) if top not in {"tests", "docs"} else ()
    found = set[str]().union(*map(_tests_below, folders))
    return found or _tests_below("tests/project")


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
