"""The programs that code and tests start by name: each is Python's or ours, or a table here says who looks for it first.

A bare Debian has no ps, git or curl (`tests/bare_debian.sh`): whoever starts such a program skips, or says what to install.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
FOLDERS: Final = (
    "base", "broker", "platform", "plugins", "connectors", "agent", "mirror", "spark_sinks", "tests",
)  # fmt: skip
STARTERS: Final = {
    "run", "Popen", "call", "check_call", "check_output", "create_subprocess_exec", "create_subprocess_shell", "system",
    "popen", "step",
}  # fmt: skip
BY_NAME: Final = {"create_subprocess_exec", "create_subprocess_shell", "system", "popen"}
"""Those whose first argument is the program itself, and no list."""
ALLOWED: Final = {
    "tests/broker/test_disk_full.py": {"mount", "umount"},  # looked for first
    "tests/compose/test_dashboards.py": {"prometheus", "promtool"},  # looked for first
    "tests/support/needs.py": {"docker"},  # its absence is why tests are skipped
    "tests/support/running/changed.py": {"git"},  # looked for first
    "tests/compose/test_compose_files.py": {"sh"},  # the container's own script
    "tests/connect/test_standalone_worker.py": {"java"},  # looked for first
    "tests/connectors/test_tutorial.py": {"bash"},  # the tutorial is for bash, which Debian always has
    "tests/base/test_grok.py": {"java"},  # looked for first
    "tests/project/test_project_dev.py": {"cksum"},  # `dev` is a shell script and uses it
    # Suites name in `needs` what they start, and are skipped without it.
    "tests/conformance/java/run.py": {"mvn", "javac"},
    "tests/conformance/librdkafka/run.py": {"npm", "tar", "make", "./configure"},
    "tests/conformance/franz-go/run.py": {"go"},
}


def test_programs_that_are_started_by_name_are_known():
    found: dict[str, set[str]] = {}
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            for name in started(ast.parse(path.read_text("utf-8"))):
                found.setdefault(path.relative_to(ROOT).as_posix(), set()).add(name)
    assert found == ALLOWED


def test_a_program_in_a_call_is_found():
    for text in ('subprocess.run(["ps", "-o", x])', 'Popen(["ps"])', 'await create_subprocess_exec("ps")', 'os.system("ps -o")'):  # fmt: skip
        assert list(started(ast.parse(text))) == ["ps"], text
    assert not list(started(ast.parse('subprocess.run([sys.executable, "-c", "x"]); asyncio.run(main())')))


def started(tree: ast.AST) -> Iterator[str]:
    """Yields the programs that calls name literally."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not node.args:
            continue
        function = node.func
        name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
        if name not in STARTERS:
            continue
        first = node.args[0]
        if isinstance(first, ast.List | ast.Tuple) and first.elts:
            first = first.elts[0]
        elif name not in BY_NAME:
            continue
        if isinstance(first, ast.Constant) and isinstance(first.value, str) and first.value.strip():
            yield first.value.split()[0]
