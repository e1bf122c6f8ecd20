"""Writes docs/reference/modules.md: every module of Klamm with the first sentence of its docstring.

`./dev docs` runs it and makes all other pages that come from code. A test compares the page with the docstrings.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/reference/modules.md"
SOURCE_ROOTS = (
    "base", "broker", "agent", "plugins", "connectors", "mirror", "spark_sinks", "platform",
)  # fmt: skip
GENERATED = "klamm_kafka/wire/messages"
DOCSTRING = re.compile(r'\A""".*?"""', re.DOTALL)
HEAD = """# Modules

Made by `./dev docs` from the docstrings; edit these, not this page. The map and the ways through it:
[architecture](../architecture.md). The messages of the protocol (`klamm_kafka/wire/messages`) are generated and left out.
"""


def main() -> None:
    PAGE.write_text(page(), "utf-8")


def page() -> str:
    """Returns the whole page as Markdown."""
    return HEAD + "".join(_tables())


def _tables() -> Iterator[str]:
    """Yields a section for each package folder: its own sentence, then a row for each module in it."""
    for root in SOURCE_ROOTS:
        for init in sorted((ROOT / root).rglob("__init__.py")):
            folder = init.parent
            name = folder.relative_to(ROOT / root).as_posix()
            if GENERATED in name:
                continue
            yield f"\n## {name}\n\n`{root}/{name}/` {sentence(init)}\n"
            modules = [m for m in sorted(folder.glob("*.py")) if m.name != "__init__.py"]
            if modules:
                yield "\n| module | what |\n|---|---|\n"
            for module in modules:
                yield f"| [`{module.stem}`](../../{module.relative_to(ROOT).as_posix()}) | {sentence(module)} |\n"


def sentence(module: Path) -> str:
    """Returns the first sentence of a module's docstring, fit for a table's cell."""
    source = module.read_text("utf-8")
    begin = DOCSTRING.match(source)  # the rest takes most of the time
    text = ast.get_docstring(ast.parse(begin[0] if begin else source)) or ""
    paragraph = " ".join(text.split("\n\n", 1)[0].split())
    first = re.split(r"(?<=[.!?])(?<!e\.g\.)(?<!i\.e\.)\s+(?=[A-Z`])", paragraph, maxsplit=1)[0]
    return first.replace("|", "\\|")


if __name__ == "__main__":
    main()
