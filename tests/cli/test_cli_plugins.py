"""`klamm plugins` in a directory of its own: what it prints, its exit codes, locks between machines."""

from __future__ import annotations

import fcntl
import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.klamm import klamm
from support.wheels import make_index
from typer.testing import CliRunner

from klamm.cli.plugins import app
from klamm.environments.store import Store
from klamm.environments.users import NAMELESS, NamedPackages, connectors_in, connectors_naming

pytestmark = pytest.mark.usefixtures("processes")


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    return make_index(tmp_path_factory.mktemp("index"))


def plugins(directory, *args):
    return klamm("plugins", *args, KLAMM_PLUGINS_DIRECTORY=str(directory))


def test_nothing_is_installed_and_nothing_is_made(tmp_path):
    directory = tmp_path / "none"
    assert plugins(directory, "list").stdout == "NAME  VERSION  STATE  PLUGINS\n"
    assert json.loads(plugins(directory, "lock").stdout) == {"packages": []}
    gone = plugins(directory, "remove", "acme-old")
    assert (gone.returncode, gone.stderr) == (1, "klamm: There is no plugin package acme-old here\n")
    assert not directory.joinpath("environments").exists()


WRONG = [
    ((), 2, "give a PACKAGE or --lock FILE"),
    (("a", "--lock", "f"), 2, "give a PACKAGE or --lock FILE"),
    (("a", "--url", "http://127.0.0.1:1", "--offline"), 2, "with --url give a PACKAGE alone"),
    (("a", "--url", "http://127.0.0.1:1"), 1, "no answer from a Connect worker at http://127.0.0.1:1"),
    (("--lock", "/no/such"), 2, "/no/such: No such file or directory"),
    (("--lock", __file__), 2, "is not what `klamm plugins lock` writes"),
    (("./no.whl",), 1, "no.whl is neither a folder with a Python project nor a wheel (.whl)"),
    (("acme=1",), 1, "'=1' is no version specifier; write it like acme-plugin==1.2"),
]


@pytest.mark.parametrize(("args", "code", "said"), WRONG)
def test_what_is_wrong_is_a_sentence(args, code, said, tmp_path):
    done = plugins(tmp_path, "install", *args)
    assert (done.returncode, said in done.stderr) == (code, True), done.stderr
    assert "Traceback" not in done.stderr


def process(proc, number, title, *opened):
    """Makes a process as /proc shows it."""
    folder = proc / str(number)
    (folder / "fd").mkdir(parents=True)
    (folder / "cmdline").write_bytes(title)
    for at, file in enumerate(opened):
        (folder / "fd" / str(at)).symlink_to(file)


def test_connectors_in_an_environment_are_named(tmp_path):
    environment, proc = tmp_path / "environments" / "e", tmp_path / "proc"
    marker = environment / "in-use"
    process(proc, 1, b"klamm connect: orders\0\0", marker)
    process(proc, 2, b"klamm connect: orders-0\0", "/dev/null", marker)
    process(proc, 3, b"klamm connect: elsewhere\0", tmp_path / "other" / "in-use")
    process(proc, 4, b"python\0-m\0klamm.connect.child.forkserver\0", marker)
    assert connectors_in(environment, proc) == ["orders"]
    environment.mkdir(parents=True)
    assert connectors_in(environment, tmp_path / "no-proc") == []
    with marker.open("a") as held:
        fcntl.flock(held, fcntl.LOCK_SH)
        assert connectors_in(environment, tmp_path / "no-proc") == [NAMELESS]


def test_connectors_of_another_user_are_noticed_by_their_lock(tmp_path, monkeypatch):
    """Another user's processes show their titles, but not their files."""
    environment, proc = tmp_path / "environments" / "e", tmp_path / "proc"
    marker = environment / "in-use"
    environment.mkdir(parents=True)
    process(proc, 1, b"klamm connect: foreign\0", marker)
    hidden = proc / "1" / "fd"
    real = Path.iterdir

    def iterdir(path):
        if path == hidden:
            raise PermissionError(13, "Permission denied", str(path))
        return real(path)

    monkeypatch.setattr(Path, "iterdir", iterdir)
    marker.touch(mode=0o444)
    assert connectors_in(environment, proc) == []
    with marker.open() as held:
        fcntl.flock(held, fcntl.LOCK_SH)
        assert connectors_in(environment, proc) == [NAMELESS]
        process(proc, 2, b"python\0-m\0klamm.connect.children.forkserver\0", marker)
        assert connectors_in(environment, proc) == [NAMELESS], (
            "our idle fork server explains its own lock only"
        )
        shutil.rmtree(proc / "1")
        assert connectors_in(environment, proc) == []
        shutil.rmtree(proc / "2")
        assert connectors_in(environment, proc) == [NAMELESS], "/proc may hide other users' processes"


