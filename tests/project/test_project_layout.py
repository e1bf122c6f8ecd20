"""Rules about the tree itself: layout, sizes, import circles, documents that must agree with the code.

No modules import each other in a circle, imports for typing and imports inside functions included. Who reads a module of a
circle has to read them all. A circle is broken by moving the shared type down into a module of its own, or by handing a module
the thing that it needs instead of the one that owns it.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest
from support.syntax import statements

ROOT = Path(__file__).parents[2]
SOURCE_ROOTS = ("base", "platform", "broker", "agent", "plugins", "connectors", "mirror", "spark_sinks")
MODULES = [
    p
    for root in SOURCE_ROOTS
    for p in (ROOT / root).rglob("*.py")
    if "wire/messages/" not in p.as_posix()  # generated tables
]
LINES_MAX = 500
FUNCTION_LINES_MAX = 70

Imports = dict[str, set[str]]

CIRCLES: Mapping[frozenset[str], str] = {}
"""Circles that stay, as sets of modules, each with its reason."""


@dataclass(frozen=True)
class Seen:
    """The facts that tests ask of a module: to parse it takes longer than all that they do with it."""

    faults: list[str]
    imports: list[tuple[int, str, str | None]]


@cache
def seen(path: Path) -> Seen:
    """Returns what is to be seen in a module."""
    source = path.read_text()
    tree = ast.parse(source)
    inside = [*statements(tree)]
    return Seen([*faults(source, tree, inside)], [*imports_among(inside)])


@pytest.mark.parametrize("folder", [*SOURCE_ROOTS, "tests"])
def test_no_folder_is_itself_a_package(folder):
    assert not (ROOT / folder / "__init__.py").exists()


@pytest.mark.usefixtures("processes")
def test_the_standard_librarys_platform_is_not_shadowed():
    code = "import platform; print(platform.system())"
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert ran.stdout.strip()


def faults(source: str, tree: ast.Module, inside: Iterable[ast.AST]) -> Iterator[str]:
    """Yields what is wrong with a module; `inside` are its statements."""
    if (lines := source.count("\n")) > LINES_MAX:
        yield f"{lines} lines"
    if not ast.get_docstring(tree):
        yield "a module says what it is"
    for node in inside:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = node.end_lineno - node.lineno
            if lines >= FUNCTION_LINES_MAX:
                yield f"{node.name} has {lines} lines"
        if isinstance(node, ast.ExceptHandler):
            broad = node.type is None or ast.unparse(node.type) in ("Exception", "BaseException")
            if broad and isinstance(node.body[0], ast.Pass):
                yield f"line {node.lineno} swallows everything"


def test_modules_are_small_and_swallow_nothing():
    found = [f"{path.relative_to(ROOT)}: {fault}" for path in MODULES for fault in seen(path).faults]
    assert not found, "\n".join(found)
    assert len(MODULES) > 500, "modules are found where they lie"


def module_name(path: Path, source_root: Path) -> str:
    parts = path.relative_to(source_root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_among(nodes: Iterable[ast.AST]) -> Iterator[tuple[int, str, str | None]]:
    """Yields (level, module, name) of each `from module import name`, and (0, module, None) of each `import module`."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from ((0, alias.name, None) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.level, node.module or "", alias.name) for alias in node.names)


def absolute(level: int, module: str, package: str) -> str:
    """Returns the module that an import names; a relative one starts from the package of the importing module."""
    above = package.split(".")[: len(package.split(".")) - level + 1] if level else []
    return ".".join([*above, *([module] if module else [])])


def read_imports(source_roots: list[Path]) -> Imports:
    """Returns the modules of ours that each module of ours imports."""
    paths = {module_name(path, root): path for root in source_roots for path in root.rglob("*.py")}
    found: Imports = {}
    for module, path in paths.items():
        targets = set()
        package = module if path.name == "__init__.py" else module.rpartition(".")[0]
        for level, named, name in seen(path).imports:
            base = absolute(level, named, package)
            inner = f"{base}.{name}"
            targets.add(inner if inner in paths else base)
        found[module] = (targets & paths.keys()) - {module}
    return found


def circles(imports: Imports) -> list[list[str]]:
    """Returns the largest groups of modules in which each imports each, directly or through others."""
    left = {module: set(targets) for module, targets in imports.items()}
    while leaves := {module for module, targets in left.items() if not targets & left.keys()}:
        left = {module: targets for module, targets in left.items() if module not in leaves}
    reached = {module: reachable(module, left) for module in left}
    groups = {
        frozenset(other for other in reached[module] if other in reached and module in reached[other])
        for module in left
    }
    return sorted(sorted(group) for group in groups if len(group) > 1)


def reachable(start: str, imports: Imports) -> set[str]:
    found: set[str] = set()
    ahead = [start]
    while ahead:
        for target in imports.get(ahead.pop(), ()):
            if target not in found:
                found.add(target)
                ahead.append(target)
    return found


