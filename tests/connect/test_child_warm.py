"""The modules that the fork server imports for its children: Klamm's own connectors, without a thread, and nobody else's."""

from __future__ import annotations

import subprocess
import sys

import pytest


def in_a_process(code: str) -> str:
    """Runs `code` in a fresh interpreter, as a fork server is one; returns what it printed."""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.usefixtures("processes")
@pytest.mark.parametrize(
    ("module", "connector"),
    [
        ("klamm_connectors.file", "FileStreamSink"),
        ("klamm_connectors.file", "FileStreamSource"),
        ("klamm_connectors.sql", "io.confluent.connect.jdbc.JdbcSinkConnector"),
        ("klamm_connectors.elasticsearch", "io.confluent.connect.elasticsearch.ElasticsearchSinkConnector"),
        ("klamm_connectors.mysql", "io.debezium.connector.mysql.MySqlConnector"),
        ("klamm_mirror.plugin", "MirrorSourceConnector"),
    ],
)
def test_child_warm_starts_no_thread(module: str, connector: str) -> None:
    """A fork copies the locks that other threads hold, and not the threads."""
    said = in_a_process(
        "import os; from klamm.connect.child import forkserver, warm; forkserver.load(())\n"
        f"needs = ((('a', {module!r}), ('b', 'klamm_plugins.builtin')), {connector!r}, ('StringConverter',))\n"
        "assert warm.warm(*needs)\n"
        "plugins = warm.plugins_of(needs[0])\n"
        "assert plugins is warm.plugins_of([list(pair) for pair in needs[0]]), 'children find what is warm'\n"
        "assert not warm.warm(*needs), 'once'\n"
        "print(len(os.listdir('/proc/self/task')) if os.path.isdir('/proc/self') else 1)"
    )
    assert said == "1"


@pytest.mark.usefixtures("processes")
def test_child_warm_leaves_others_and_errors_to_the_child() -> None:
    said = in_a_process(
        "import sys; from klamm.connect.child import warm\n"
        "print(warm.warm([('x', 'somebody.elses')], 'X', ()), warm.warm([('f', 'klamm_connectors.file')], 'Nobody', ()),\n"
        "      warm.warm([], 'FileStreamSink', ()), 'somebody' in sys.modules)"
    )
    assert said == "False True False False"