def test_running_workers_say_which_packages_their_connectors_name(tmp_path):
    one, other = NamedPackages(tmp_path), NamedPackages(tmp_path)
    assert connectors_naming(tmp_path, "acme==1") == []
    one.write({"acme==1": ["orders", "users"], "more==2": ["orders"]})
    other.write({"acme==1": ["elsewhere"]})
    assert connectors_naming(tmp_path, "acme==1") == ["elsewhere", "orders", "users"]
    one.write({"acme==1": ["users"]})
    assert connectors_naming(tmp_path, "acme==1") == ["elsewhere", "users"]
    one.close()
    assert connectors_naming(tmp_path, "acme==1") == ["elsewhere"], "a worker that has ended counts no more"
    one.write({"acme==1": ["again"]})
    assert connectors_naming(tmp_path, "acme==1") == ["again", "elsewhere"]
    assert len(list((tmp_path / "workers").iterdir())) == 2
    one.close()
    other.close()


def test_a_package_that_tasks_use_is_not_removed(tmp_path, monkeypatch):
    record = SimpleNamespace(root="acme==1", name="acme", version="1")
    removed = []
    monkeypatch.setattr(Store, "record", lambda self, name, version: record)
    monkeypatch.setattr(Store, "users", lambda self, record: ["orders", "users"])
    monkeypatch.setattr(Store, "remove", lambda self, name, version: removed.append(name) or record)
    refused = CliRunner().invoke(app, ["remove", "acme", "-d", str(tmp_path)])
    assert (refused.exit_code, removed) == (1, [])
    assert refused.stderr == (
        "klamm: Plugin package acme==1 is used by orders, users (--force removes it all the same)\n"
    )
    forced = CliRunner().invoke(app, ["remove", "acme", "--force", "-d", str(tmp_path)])
    assert (forced.exit_code, forced.stdout, removed) == (0, "removed acme==1\n", ["acme"])


def test_install_list_lock_and_remove(index, tmp_path):
    here, there, wheels = tmp_path / "here", tmp_path / "there", tmp_path / "wheels"
    from_index = ("--find-links", str(index), "--offline")
    done = plugins(here, "install", "acme-old", *from_index)
    assert (done.returncode, done.stdout) == (
        0,
        "NAME      VERSION  STATE  PLUGINS\nacme-old  1.0      ready  OldConnector,OldConverter\n",
    )
    broken = plugins(here, "install", str(index / "acme_broken-1.0-py3-none-any.whl"), *from_index)
    assert broken.returncode == 1
    assert "import no_such_library" in broken.stderr
    assert broken.stderr.endswith(
        "klamm: acme-broken 1.0: acme-broken is broken: ModuleNotFoundError: No module named 'no_such_library'\n"
    )
    rows = json.loads(plugins(here, "list", "-o", "json").stdout)
    assert [(r["name"], r["state"]) for r in rows] == [("acme-broken", "broken"), ("acme-old", "ready")]
    assert rows[1]["packages"] == ["acme-lib==1.0", "acme-old==1.0"]

    lock = tmp_path / "plugins.lock.json"
    lock.write_text(plugins(here, "lock", "acme-old==1.0", "--wheels", str(wheels)).stdout)
    assert sorted(p.name for p in wheels.iterdir()) == [
        "acme_lib-1.0-py3-none-any.whl", "acme_old-1.0-py3-none-any.whl",
    ]  # fmt: skip
    alone = plugins(there, "install", "--lock", str(lock), "--offline")
    assert (
        alone.returncode,
        "wheels are neither in a package index nor on this machine" in alone.stderr,
    ) == (1, True)
    same = plugins(there, "install", "--lock", str(lock), "--find-links", str(wheels), "--offline")
    assert same.returncode == 0, same.stderr
    assert json.loads(plugins(there, "list", "-o", "json").stdout) == rows[1:]
    assert plugins(here, "remove", "acme-old").stdout == "removed acme-old==1.0\n"
    assert [r["name"] for r in json.loads(plugins(here, "list", "-o", "json").stdout)] == ["acme-broken"]
