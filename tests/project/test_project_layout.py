"""Rules about the tree itself: layout, sizes, documents that must agree with the code."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
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


@pytest.mark.parametrize("folder", [*SOURCE_ROOTS, "tests"])
def test_no_folder_is_itself_a_package(folder):
    assert not (ROOT / folder / "__init__.py").exists()


@pytest.mark.usefixtures("processes")
def test_the_standard_librarys_platform_is_not_shadowed():
    code = "import platform; print(platform.system())"
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert ran.stdout.strip()


def faults(path: Path) -> Iterator[str]:
    """Yields what is wrong with a module."""
    source = path.read_text()
    if (lines := source.count("\n")) > LINES_MAX:
        yield f"{lines} lines"
    tree = ast.parse(source)
    if not ast.get_docstring(tree):
        yield "a module says what it is"
    for node in statements(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = node.end_lineno - node.lineno
            if lines >= FUNCTION_LINES_MAX:
                yield f"{node.name} has {lines} lines"
        if isinstance(node, ast.ExceptHandler):
            broad = node.type is None or ast.unparse(node.type) in ("Exception", "BaseException")
            if broad and isinstance(node.body[0], ast.Pass):
                yield f"line {node.lineno} swallows everything"


def test_modules_are_small_and_swallow_nothing():
    found = [f"{path.relative_to(ROOT)}: {fault}" for path in MODULES for fault in faults(path)]
    assert not found, "\n".join(found)
    assert len(MODULES) > 500, "modules are found where they lie"


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
