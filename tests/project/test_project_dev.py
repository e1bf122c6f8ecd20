"""`./dev` on machines that lack something: what it says, what it runs, and when it makes its environment anew.

Each test runs a copy in a folder of its own, with a PATH that holds only what the test puts there.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TOOLS = ("sh", "cat", "cksum", "cp", "cut", "dirname", "rm", "tr", "pwd", "env")
STUB = '#!/bin/sh\necho "$@" >>"$(dirname "$0")/calls"\n'


class Checkout:
    """A folder with `dev` and pyproject.toml, and the programs that its PATH has."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "checkout"
        self.bin = folder / "bin"
        self.folder.mkdir()
        self.bin.mkdir()
        for name in ("dev", "pyproject.toml"):
            shutil.copy(ROOT / name, self.folder)
        for tool in TOOLS:
            found = shutil.which(tool)
            if found:
                (self.bin / tool).symlink_to(found)

    def program(self, name: str, text: str) -> None:
        (self.bin / name).write_text(text)
        (self.bin / name).chmod(0o755)

    def environment(self) -> Path:
        """Returns an environment whose Python only notes its arguments; the file where it does."""
        stub = self.folder / ".venv/bin/python"
        stub.parent.mkdir(parents=True)
        stub.write_text(STUB)
        stub.chmod(0o755)
        done = subprocess.run(
            ["cksum"], input=(self.folder / "pyproject.toml").read_bytes(), stdout=subprocess.PIPE, check=True
        )
        first, second = done.stdout.split()[:2]
        (self.folder / ".venv/.klamm-dev").write_text(f"{first.decode()}-{second.decode()}\n")
        return stub.with_name("calls")

    def start(self, *args: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [str(self.folder / "dev"), *args],
            env={"PATH": str(self.bin), "HOME": os.environ.get("HOME", "/")},
            stderr=subprocess.PIPE, text=True, process_group=0,
        )  # fmt: skip

    def run(self, *args: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(self.folder / "dev"), *args],
            env={"PATH": str(self.bin), "HOME": os.environ.get("HOME", "/")},
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip


@pytest.fixture
def checkout(processes, tmp_path):
    return Checkout(tmp_path)


def test_wrong_use_is_exit_code_2(checkout):
    result = checkout.run("frobnicate")
    assert result.returncode == 2
    assert "usage: ./dev COMMAND" in result.stderr
    assert checkout.run("help").returncode == 0


def test_without_a_python_it_says_what_to_install(checkout):
    checkout.program("python3", "#!/bin/sh\nexit 127\n")  # a shim that is there and refuses to run
    result = checkout.run("test")
    assert result.returncode == 1
    assert "no Python 3.11 or later found" in result.stderr
    assert "apt-get install python3 python3-venv" in result.stderr


def test_without_the_venv_module_it_says_what_to_install(checkout):
    checkout.program("python3.13", "#!/bin/sh\nexit 1\n")
    checkout.program(
        "python3", f'#!/bin/sh\n[ "$2" = "import ensurepip, venv" ] && exit 1\nexec "{sys.executable}" "$@"\n'
    )
    result = checkout.run("demo")
    assert result.returncode == 1
    assert "python3 has no venv module" in result.stderr
    assert "apt-get install python3-venv" in result.stderr
    assert not (checkout.folder / ".venv").exists()


@pytest.mark.parametrize(
    ("args", "called"),
    [
        (["test", "-k", "x"], "-m support.running -k x"),
        (["test", "--slow", "tests/base"], "-m support.running --slow tests/base"),
        (["test", "--all"], "-m support.running --all"),
        (["demo", "--seconds", "3"], "-m klamm.demo --seconds 3"),
        (["demo", "files", "--seconds", "3"], "-m klamm.demo --seconds 3"),
        (["demo", "logs", "--rate", "5"], "-m klamm.cli.main demo logs --rate 5"),
        (["soak"], "-m support.faults.soak"),
        (["soak", "--cycles", "5"], "-m support.faults.soak --cycles 5"),
        (["soak", "agent", "--kills", "5"], "-m support.agent_soak --kills 5"),
        (["soak", "demo"], "-m klamm.demo --seconds 600"),
        (["soak", "demo", "9"], "-m klamm.demo --seconds 9"),
        (["bench", "--write"], "-m bench.broker.compare --write"),
    ],
)
def test_an_environment_that_is_there_is_used(checkout, args, called):
    calls = checkout.environment()
    result = checkout.run(*args)
    assert (result.returncode, result.stderr) == (0, "")
    assert calls.read_text().splitlines()[-1] == called


def test_an_environment_of_another_pyproject_is_brought_up_to_date(checkout):
    calls = checkout.environment()
    with (checkout.folder / "pyproject.toml").open("a") as file:
        file.write("\n# a dependency more\n")
    assert "making the environment" in checkout.run("test").stderr
    assert "pip install --quiet -e . --group dev\n" in calls.read_text()
    assert checkout.run("test").stderr == ""  # once


def test_the_log_demonstration_needs_the_extras_and_the_other_one_does_not(checkout):
    calls = checkout.environment()
    mark = checkout.folder / ".venv/.klamm-dev"
    mark.rename(mark.with_name(".klamm-runtime"))
    assert checkout.run("demo").stderr == ""
    assert "making the environment in .venv (all)" in checkout.run("demo", "logs").stderr
    assert "pip install --quiet -e .[all]\n" in calls.read_text()
    assert (
        checkout.run("demo", "logs").stderr == checkout.run("demo").stderr == ""
    )  # once, and it is enough for both


