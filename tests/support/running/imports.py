"""The graph of imports: every module of ours and of the tests.

A string that is the dotted name of a module counts as an import of it, for what is started by `python -m` or loaded by name. A
test that takes a fixture imports the module that defines it, since a conftest.py above hands it over: so the plugins that
`pytest_plugins` names are not imports of the conftest.py, unless they act without being asked (hooks, `autouse`).
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Final

from support.syntax import nodes, statements

ROOT: Final = Path(__file__).parents[3]
SOURCE_ROOTS: Final = (
    "base", "platform", "broker", "agent", "plugins", "connectors", "mirror", "spark_sinks", "tests",
)  # fmt: skip
COMMAND: Final = "klamm.cli.main"
"""The module that the program `klamm` runs."""
ASKING: Final = frozenset({"usefixtures", "needs", "getfixturevalue"})
"""Calls whose strings are names of fixtures."""
ASKED: Final = re.compile(rf"\.({'|'.join(sorted(ASKING))})\(")
STRING: Final = re.compile(r"""["'}]([\w.]+)""")
"""A string, or a part of one, that may be the name of a module."""
OUTERMOST: Final = {"tests": 2}
"""The depth of folders whose name says nothing: everybody names tests/support. Elsewhere the folders at the top are those."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


class Tree:
    """A module's syntax: `body` is its outermost part, `statements` and `functions` those of any depth, `nodes` all of it.

    Each function comes with the decorator `fixture` as text, which is empty for one that is no fixture. To look at all nodes takes
    many times as long as to look at the statements, so that a look at the `source` comes before it.
    """

    def __init__(self, source: str) -> None:
        self.source = source
        self._module = ast.parse(source)
        self.body = self._module.body
        self.statements = [*statements(self._module)]
        self.functions = [(node, _fixture_of(node)) for node in self.statements if isinstance(node, Function)]

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """Returns all nodes."""
        return [*nodes(self._module)]


class Graph:
    """Every module (`modules`: path to dotted name, `paths`: the reverse), and who imports it."""

    def __init__(self) -> None:
        self.modules: dict[str, str] = {}
        for root in SOURCE_ROOTS:
            for path in (ROOT / root).rglob("*.py"):
                parts = list(path.relative_to(ROOT / root).with_suffix("").parts)
                name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
                self.modules[path.relative_to(ROOT).as_posix()] = name
        self.paths = {name: path for path, name in self.modules.items()}
        self._users: defaultdict[str, set[str]] = defaultdict(set)
        self.acting_unasked: set[str] = set()
        """The modules with hooks of pytest or `autouse` fixtures."""
        self._sources: dict[str, str] = {}
        plugins: dict[str, set[str]] = {}
        defining: defaultdict[str, set[str]] = defaultdict(set)
        taken: dict[str, set[str]] = {}
        folders: defaultdict[str, set[str]] = defaultdict(set)
        for path, name in self.modules.items():
            tree = Tree((ROOT / path).read_text())
            if _acts_unasked(tree):
                self.acting_unasked.add(name)
            for fixture in _fixtures_defined(tree):
                defining[fixture].add(name)
            taken[name] = _fixtures_taken(tree)
            imported = self._imports(name, tree)
            for module in imported:
                self._users[module].add(name)
            if path.endswith("conftest.py"):
                for definer in imported | {name}:
                    folders[definer].add(path.removesuffix("conftest.py"))
                plugins[name] = {module for word in _plugins(tree) for module in self._with_packages(word)}
            if path.startswith("tests/"):
                self._sources[name] = tree.source
        for name, loaded in plugins.items():
            for module in loaded - self.acting_unasked:
                self._users[module].discard(name)
        for name, fixtures in taken.items():
            definers = {definer for fixture in fixtures for definer in defining[fixture]}
            for definer in definers - {name}:
                if self.paths[name].startswith(tuple(folders[definer])):
                    self._users[definer].add(name)

    def is_imported(self, module: str) -> bool:
        """Decides whether any other module imports this one."""
        return bool(self._users[module] - {module})

    def users(self, modules: Iterable[str]) -> dict[str, int]:
        """Returns these modules and all that import them, with the least number of imports between them."""
        found: dict[str, int] = {}
        ahead, steps = set(modules), 0
        while ahead:
            found |= dict.fromkeys(ahead, steps)
            ahead = {user for name in ahead for user in self._users[name]} - found.keys()
            steps += 1
        return found

    def naming(self, path: str) -> set[str]:
        """Returns the modules of the tests that name a file, or a folder that it is in, in a string."""
        file = PurePosixPath(path)
        words = [file.name] if "." in file.name else [path] if "/" in path else []
        words += [file.stem] if file.suffix == ".java" else []
        for folder in file.parents:
            if len(folder.parts) > OUTERMOST.get(file.parts[0], 1):
                distinct = file.parts[0] == "tests" and re.search(r"\W|\d|_", folder.name)
                words.append(folder.name if distinct else "/".join(folder.parts[-2:]))
        if not words:
            return set()
        pattern = re.compile(rf"(?<![\w.-])({'|'.join(map(re.escape, words))})(?![\w-])")
        return {
            name
            for name, source in self._sources.items()
            if any(word in source for word in words)
            and any(map(pattern.search, _strings(Tree(source).nodes)))
        }

    def _imports(self, module: str, tree: Tree) -> set[str]:
        package = module if self.paths[module].endswith("__init__.py") else module.rpartition(".")[0]
        found: set[str] = set()
        for node in tree.statements:
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
                base = ".".join([*above, *([node.module] if node.module else [])])
                names = [f"{base}.{alias.name}" for alias in node.names]
            for name in names:
                found.update(self._with_packages(name))
        for name in self._named(tree):
            found.update(self._with_packages(name))
        return found

    def _named(self, tree: Tree) -> Iterator[str]:
        """Yields the modules that are named in strings, and the one that the program `klamm` runs."""
        if not any(word in self.paths for word in STRING.findall(tree.source)):
            return
        for node in tree.nodes:
            if isinstance(node, ast.Constant) and node.value in self.paths:
                yield from (node.value, f"{node.value}.__main__")
            elif _calls(node, {"with_name"}) and ast.unparse(node).endswith(".with_name('klamm')"):
                yield COMMAND

    def _with_packages(self, name: str) -> Iterator[str]:
        """Yields a module and the packages above it, whose `__init__` runs, too."""
        while name:
            if name in self.paths:
                yield name
            name = name.rpartition(".")[0]


def _strings(nodes: list[ast.AST]) -> Iterator[str]:
    """Yields the strings among nodes but docstrings."""
    docs = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
            yield node.value


def _calls(node: ast.AST, methods: Collection[str]) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in methods


def _fixture_of(function: Function) -> str:
    for decorator in function.decorator_list:
        called = decorator.func if isinstance(decorator, ast.Call) else decorator
        if "fixture" in ast.unparse(called):
            return ast.unparse(decorator)
    return ""


def _fixtures_defined(tree: Tree) -> Iterator[str]:
    """Yields the fixtures that do something: `processes`, say, only has a docstring, and depends on nothing."""
    for function, decorator in tree.functions:
        if decorator and any(not isinstance(node, ast.Expr | ast.Pass) for node in function.body):
            yield function.name


def _fixtures_taken(tree: Tree) -> set[str]:
    """Returns the names of fixtures that tests and fixtures of a module take, as arguments or by a marker."""
    found: set[str] = set()
    for function, decorator in tree.functions:
        if decorator or function.name.startswith("test_"):
            found |= {argument.arg for argument in function.args.args + function.args.kwonlyargs}
    for node in tree.nodes if ASKED.search(tree.source) else ():
        if _calls(node, ASKING):
            found.update(_strings([*nodes(node)]))
    return found


def _plugins(tree: Tree) -> Iterator[str]:
    """Yields the modules that a conftest.py names as plugins of pytest."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytest_plugins":
            yield from _strings([*nodes(node)])


def _acts_unasked(tree: Tree) -> bool:
    """Decides whether a plugin of pytest acts on tests that do not ask for it."""
    hooks = any(isinstance(node, Function) and node.name.startswith("pytest_") for node in tree.body)
    return hooks or any("autouse=True" in decorator for _, decorator in tree.functions)
