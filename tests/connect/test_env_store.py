"""The plugin directory: packages resolved, locked, built, inspected and removed; by pip, without an index."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support.wheels import make_index, make_lib, make_plugin, make_wheel

from klamm.environments import inspection, overlay, runtime, wheelhouse
from klamm.environments.errors import (
    BadRequirement,
    EnvironmentFailure,
    NoPlugins,
    NotInstalled,
    ToolFailure,
    Unresolvable,
)
from klamm.environments.files import discard_unused
from klamm.environments.lock import Lock, LockedPackage, make_lock
from klamm.environments.names import requirement
from klamm.environments.shown import InstalledPlugin
from klamm.environments.store import Record, Store
from klamm.environments.tools import Pip, Sources, Uv, redacted
from klamm_base.version import __version__

BACKEND = """
import zipfile, os
def build_wheel(directory, config_settings=None, metadata_directory=None):
    name = "acme_folder-0.3-py3-none-any.whl"
    info = "acme_folder-0.3.dist-info"
    with zipfile.ZipFile(os.path.join(directory, name), "w") as z:
        z.write("acme_folder.py")
        z.writestr(info + "/METADATA", "Metadata-Version: 2.1\\nName: acme-folder\\nVersion: 0.3\\n")
        z.writestr(info + "/WHEEL", "Wheel-Version: 1.0\\nGenerator: t\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        z.writestr(info + "/entry_points.txt", "[klamm]\\nacme-folder = acme_folder\\n")
        z.writestr(info + "/RECORD", "acme_folder.py,,\\n")
    return name
"""


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    return make_index(tmp_path_factory.mktemp("index"))


@pytest.fixture(scope="module")
def store(processes, index, tmp_path_factory):
    """Returns a store with acme-old and acme-new in it."""
    store = make_store(tmp_path_factory.mktemp("plugins"), index)
    store.install("acme-old")
    store.install("acme-new>=1.0")
    return store


def make_store(directory, *links):
    return Store(directory, sources=Sources(find_links=tuple(map(str, links)), offline=True), tool=Pip())


@pytest.mark.usefixtures("processes")
def test_two_packages_with_different_versions_of_a_library(store):
    new, old = store.records()
    assert (old.root, new.root) == ("acme-old==1.0", "acme-new==2.0")
    pins = {r.name: [p.pin for p in r.lock.packages] for r in (old, new)}
    # What the worker's runtime has (klamm, orjson, confluent-kafka) is in no environment.
    assert pins == {
        "acme-old": ["acme-lib==1.0", "acme-old==1.0"],
        "acme-new": ["acme-lib==2.0", "acme-new==2.0"],
    }
    environment = store.environment(old.lock)
    (connector, converter) = environment.contents.plugins
    assert (connector.plugin_class, connector.type, connector.version, connector.entry_point) == (
        "acme_old.OldConnector", "source", "1.0", ("acme-old", "acme_old"),
    )  # fmt: skip
    assert converter.type == "converter"
    assert sorted(p.name for p in environment.site.glob("*.py")) == ["acme_lib.py", "acme_old.py"]


@pytest.mark.usefixtures("processes")
def test_a_lock_names_every_file_by_hash_and_builds_the_same_elsewhere(store, index, tmp_path):
    record = store.record("acme-new")
    lock = Lock.from_json(json.loads(json.dumps(record.lock.to_json())))
    assert lock == record.lock
    assert "acme-lib==2.0 \\\n    --hash=sha256:" in lock.requirements()
    other = make_store(tmp_path / "other")
    with pytest.raises(ToolFailure, match=r"nor on this machine: acme_lib-2.0-py3-none-any.whl \(sha256 "):
        other.adopt(record)
    assert other.records() == []
    other.wheels.find(lock, [index])
    built = other.adopt(record)
    assert built.id == store.environment(lock).id
    assert other.records() == [record]
    assert built.contents == store.environment(lock).contents


@pytest.mark.usefixtures("processes")
def test_a_wheel_that_is_not_what_the_lock_says_is_not_installed(store, tmp_path):
    record = store.record("acme-new")
    other = make_store(tmp_path / "other")
    for package in record.lock.packages:
        path = other.wheels.path(package)
        path.parent.mkdir(parents=True)
        make_wheel(path.parent, package.name, package.version, {"evil.py": ""})
    with pytest.raises(ToolFailure, match="DO NOT MATCH THE HASHES"):
        other.adopt(record)


@pytest.mark.usefixtures("processes")
def test_packages_that_go_together_share_an_environment_and_others_are_told(store, index, tmp_path):
    with pytest.raises(Unresolvable) as raised:
        store.lock_of(["acme-old==1.0", "acme-new==2.0"])
    assert "acme-old 1.0 depends on acme-lib<2" in str(raised.value)
    assert "acme-new 2.0 depends on acme-lib>=2" in str(raised.value)
    with pytest.raises(NotInstalled, match="acme-none==1"):
        store.lock_of(["acme-none==1"])


@pytest.mark.usefixtures("processes")
def test_versions_that_differ_are_resolved_together(store, index):
    record, _ = store.install("acme-any")
    assert "acme-lib==2.0" in {p.pin for p in record.lock.packages}
    lock = store.lock_of(["acme-any==1.0", "acme-old==1.0"])
    assert [p.pin for p in lock.packages] == ["acme-any==1.0", "acme-lib==1.0", "acme-old==1.0"]
    environment = store.ensure(lock)
    assert environment.contents.entry_points == ("acme-any", "acme-old")
    assert store.lock_of(["acme-old==1.0", "acme-any==1.0"]) == lock  # from the disk
    # It goes with one of its packages.
    store.remove("acme-any")
    assert store.environment(lock) is None
    assert store.environment(store.record("acme-old").lock) is not None


@pytest.mark.usefixtures("processes")
def test_a_broken_package_is_installed_and_shows_its_traceback(index, tmp_path, monkeypatch):
    store = make_store(tmp_path, index)
    record, environment = store.install("acme-broken")
    shown = InstalledPlugin.of(record, environment, platform=store.platform)
    assert shown.state == "broken"
    (broken,) = shown.to_json()["broken"]
    assert broken["error"] == "ModuleNotFoundError: No module named 'no_such_library'"
    assert 'acme_broken.py", line 1, in <module>' in broken["trace"]
    assert store.remove("acme-broken").root == "acme-broken==1.0"
    assert list((tmp_path / "environments").iterdir()) == []
    (wheel,) = (tmp_path / "wheels").iterdir()
    store.collect()
    assert wheel.exists()  # it may just have come for a package that is on its way
    monkeypatch.setattr(wheelhouse, "REST_S", -1)
    store.collect({wheel.name})
    assert wheel.exists()
    store.collect()
    assert not wheel.exists()


@pytest.mark.usefixtures("processes")
@pytest.mark.parametrize(
    ("code", "error", "said"),
    [
        ("raise SystemExit(3)", "SystemExit: 3", "SystemExit: 3"),
        ("import os; os._exit(9)", "It cannot be inspected: the process exited with code 9", "code 9"),
        ("import os; os.write(2, b'last words'); os.kill(os.getpid(), 11)",
         "It cannot be inspected: the process was killed by SIGSEGV", "last words"),
        ("import time; time.sleep(60)", "It cannot be inspected: importing it did not end within 0.5 s", "0.5 s"),
        ("print('noise' * 30000, flush=True); x = 1/0", "ZeroDivisionError: division by zero", "1/0"),
        ("", "", ""),
    ],
)  # fmt: skip
def test_what_a_plugin_does_when_it_is_imported_hurts_nobody(code, error, said, tmp_path):
    info = tmp_path / "bad-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: bad\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[klamm]\nbad = bad_module\n")
    (tmp_path / "bad_module.py").write_text(code)
    found = inspection.inspect(tmp_path, timeout_s=0.5 if "sleep" in code else 30)
    assert found.entry_points == ("bad",)
    assert [b.error for b in found.broken] == ([error] if error else [])
    assert all(said in b.trace for b in found.broken)


@pytest.mark.usefixtures("processes")
def test_a_folder_is_built_and_built_again(tmp_path):
    project = tmp_path / "project"
    project.mkdir()
    (project / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    )
    (project / "backend.py").write_text(BACKEND)
    (project / "acme_folder.py").write_text("raise RuntimeError('first')\n")
    store = make_store(tmp_path / "plugins")
    first, environment = store.install(str(project))
    assert (first.root, first.request) == ("acme-folder==0.3", str(project))
    assert environment.contents.broken[0].error == "RuntimeError: first"
    (project / "acme_folder.py").write_text("")
    again, better = store.install(str(project))
    assert better.contents.broken == ()
    assert better.id != environment.id
    assert store.records() == [again]
    store.collect()
    assert [p.name for p in (store.directory / "environments").iterdir()] == [better.id]


@pytest.mark.usefixtures("processes")
def test_a_klamm_that_does_not_fit_is_refused_and_a_newer_library_is_brought_along(tmp_path):
    index = tmp_path / "index"
    make_wheel(index, "acme-later", "1", {}, requires=["klamm>=99"], entry_points={"x": "x"})
    make_wheel(index, "orjson", "99.0", {"orjson.py": ""})
    make_wheel(index, "acme-fast", "1", {"f.py": ""}, requires=["orjson>=99"], entry_points={"f": "f"})
    store = make_store(tmp_path / "plugins", index)
    with pytest.raises(Unresolvable, match="klamm>=99"):
        store.install("acme-later")
    record, environment = store.install("acme-fast")
    assert [p.pin for p in record.lock.packages] == ["acme-fast==1", "orjson==99.0"]
    assert (environment.site / "orjson.py").exists()


PIP = pytest.mark.needs("processes")
WRONG = [
    pytest.param("acme-lib", NoPlugins, "acme-lib==2.0 has no plugins", marks=PIP),
    pytest.param("acme-nowhere", Unresolvable, "No matching distribution found for acme-nowhere", marks=PIP),
    pytest.param("acme-old>=2", Unresolvable, "acme-old>=2", marks=PIP),
    ("acme=1", BadRequirement, "'=1' is no version specifier; write it like acme-plugin==1.2"),
    ("", BadRequirement, "no package requirement"),
    ("--index-url=http://evil", ToolFailure, "neither a folder with a Python project nor a wheel"),
    ("--pre", BadRequirement, "no package requirement"),
    ("acme @ https://me:pw@host/acme.whl", BadRequirement, "acme @ https://host/acme.whl: get the wheel"),
    ("acme ; python_version > '3'\n--pre", BadRequirement, "it has control characters in it"),
    ("acme[x\n-e .]", BadRequirement, "it has control characters in it"),
    ("~nobody-of-this-name/x.whl", ToolFailure, "~nobody-of-this-name/x.whl is neither a folder"),
    ("./nowhere.whl", ToolFailure, "neither a folder with a Python project nor a wheel"),
    pytest.param("/", ToolFailure, "cannot be built", marks=PIP),
    pytest.param("klamm", Unresolvable, "klamm is a part of Klamm's runtime", marks=PIP),
]


@pytest.mark.parametrize(("request_", "error", "said"), WRONG)
def test_what_cannot_be_installed_is_said_and_leaves_nothing(request_, error, said, index, tmp_path):
    store = make_store(tmp_path, index)
    with pytest.raises(error) as raised:
        store.install(request_)
    assert said in str(raised.value)
    assert store.records() == []
    environments = tmp_path / "environments"
    assert not environments.exists() or not list(environments.iterdir())


@pytest.mark.usefixtures("processes")
def test_versions_side_by_side_and_removal_of_one(store, tmp_path, index):
    store.install("acme-new==1.0")
    assert [r.version for r in store.records() if r.name == "acme-new"] == ["1.0", "2.0"]
    with pytest.raises(EnvironmentFailure, match=r"There are several versions of acme-new: 1\.0, 2\.0"):
        store.remove("acme-new")
    with pytest.raises(
        NotInstalled, match=r"no version 3 of the plugin package acme-new here; there is 1\.0, 2\.0"
    ):
        store.remove("acme-new", "3")
    with pytest.raises(NotInstalled, match="There is no plugin package acme-none here"):
        store.remove("acme-none")
    before = store.stamp()
    store.remove("Acme_New", "1.0")
    assert store.stamp() != before
    assert [r.version for r in store.records() if r.name == "acme-new"] == ["2.0"]


@pytest.mark.usefixtures("processes")
def test_the_overlay_comes_before_site_packages_and_after_the_standard_library(tmp_path):
    site = tmp_path / "env" / "site"
    site.mkdir(parents=True)
    (site / "orjson.py").write_text("mine = True\n")
    (site / "json.py").write_text("raise RuntimeError('not the standard library')\n")
    (site / "probe.py").write_text("import json, orjson, sys; print(orjson.mine, sys.argv)\n")
    command = [sys.executable, "-m", "klamm.environments.overlay", str(site), "probe", "x"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == f"True {[str(site / 'probe.py'), 'x']}\n"


def fake_environment(store, name="half"):
    """Returns a package with an environment, without any installer."""
    digest = store.wheels.keep(f"{name}.whl", name.encode())
    packages = [LockedPackage(name=name, version="1", hashes=(digest,), file=f"{name}.whl")]
    record = Record(name=name, version="1", request=name, lock=make_lock([name], packages), installed_ms=1)
    site = store.directory / "environments" / record.lock.id(store.platform) / "site"
    info = site / f"{name}-1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
    (info / "entry_points.txt").write_text(f"[klamm]\n{name} = {name}\n")
    (site / f"{name}.py").write_text("")
    (site.parent / "lock.json").write_text(json.dumps(record.lock.to_json()))
    contents = {"entry_points": [name], "plugins": [], "broken": [], "klamm": __version__}
    (site.parent / "contents.json").write_text(json.dumps(contents))
    store._note(record)
    return record, site


def test_a_kill_while_an_environment_is_removed_leaves_none_that_is_half(tmp_path, monkeypatch):
    store = make_store(tmp_path)
    record, site = fake_environment(store)

    def killed(path, **_):
        found = next(Path(path).rglob("half.py"), None)
        if found is not None:
            found.unlink()
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(shutil, "rmtree", killed)
        with pytest.raises(KeyboardInterrupt):
            store.remove("half")
    after = make_store(tmp_path)
    assert after.environment(record.lock) is None  # not one without half.py
    assert not site.exists()
    after.collect()
    assert not (tmp_path / "work").exists()


def test_who_takes_an_environment_while_it_is_removed_is_told(tmp_path, monkeypatch):
    store = make_store(tmp_path)
    _, site = fake_environment(store)
    flock, removed = fcntl.flock, []

    def remove_first(marker, how):
        if not removed:
            removed.append(True)
            monkeypatch.setattr(fcntl, "flock", flock)
            store.remove("half")
        flock(marker, how)

    monkeypatch.setattr(fcntl, "flock", remove_first)
    with pytest.raises(FileNotFoundError):
        overlay.hold(str(site))


def test_an_environment_of_another_user_can_be_held(tmp_path, monkeypatch):
    _, site = fake_environment(make_store(tmp_path))
    real = os.open

    def read_only(path, flags, *mode):
        if flags & os.O_RDWR:
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return real(path, flags, *mode)

    (site.parent / "in-use").touch()
    monkeypatch.setattr(os, "open", read_only)
    overlay.hold(str(site))
    monkeypatch.undo()
    assert not discard_unused(site.parent, tmp_path / "work")


@pytest.mark.usefixtures("processes")
def test_what_cannot_be_read_of_an_environment_is_looked_at_again(tmp_path, caplog):
    store = make_store(tmp_path)
    record, site = fake_environment(store)
    for text in ("", "[]", json.dumps({"klamm": __version__})):
        (site.parent / "contents.json").write_text(text)
        assert make_store(tmp_path).environment(record.lock).contents.entry_points == ("half",)
    assert "contents.json cannot be read" in caplog.text


def test_the_stamp_changes_with_every_change_however_quick(tmp_path):
    store = make_store(tmp_path)
    seen = [store.stamp()]
    records = [fake_environment(store, name)[0] for name in ("one", "two")]
    for record in records:
        store._note(record)  # replaced by itself
        seen.append(store.stamp())
    for record in records:
        store.remove(record.name)
        seen.append(store.stamp())
    assert seen.pop() == seen[0] == frozenset()
    assert len(set(seen)) == len(seen)


def test_a_full_disk_is_told_and_changes_nothing(tmp_path, monkeypatch):
    store = make_store(tmp_path)
    record, _ = fake_environment(store)

    def full(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ToolFailure, match=r"cannot be changed: \[Errno 28\] No space left on device"):
        store.adopt(record)
    assert store.records() == [record]
    with pytest.raises(OSError, match="No space left"):
        store.wheels.keep("x.whl", b"x")
    assert list(tmp_path.rglob("*.part")) == []


def test_a_wheel_that_a_power_loss_has_emptied_is_written_again(tmp_path):
    wheels = make_store(tmp_path).wheels
    path = wheels.directory / wheels.keep("x.whl", b"wheel") / "x.whl"
    path.write_bytes(b"")
    wheels.keep("x.whl", b"wheel")
    assert path.read_bytes() == b"wheel"
    with ThreadPoolExecutor(8) as pool:
        for _ in range(20):
            path.unlink()
            assert len(set(pool.map(lambda _: wheels.keep("x.whl", b"wheel"), range(8)))) == 1


@pytest.mark.usefixtures("processes")
def test_a_package_is_written_once_beside_its_place(index, tmp_path, monkeypatch):
    """An installer that puts it together in /tmp writes it twice, and needs the room twice."""
    elsewhere = tmp_path / "tmp"
    elsewhere.mkdir()
    monkeypatch.setenv("TMPDIR", str(elsewhere))
    before = elsewhere.stat().st_mtime_ns  # of a folder, it changes with every name that comes or goes
    store = make_store(tmp_path / "plugins", index)
    lock = store.install("acme-new")[0].lock
    assert store.environment(lock) is not None
    assert elsewhere.stat().st_mtime_ns == before
    assert not list((tmp_path / "plugins/work").iterdir())


@pytest.mark.usefixtures("processes")
def test_a_wheel_is_kept_once(tmp_path, monkeypatch):
    wheel = make_wheel(tmp_path, "acme-once", "1.0", {"acme_once.py": ""}, entry_points={"once": "acme_once"})
    read = []
    keep = wheelhouse.WheelHouse.keep
    monkeypatch.setattr(
        wheelhouse.WheelHouse, "keep", lambda self, *given: read.append(given[0]) or keep(self, *given)
    )
    record, _ = make_store(tmp_path / "plugins").install(str(wheel))
    assert read == [wheel.name]
    assert record.lock.packages[0].file == wheel.name


def test_an_unreadable_record_is_told_and_hides_nobody(index, tmp_path, caplog):
    store = make_store(tmp_path)
    (tmp_path / "installed").mkdir()
    (tmp_path / "installed" / "x-1.json").write_text("{")
    assert store.records() == []
    assert "remove it and install the package again" in caplog.text


@pytest.mark.usefixtures("processes")
def test_an_environment_of_another_klamm_is_looked_at_again(store):
    environment = store.environment(store.record("acme-old").lock)
    path = environment.site.parent / "contents.json"
    data = json.loads(path.read_text())
    path.write_text(json.dumps(data | {"klamm": "0.0.1", "plugins": []}))
    fresh = Store(store.directory)
    assert fresh.environment(environment.lock).contents == environment.contents
    assert json.loads(path.read_text()) == data


def test_requirements_are_read():
    assert requirement("Acme.Klamm [x] >=1 , <2 ; python_version > '3'") == (
        "acme-klamm", "[x]", ">=1 , <2", "python_version > '3'", None,
    )  # fmt: skip
    assert requirement("a @ https://x/y.whl ; m") == ("a", "", "", "m", "https://x/y.whl")


def test_credentials_of_an_index_are_not_told():
    assert redacted("at https://me:secret@host/simple x") == "at https://host/simple x"


def test_the_runtime_is_what_klamm_needs_and_no_more():
    here = runtime.current()
    assert {"klamm", "orjson", "pluggy", "confluent-kafka"} <= set(here.versions)
    assert not {"aiohttp", "typer", "rich", "pytest"} & set(here.versions)
    assert any(line.startswith("orjson>=") for line in here.ranges)


@pytest.mark.usefixtures("processes")
def test_an_environment_in_use_stays_until_it_is_not(store, tmp_path):
    (tmp_path / "sleeper.py").write_text("import time; print('here', flush=True); time.sleep(60)\n")
    record = store.record("acme-old")
    environment = store.environment(record.lock)
    held = subprocess.Popen(
        [sys.executable, "-m", "klamm.environments.overlay", str(environment.site), "sleeper"],
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
    )
    with held:
        assert held.stdout.readline() == b"here\n"
        store.remove("acme-old")
        assert environment.site.is_dir()
        held.kill()
    store.collect()
    assert not environment.site.exists()


@pytest.mark.usefixtures("processes")
@pytest.mark.parametrize(
    "member",
    ["../../evil.py", "acme_slip-1.data/data/../../../evil.py", "acme_slip-1.data/purelib/../../evil.py"],
)
def test_a_wheel_that_reaches_out_of_its_folder_is_refused(member, tmp_path):
    wheel = make_wheel(tmp_path / "in", "acme-slip", "1", {"x.py": "", member: ""}, entry_points={"x": "x"})
    store = make_store(tmp_path / "a" / "b" / "plugins")
    with pytest.raises(ToolFailure):
        store.install(str(wheel))
    assert list(tmp_path.rglob("evil.py")) == []
    assert store.records() == []


@pytest.mark.usefixtures("processes")
def test_what_a_wheel_brings_beside_its_modules_stays_in_its_environment(tmp_path):
    files = {
        "x.py": "",
        "acme_much-1.data/scripts/klamm": "#!python\n",
        "acme_much-1.data/data/etc/much.conf": "",
        "sitecustomize.py": "raise RuntimeError('of a plugin')\n",
        "much.pth": "import no_such_module\n",
    }
    wheel = make_wheel(tmp_path / "in", "acme-much", "1", files, entry_points={"x": "x"})
    store = make_store(tmp_path / "plugins")
    _, environment = store.install(str(wheel))
    assert environment.contents.broken == ()
    there = {str(p.relative_to(environment.site)) for p in environment.site.rglob("*") if p.is_file()}
    assert {"bin/klamm", "etc/much.conf"} <= there


@pytest.mark.skipif(shutil.which("uv") is None, reason="uv is not on the PATH (pip install uv)")
def test_uv_and_pip_make_the_same_lock_and_the_same_environment(index, tmp_path):
    sources = Sources(find_links=(str(index),), offline=True)
    stores = [Store(tmp_path / t.name, sources=sources, tool=t) for t in (Pip(), Uv(shutil.which("uv")))]
    (one, built), (other, built_too) = [s.install("acme-new") for s in stores]
    assert one.lock == other.lock
    assert (built.id, built.contents) == (built_too.id, built_too.contents)
    with pytest.raises(Unresolvable, match="acme-nowhere"):
        stores[1].install("acme-nowhere")
    stores[1].install("acme-old")
    with pytest.raises(Unresolvable, match=r"acme-old==1\.0 depends on acme-lib<2"):
        stores[1].lock_of(["acme-old==1.0", "acme-new==2.0"])


@pytest.mark.usefixtures("processes")
def test_two_processes_install_at_the_same_time(index, tmp_path):
    command = [
        sys.executable, "-m", "klamm.cli.main", "plugins", "install", "--find-links", str(index), "--offline",
        "--directory", str(tmp_path),
    ]  # fmt: skip
    started = time.monotonic()
    running = [
        subprocess.Popen([*command, name], stdout=subprocess.DEVNULL) for name in ("acme-old", "acme-new")
    ]
    assert [p.wait(100) for p in running] == [0, 0], time.monotonic() - started
    assert [r.root for r in Store(tmp_path).records()] == ["acme-new==2.0", "acme-old==1.0"]


@pytest.mark.usefixtures("processes")
def test_a_kill_in_the_middle_leaves_no_half_environment(index, tmp_path):
    make_lib(index, "3.0")
    make_plugin(index, "killed", "1.0", "acme-lib==3.0")
    command = [
        sys.executable, "-m", "klamm.cli.main", "plugins", "install", "acme-killed", "--find-links", str(index),
        "--offline", "--directory", str(tmp_path),
    ]  # fmt: skip
    for delay in (0.5, 1.0, 1.5, 2.0, 2.5):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True)
        time.sleep(delay)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        store = make_store(tmp_path, index)
        for record in store.records():
            assert store.environment(record.lock).contents.plugins
    record, environment = make_store(tmp_path, index).install("acme-killed")
    assert len(environment.contents.plugins) == 2
    assert list((tmp_path / "work").iterdir()) == []
