"""The programs that code and tests start by name: each is Python's or ours, or a table here says who looks for it first.

A bare Debian has no ps, git or curl (`tests/bare_debian.sh`): whoever starts such a program skips, or says what to install.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from support.syntax import children, nodes

ROOT: Final = Path(__file__).parents[2]
FOLDERS: Final = (
    "base", "broker", "platform", "plugins", "connectors", "agent", "mirror", "spark_sinks", "bench", "tests",
)  # fmt: skip
STARTERS: Final = {
    "run", "Popen", "call", "check_call", "check_output", "create_subprocess_exec", "create_subprocess_shell", "system",
    "popen", "step",
}  # fmt: skip
STARTS: Final = re.compile(rf"\b({'|'.join(sorted(STARTERS))})\s*\(")
"""A call that may start a program: a module without one need not be parsed."""
FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef)
BY_NAME: Final = {"create_subprocess_exec", "create_subprocess_shell", "system", "popen"}
"""Those whose first argument is the program itself, and no list."""
ALLOWED: Final = {
    "tests/base/test_base_unreadable.py": {"setpriv"},  # looked for first
    "tests/broker/test_disk_full.py": {"mount", "umount"},  # looked for first
    "tests/support/agent_soak.py": {"mount", "umount"},  # looked for first
    "tests/compose/test_dashboards.py": {"promtool"},  # looked for first
    "platform/klamm/doctor/archive.py": {"journalctl"},  # looked for first
    "platform/klamm/doctor/host.py": {"timedatectl"},  # looked for first
    "platform/klamm/service/install.py": {
        "useradd"
    },  # where there is systemd, there is it; its absence is said
    "tests/compose/test_alert_rules.py": {"promtool"},  # looked for first
    "tests/support/systemd.py": {"unshare", "nsenter"},  # looked for first
    "tests/support/prometheus.py": {"prometheus"},  # looked for first
    "tests/support/needs.py": {"docker"},  # its absence is why tests are skipped
    "tests/support/running/changed.py": {"git"},  # looked for first
    "tests/cli/test_cli_commands.py": {"sh"},  # closes a standard stream
    "tests/compose/test_compose_files.py": {"sh"},  # the container's own script
    "tests/connect/test_standalone_worker.py": {"java"},  # looked for first
    "tests/connectors/test_tutorial.py": {"bash"},  # the tutorial is for bash, which Debian always has
    "tests/base/test_grok.py": {"java"},  # looked for first
    "tests/spark/test_spark_fork_server.py": {"sh"},  # leaves its folder before it runs a Python
    "tests/project/test_project_dev.py": {"cksum", "sh"},  # `dev` is a shell script and uses them
    "tests/agent/test_agent_journald.py": {"journalctl"},  # looked for first
    "tests/cli/test_admin_commands.py": {"txn"},  # a command of ours
    "tests/connectors/elasticsearch/test_elasticsearch_sink.py": {"openssl"},  # skipped without it
    "tests/mirror/test_mirror_keep_offsets_kafka.py": {
        "kafka-console-consumer"
    },  # a tool of Kafka, run by its own Java
    "bench/broker/quotas.py": {"java"},  # looked for first
    "bench/agent/compare.py": {"syslog-ng"},  # looked for first
    # Suites name in `needs` what they start, and are skipped without it.
    "tests/conformance/java/run.py": {"mvn", "javac"},
    "tests/conformance/librdkafka/run.py": {"npm", "tar", "make", "./configure"},
    "tests/conformance/librdkafka/oidc.py": {"make", "./configure", "./test-runner"},
    "tests/conformance/franz-go/run.py": {"go"},
}


def test_programs_that_are_started_by_name_are_known():
    found: dict[str, set[str]] = {}
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            text = path.read_text("utf-8")
            for name in started(ast.parse(text)) if STARTS.search(text) else ():
                found.setdefault(path.relative_to(ROOT).as_posix(), set()).add(name)
    assert found == ALLOWED


def test_a_program_in_a_call_is_found():
    for text in ('subprocess.run(["ps", "-o", x])', 'Popen(["ps"])', 'await create_subprocess_exec("ps")', 'os.system("ps -o")'):  # fmt: skip
        assert list(started(ast.parse(text))) == ["ps"], text
    assert not list(started(ast.parse('subprocess.run([sys.executable, "-c", "x"]); asyncio.run(main())')))


def test_a_list_with_a_name_of_its_own_is_found():
    text = 'def f():\n    command: list[str] = ["ps", x]\n    command += ["-o"]\n    run(command)\n'
    assert list(started(ast.parse(text))) == ["ps"]
    assert list(
        started(ast.parse('command = ["ps"]\nasync def f():\n    await create_subprocess_exec(*command)'))
    ) == ["ps"]
    assert not list(started(ast.parse('def g():\n    command = ["ps"]\ndef f(command):\n    run(command)\n')))


def started(tree: ast.AST) -> Iterator[str]:
    """Yields the programs that calls name literally, or by a list that has a name in the same function or module."""
    yield from _started(tree, {})


def _started(scope: ast.AST, lists: dict[str, list[ast.expr]]) -> Iterator[str]:
    inside = [*_inside(scope)]
    lists = lists | _lists(inside)
    for node in inside:
        if isinstance(node, FUNCTIONS):
            yield from _started(node, lists | {name: [] for name in _arguments(node)})
        elif isinstance(node, ast.Call) and node.args:
            first = node.args[0].value if isinstance(node.args[0], ast.Starred) else node.args[0]
            for one in lists.get(first.id, []) if isinstance(first, ast.Name) else [first]:
                yield from _program(node.func, one)


def _inside(scope: ast.AST) -> Iterator[ast.AST]:
    """Yields what is in a scope, functions in it included, but not what is inside of those."""
    ahead = [*children(scope)]
    while ahead:
        node = ahead.pop()
        yield node
        if not isinstance(node, FUNCTIONS):
            ahead += children(node)


def _arguments(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    return [a.arg for a in nodes(function.args) if isinstance(a, ast.arg)]


def _lists(inside: Iterable[ast.AST]) -> dict[str, list[ast.expr]]:
    """Returns the lists that names get among the nodes of a scope."""
    found: dict[str, list[ast.expr]] = {}
    for node in inside:
        targets = (
            node.targets
            if isinstance(node, ast.Assign)
            else [node.target]
            if isinstance(node, ast.AnnAssign)
            else []
        )
        for target in targets:
            if isinstance(target, ast.Name) and isinstance(node.value, ast.List | ast.Tuple):
                found.setdefault(target.id, []).append(node.value)
    return found


def _program(function: ast.expr, first: ast.expr) -> Iterator[str]:
    """Yields the program that a call starts with this first argument."""
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    if name not in STARTERS:
        return
    if isinstance(first, ast.List | ast.Tuple) and first.elts:
        first = first.elts[0]
    elif name not in BY_NAME:
        return
    if isinstance(first, ast.Constant) and isinstance(first.value, str) and first.value.strip():
        yield first.value.split()[0]
