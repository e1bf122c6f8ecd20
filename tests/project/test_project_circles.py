"""No modules import each other in a circle, imports for typing and imports inside functions included.

Who reads a module of a circle has to read them all. A circle is broken by moving the shared type down into a module
of its own, or by handing a module the thing that it needs instead of the one that owns it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

from support.syntax import statements

ROOT = Path(__file__).parents[2]
SOURCE_ROOTS = ("base", "platform", "broker", "agent", "plugins", "connectors", "mirror", "spark_sinks")

Imports = dict[str, set[str]]

ALLOWED: Mapping[frozenset[str], str] = {}
"""Circles that stay, as sets of modules, each with its reason."""


def module_name(path: Path, source_root: Path) -> str:
    parts = path.relative_to(source_root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(tree: ast.AST, package: str) -> Iterator[tuple[str, str | None]]:
    """Yields (module, name) of each `from module import name`, and (module, None) of each `import module`.

    A relative import starts from the package of the module.
    """
    for node in statements(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, None) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            yield from ((base, alias.name) for alias in node.names)


def read_imports(source_roots: list[Path]) -> Imports:
    """Returns the modules of ours that each module of ours imports."""
    paths = {module_name(path, root): path for root in source_roots for path in root.rglob("*.py")}
    found: Imports = {}
    for module, path in paths.items():
        targets = set()
        package = module if path.name == "__init__.py" else module.rpartition(".")[0]
        for base, name in imported(ast.parse(path.read_text()), package):
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
    seen: set[str] = set()
    ahead = [start]
    while ahead:
        for target in imports.get(ahead.pop(), ()):
            if target not in seen:
                seen.add(target)
                ahead.append(target)
    return seen


def test_no_import_circle_is_left_but_those_with_a_reason():
    found = circles(read_imports([ROOT / root for root in SOURCE_ROOTS]))
    unexplained = [c for c in found if frozenset(c) not in ALLOWED]
    assert not unexplained, "\n".join("circle: " + " ".join(circle) for circle in unexplained)
    gone = [sorted(circle) for circle in ALLOWED if sorted(circle) not in found]
    assert not gone, f"these circles are gone, take them out of ALLOWED: {gone}"


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