def test_no_import_circle_is_left_but_those_with_a_reason():
    found = circles(read_imports([ROOT / root for root in SOURCE_ROOTS]))
    unexplained = [c for c in found if frozenset(c) not in CIRCLES]
    assert not unexplained, "\n".join("circle: " + " ".join(circle) for circle in unexplained)
    gone = [sorted(circle) for circle in CIRCLES if sorted(circle) not in found]
    assert not gone, f"these circles are gone, take them out of CIRCLES: {gone}"


def test_a_circle_is_seen_through_typing_imports_functions_and_packages(tmp_path):
    package = tmp_path / "klamm_x"
    package.mkdir()
    sources = {
        "__init__": "",
        "a": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from klamm_x.b import B\n",
        "b": "def late():\n    import klamm_x.c\n",
        "c": "from . import d\n",
        "d": "from .a import late\n",
        "above": "from klamm_x import a\n",
        "below": "import os\n",
        "self": "import klamm_x.self\n",
    }
    for name, source in sources.items():
        (package / f"{name}.py").write_text(source)
    assert circles(read_imports([tmp_path])) == [["klamm_x.a", "klamm_x.b", "klamm_x.c", "klamm_x.d"]]


def test_every_command_and_option_is_documented():
    import typer

    from klamm.cli.main import app
    from klamm.cli.reference import walk

    page = (ROOT / "docs/cli.md").read_text()
    for path, command in walk(typer.main.get_command(app), ("klamm",)):
        title = f"## {' '.join(path)}\n"
        assert title in page
        section = page.split(title, 1)[1].split("\n## ", 1)[0]
        for parameter in command.params:
            for option in parameter.opts if parameter.param_type_name == "option" else []:
                assert option in section, f"{title.strip()}: {option}"


RIDDLES = re.compile(r"(What|Whether|How|Where|Who|Of|Which|That)\b")
QUOTED = re.compile(rf"[\"']\\?\s*{RIDDLES.pattern}")
"""A string that begins like a riddle: a module without one need not be parsed."""


def docstrings(tree: ast.Module) -> Iterator[tuple[int, str, str]]:
    """Yields line, name and docstring of the module, its classes and functions, and of documented attributes."""
    for node in statements(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.body[0].lineno, getattr(node, "name", "module"), ast.get_docstring(node) or ""
        if isinstance(node, ast.Module | ast.ClassDef):
            for assignment, following in pairwise(node.body):
                match assignment, following:
                    case (
                        ast.Assign(targets=[target]) | ast.AnnAssign(target=target),
                        ast.Expr(ast.Constant(str() as text)),
                    ):
                        yield following.lineno, ast.unparse(target), text.strip()


def riddles(source: str) -> Iterator[str]:
    """Yields the faults of docstrings that begin with a question word instead of saying who does what."""
    if QUOTED.search(source) is None:
        return
    for line, name, text in docstrings(ast.parse(source)):
        if (word := RIDDLES.match(text)) is not None:
            yield f"{line}: the docstring of {name} begins with {word[0]}"


def test_no_docstring_is_a_riddle():
    files = [*MODULES, *sorted((ROOT / "tests").rglob("*.py")), *sorted((ROOT / "bench").rglob("*.py"))]
    found = [f"{path.relative_to(ROOT)}:{fault}" for path in files for fault in riddles(path.read_text())]
    assert not found, "\n".join(found)


def test_the_check_of_docstrings_sees_every_kind():
    source = '''
"""What it is."""
class A:
    """Who it is."""
    size: int = 1
    """How much."""
    async def run(self):
        """Whether it runs."""
def whole():
    """Whatever begins otherwise is right."""
'''
    assert sorted(riddles(source)) == [
        "2: the docstring of module begins with What",
        "4: the docstring of A begins with Who",
        "6: the docstring of size begins with How",
        "8: the docstring of run begins with Whether",
    ]


@pytest.mark.usefixtures("processes")
def test_the_readmes_commands_exist():
    readme = (ROOT / "README.md").read_text()
    usage = subprocess.run([str(ROOT / "dev"), "help"], capture_output=True, text=True, check=True).stdout
    commands = set(re.findall(r"^\./dev (\w+)", readme, re.MULTILINE))
    assert commands == {"demo", "test"}
    assert all(re.search(rf"^  {c}\b", usage, re.MULTILINE) for c in commands)


@pytest.mark.usefixtures("processes")
def test_import_costs_of_a_broker():
    """The modules that `klamm broker start` loads must not bring the heavy libraries."""
    code = "import sys, klamm.cli.main, klamm.cli.broker, klamm_broker.server.main; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert not {"aiohttp", "confluent_kafka", "rich", "sqlalchemy", "pyspark", "structlog"} & set(loaded)
