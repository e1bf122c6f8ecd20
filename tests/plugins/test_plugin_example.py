"""The example package, installed as a stranger's: it is found, it works, and its own tests pass."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples/plugin"
LIST = """
import json
from klamm_plugins.discovery import PluginManager
manager = PluginManager.load()
found = [[d.class_name, d.type, d.version] for d in manager.plugins() if d.location == "example"]
print(json.dumps([found, manager.find_connector("DatagenSource").__name__, manager.broken]))
"""


def run(*args, env=None, cwd=None):
    done = subprocess.run(args, env=env, cwd=cwd, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def environment(processes, tmp_path_factory):
    """Returns the environment of a process that has the package on its path."""
    target = tmp_path_factory.mktemp("site")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    run(*pip, "--no-deps", "--no-build-isolation", "--no-index", "--target", str(target), str(EXAMPLE))
    return {**os.environ, "PYTHONPATH": str(target), "PYTHONDONTWRITEBYTECODE": "1"}


def test_the_package_is_found(environment):
    found, name, broken = json.loads(run(sys.executable, "-c", LIST, env=environment))
    assert found == [
        ["klamm_example.datagen.DatagenSourceConnector", "source", "1.0.0"],
        ["klamm_example.sqlite_sink.SqliteSinkConnector", "sink", "1.0.0"],
        ["klamm_example.hide.HideFields", "transformation", "1.0.0"],
    ]
    assert name == "DatagenSourceConnector"
    assert broken == []


# Those that start a broker and workers take half a minute.
ON_WORKER = ["test_example_conformance.py", "test_example_worker.py"]
ALONE = sorted({p.name for p in (EXAMPLE / "tests").glob("test_*.py")} - {*ON_WORKER})


@pytest.mark.parametrize("files", [ALONE, ON_WORKER], ids=["alone", "on a worker"])
def test_its_own_tests_pass(environment, tmp_path, files):
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:asyncio"]
    out = run(
        *command,
        "-o",
        "pythonpath=",
        f"--rootdir={EXAMPLE}",
        *(str(EXAMPLE / "tests" / name) for name in files),
        env=environment,
        cwd=tmp_path,
    )
    assert " passed" in out


def test_it_has_a_reference_page(environment):
    page = run(sys.executable, "-m", "klamm_plugins.reference", "example", env=environment)
    assert "## DatagenSourceConnector" in page
    assert "| `rate` | double | `10.0` | medium |" in page
