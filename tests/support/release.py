"""`./dev release [EXTRA …]`: everything before an upload. Builds, checks and installs what would be uploaded, and uploads nothing.

Wheel and source distribution are built into dist/, `twine check` reads them, tests/project/test_project_wheel.py checks what is
in them, and each extra (and Klamm without any) is installed from wheels alone into an environment of its own, where its
modules are imported and `klamm --version` runs. Then it prints the one command that uploads them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Final

from klamm_base.version import __version__
from klamm_spark.fork_server import PRELOAD

ROOT: Final = Path(__file__).parents[2]
DIST: Final = ROOT / "dist"
BASE: Final = "base"
"""Klamm without any extra."""
MODULES: Final = {
    BASE: ("klamm_broker.server.main", "klamm.connect.worker", "klamm_mirror.plugin", "klamm_agent.agent"),
    "spark": (*PRELOAD, "klamm_spark.session"),
    "sql": ("sqlalchemy", "klamm_connectors.sql.task"),
    "mysql": ("pymysql", "pymysqlreplication", "klamm_connectors.mysql.task"),
    "postgresql": ("psycopg", "klamm_connectors.sql.task"),
    "elasticsearch": ("elasticsearch", "klamm_connectors.elasticsearch.task"),
    "schemas": ("fastavro", "jsonschema", "google.protobuf", "klamm_plugins.converters.protobuf"),
    "oauth": ("joserfc",),
    "kerberos": ("gssapi",),
    "uvloop": ("uvloop",),
    "backup": ("fsspec",),
    "all": ("pyspark", "pymysql", "psycopg", "elasticsearch", "fastavro", "joserfc", "uvloop", "fsspec"),
}
"""The modules that an extra's environment must be able to import."""
COMPILED: Final = frozenset({"kerberos"})
"""Extras whose packages are compiled where they are installed. The tests' environment has none of them."""
ABSENT: Final = (
    "pyspark",
    "pyarrow",
    "sqlalchemy",
    "pymysql",
    "psycopg",
    "elasticsearch",
    "fastavro",
    "joserfc",
    "uvloop",
    "fsspec",
    "pytest",
)
"""The modules that are absent without any extra, so that nothing of a plugin author's may need them."""
AUTHORS: Final = """
import importlib.util, pkgutil, sys
absent = sys.argv[1:]
assert not [name for name in absent if importlib.util.find_spec(name)], "an extra's package is here"
import klamm_plugins
for module in pkgutil.iter_modules(klamm_plugins.__path__, "klamm_plugins."):
    importlib.import_module(module.name)
from klamm.testing import EmbeddedBroker, EmbeddedWorker
with EmbeddedBroker() as broker, EmbeddedWorker(broker.bootstrap) as worker:
    assert worker.request("GET", "/connectors").body == []
"""
"""A plugin author's half, run where no extra is: every module of klamm_plugins, and klamm.testing at work."""


def extras() -> list[str]:
    """Returns the extras of pyproject.toml, after `base`."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    return [BASE, *project["optional-dependencies"]]


def main(chosen: list[str]) -> int:
    """Does it all; 1 when something is wrong, 2 for an extra that there is not."""
    known = extras()
    if unknown := [extra for extra in chosen if extra not in known]:
        _say(f"there is no extra {unknown[0]}; there are {', '.join(known)}")
        return 2
    with tempfile.TemporaryDirectory(prefix="klamm-release-") as work:
        try:
            _release(Path(work), chosen or known)
        except subprocess.CalledProcessError as e:
            _say(f"failed with exit code {e.returncode}: {' '.join(map(str, e.cmd))[:500]}")
            return 1
    files = " ".join(str(path.relative_to(ROOT)) for path in sorted(DIST.iterdir()))
    print(f"klamm {__version__} can be published. This uploads it:\n\n    python -m twine upload {files}\n")
    return 0


def _release(work: Path, chosen: list[str]) -> None:
    _say("wheel and source distribution, into dist/")
    shutil.rmtree(DIST, ignore_errors=True)
    _run(sys.executable, "-m", "build", "--no-isolation", "--outdir", DIST, ROOT, quiet=True)
    _say("twine check")
    _run(_environment(work, "twine", "twine"), "-m", "twine", "check", "--strict", *sorted(DIST.iterdir()))
    _say("what is in them")
    wheels = [sys.executable, "-m", "pytest", "-q", "-n0", "tests/project/test_project_wheel.py"]
    _run(*wheels, env=os.environ | {"KLAMM_DIST": str(DIST)})
    (wheel,) = DIST.glob("*.whl")
    for extra in chosen:
        _say(f"an environment with {'no extra' if extra == BASE else extra}")
        python = _environment(work, extra, f"{wheel}[{extra}]" if extra != BASE else str(wheel))
        _run(python, "-c", f"import {', '.join(MODULES[extra])}", cwd=work)
        _run(python.with_name("klamm"), "--version", cwd=work)
        if extra == BASE:
            _run(python, "-c", AUTHORS, *ABSENT, cwd=work)
        shutil.rmtree(work / extra)


def _environment(work: Path, name: str, requirement: str) -> Path:
    """Returns the Python of a new environment that holds this, from wheels alone: no compiler is needed."""
    _run(sys.executable, "-m", "venv", work / name)
    python = work / name / "bin/python"
    pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--only-binary", ":all:"]
    _run(python, *pip, requirement)
    return python


def _run(
    *command: str | Path, quiet: bool = False, cwd: Path = ROOT, env: dict[str, str] | None = None
) -> None:
    done = subprocess.run(command, cwd=cwd, env=env, check=False, text=True, capture_output=quiet)
    if done.returncode and quiet:
        sys.stderr.write(done.stdout + done.stderr)
    done.check_returncode()


def _say(text: str) -> None:
    print(f"release: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