def test_an_environment_of_a_checkout_that_moved_is_made_anew(checkout):
    checkout.environment()
    (checkout.folder / ".venv/.klamm-home").write_text("/somewhere/else\n")
    assert checkout.run("test").returncode == 1  # there is no Python on this PATH to make it with
    assert not (checkout.folder / ".venv").exists()


def test_an_environment_that_cannot_be_removed_is_told_in_one_sentence(checkout):
    checkout.environment()
    (checkout.folder / ".venv/.klamm-home").write_text("/somewhere/else\n")
    (checkout.bin / "rm").unlink()
    checkout.program(
        "rm", "#!/bin/sh\nfor n in a b c; do echo \"rm: cannot remove '.venv/$n'\" >&2; done\nexit 1\n"
    )
    result = checkout.run("test")
    assert result.returncode == 1
    assert result.stderr == (
        "dev: the environment in .venv does not work here and cannot be removed; another user may own it. Remove it first:\n"
        f"    sudo rm -rf '{checkout.folder}/.venv'\n"
    )


@pytest.mark.parametrize("where", ["venv", "pip"])
def test_ctrl_c_while_the_environment_is_made_is_one_sentence(checkout, where):
    modules = checkout.folder / "modules"
    modules.mkdir()
    (modules / f"{where}.py").write_text("""import sys, time
if __name__ == "__main__" and sys.argv[1:] != ["--version"]:
    print("it runs", file=sys.stderr, flush=True)
    time.sleep(60)
""")
    python = f'#!/bin/sh\nPYTHONPATH="{modules}" exec "{sys.executable}" "$@"\n'
    if where == "pip":
        checkout.environment().with_name("python").write_text(python)
        (checkout.folder / ".venv/.klamm-dev").unlink()
    checkout.program("python3", python)
    started = checkout.start("test")
    try:
        said = [started.stderr.readline() for _ in range(2)]
        os.killpg(started.pid, signal.SIGINT)
        rest = started.communicate(timeout=60)[1]
    finally:
        started.kill()
    assert said == ["dev: making the environment in .venv (dev), once ...\n", "it runs\n"]
    assert rest == "dev: interrupted; the next ./dev goes on making the environment\n"
    assert started.returncode == 130


def test_a_second_start_waits_for_the_environment_that_the_first_makes(checkout):
    gate = checkout.folder / "gate"
    os.mkfifo(gate)
    checkout.program(
        "python3",
        f"""#!/bin/sh
[ "$3" = venv ] || exec "{sys.executable}" "$@"
read go <gate
cp -R made .venv""",
    )
    python = checkout.folder / "made/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text(STUB)
    python.chmod(0o755)
    first = checkout.start("demo")
    second = None
    try:
        assert "making the environment" in first.stderr.readline()
        second = checkout.start("demo")
        assert "another ./dev makes the environment; waiting" in second.stderr.readline()
        gate.write_text("go\n")
        assert (first.wait(60), second.wait(60)) == (0, 0)
    finally:
        for started in filter(None, (first, second)):
            started.kill()
            started.communicate()
    calls = (checkout.folder / ".venv/bin/calls").read_text()
    assert calls.count("pip install --quiet -e .\n") == 1
    assert calls.count("-m klamm.demo\n") == 2


@pytest.mark.usefixtures("processes")
@pytest.mark.parametrize("script", ["dev", ".ci/run", "tests/peers/fetch_kafka.sh", "tests/bare_debian.sh"])
def test_scripts_are_executable_and_parse(script):
    path = ROOT / script
    assert os.access(path, os.X_OK)
    shell = path.read_text().splitlines()[0].removeprefix("#!").split()[-1].rpartition("/")[2]
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed (Debian: apt-get install {shell})")
    subprocess.run([shell, "-n", str(path)], check=True)


@pytest.mark.usefixtures("processes")
@pytest.mark.skipif(os.getuid() != 0, reason="bare_debian.sh needs root: run the tests as root")
def test_a_kept_bare_debian_keeps_no_credentials(tmp_path):
    """With programs that do nothing instead of debootstrap and chroot."""
    programs, root, home = tmp_path / "bin", tmp_path / "root", tmp_path / "home"
    given = home / ".config/pip/pip.conf"
    for folder in (programs, root, given.parent):
        folder.mkdir(parents=True)
    (root / ".bare-debian").touch()
    given.write_text("[global]\nindex-url = https://user:secret@example.com/\n")
    copied = root / given.relative_to("/")
    seen = tmp_path / "seen"
    for name, line in {
        "debootstrap": "",
        "git": "",
        "chroot": "",
        "unshare": f"cat '{copied}' >>'{seen}'",
    }.items():
        (programs / name).write_text(f"#!/bin/sh\n{line}\n")
        (programs / name).chmod(0o755)
    env = {"PATH": f"{programs}:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": str(home), "TMPDIR": str(tmp_path)}
    for times in (1, 2):
        subprocess.run(
            ["sh", str(ROOT / "tests/bare_debian.sh"), "--root", str(root), "true"], env=env, check=True
        )
        assert seen.read_text() == given.read_text() * times
        assert not copied.exists()
    assert not list(root.rglob("pip.conf")) + list(root.rglob("auth.conf*"))
    assert given.exists()
