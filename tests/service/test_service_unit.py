"""Units, versions and what a server tells its service manager, without systemd."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from typer.testing import CliRunner

from klamm.cli.main import app
from klamm.logdump.check import check
from klamm.service import versions as service_versions
from klamm.service.install import Wanted, plan
from klamm.service.kinds import KINDS, kind_of
from klamm.service.unit import Unit, quoted
from klamm.service.versions import CURRENT, PREVIOUS, Steps, Versions, change
from klamm_base.errors import ConfigError, KlammError
from klamm_base.service_manager import ServiceManager
from klamm_kafka.wire.batch import Record, encode_batch

# ---- what a server says


@pytest.fixture
def heard(tmp_path: Path) -> Iterator[tuple[ServiceManager, socket.socket]]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.setblocking(False)
        environ = {
            "NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "3000000", "WATCHDOG_PID": str(os.getpid()),
        }  # fmt: skip
        told = ServiceManager.of(environ)
        assert not environ  # children do not speak for the server
        yield told, manager


def test_signs_of_life_come_as_often_as_they_are_asked_for(
    heard: tuple[ServiceManager, socket.socket],
) -> None:
    told, manager = heard
    for tenth in range(100):
        told.alive(1000.0 + tenth / 10)
    said = []
    while True:
        try:
            said.append(manager.recv(1000))
        except BlockingIOError:
            break
    assert said == [b"WATCHDOG=1"] * 10


def test_ready_is_said_with_its_line(heard: tuple[ServiceManager, socket.socket]) -> None:
    told, manager = heard
    told.ready("broker=127.0.0.1:9092")
    assert manager.recv(1000) == b"READY=1\nSTATUS=broker=127.0.0.1:9092"
    told.stopping()
    assert manager.recv(1000) == b"STOPPING=1"


def test_a_reload_is_said_with_its_trouble_or_the_line_of_ready(
    heard: tuple[ServiceManager, socket.socket],
) -> None:
    told, manager = heard
    told.ready("lag=http://127.0.0.1:8000")
    told.reloading()
    told.reloaded("users stay as they were")
    told.reloaded()
    said = [manager.recv(1000).split(b"\n") for _ in range(4)]
    assert said[1][0] == b"RELOADING=1"
    assert said[2] == [b"READY=1", b"STATUS=users stay as they were"]
    assert said[3] == said[0] == [b"READY=1", b"STATUS=lag=http://127.0.0.1:8000"]


def test_a_watchdog_of_another_process_is_not_ours() -> None:
    told = ServiceManager.of({"NOTIFY_SOCKET": "@x", "WATCHDOG_USEC": "3000000", "WATCHDOG_PID": "1"})
    assert told.silence_s is None


def test_without_a_manager_nothing_is_said() -> None:
    told = ServiceManager.of({"WATCHDOG_USEC": "3000000"})
    told.ready("x")
    told.alive()
    assert told.silence_s is None


def test_a_manager_that_is_gone_ends_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    ServiceManager(str(tmp_path / "nobody")).ready("x")
    assert "does not hear us" in caplog.text


# ---- units


def _unit(kind: str, **more: object) -> Unit:
    given = {
        "name": f"klamm-{kind}", "kind": kind_of(kind), "program": Path("/opt/klamm/current/bin/klamm"),
        "interpreter": Path("/usr/bin/python3.11"), "folder": Path("/var/lib/klamm"), "user": "klamm",
    }  # fmt: skip
    return Unit(**(given | more))  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_the_walls(kind: str) -> None:
    text = _unit(kind, config=Path("/etc/klamm/x")).text()
    for line in (
        "Type=notify",
        "WatchdogSec=60",
        "NoNewPrivileges=yes",
        "ProtectSystem=strict",
        "User=klamm",
    ):
        assert f"\n{line}\n" in text
    assert ("ExecReload=" in text) == kind_of(kind).reload
    assert ("MemoryDenyWriteExecute=" in text) == (not kind_of(kind).jit)


def test_what_reads_again_on_sighup_offers_a_reload() -> None:
    reloads = {kind for kind in KINDS if "\nExecReload=/bin/kill -HUP $MAINPID\n" in _unit(kind).text()}
    assert reloads == {"mirror", "agent", "console", "registry", "lag", "rest"}


def test_a_users_unit_asks_for_nothing_that_its_manager_cannot_do() -> None:
    text = _unit("up", user=None).text()
    assert "ProtectSystem" not in text
    assert "User=" not in text
    assert "WantedBy=default.target" in text


def test_what_lies_in_a_home_or_a_temporary_folder_stays_visible() -> None:
    assert "ProtectHome=tmpfs" in _unit("broker").text()
    assert "PrivateTmp=yes" in _unit("broker").text()
    assert "ProtectHome=read-only" in _unit("broker", config=Path("/home/kim/server.properties")).text()
    assert "PrivateTmp" not in _unit("broker", folder=Path("/var/tmp/x")).text()


@pytest.mark.parametrize(
    ("word", "written"),
    [
        ("plain", "plain"), ("two words", '"two words"'), ("100%", "100%%"), ('a"b', '"a\\"b"'), ("$HOME", "$$HOME"),
        ("back\\slash", '"back\\\\slash"'), ("", '""'),
    ],
)  # fmt: skip
def test_words_are_written_so_that_systemd_reads_them_back(word: str, written: str) -> None:
    assert quoted(word) == written


def test_a_line_break_in_a_path_is_refused() -> None:
    with pytest.raises(ConfigError, match="control characters"):
        quoted("a\nExecStart=/bin/sh")


def test_the_configuration_is_read_before_anything_is_installed(tmp_path: Path) -> None:
    bad = tmp_path / "server.properties"
    bad.write_text("num.partitions=many\n")
    with pytest.raises(ConfigError, match=r"num\.partitions"):
        plan(Wanted(kind=kind_of("broker"), name="b", of_user=True, config=bad))
    with pytest.raises(ConfigError, match="no such file"):
        plan(Wanted(kind=kind_of("broker"), name="b", of_user=True, config=tmp_path / "none"))
    with pytest.raises(ConfigError, match="needs its configuration"):
        plan(Wanted(kind=kind_of("agent"), name="a", of_user=True))
    with pytest.raises(ConfigError, match="takes no configuration file"):
        plan(Wanted(kind=kind_of("up"), name="u", of_user=True, config=bad))


@pytest.mark.parametrize(
    ("kind", "text", "said"),
    [
        ("console", "console.read.only=perhaps", r"console\.read\.only"),
        (
            "registry",
            "bootstrap.servers=x:1\nschema.compatibility.level=most",
            r"schema\.compatibility\.level",
        ),
        ("lag", "storage.intervals=few", r"storage\.intervals"),
        ("rest", "consumer.threads=0\nbootstrap.servers=x:1", r"consumer\.threads"),
    ],
)
def test_the_configuration_of_each_server_is_read(tmp_path: Path, kind: str, text: str, said: str) -> None:
    bad = tmp_path / "x.properties"
    bad.write_text(text + "\n")
    with pytest.raises(ConfigError, match=said):
        plan(Wanted(kind=kind_of(kind), name="x", of_user=True, config=bad))


@pytest.mark.usefixtures("processes")
def test_options_need_no_file_before_them() -> None:
    words = ["service", "install", "up", "--user", "--dry-run", "--", "--lag", "--data-dir", "/data/up"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    (started,) = [line for line in done.stdout.splitlines() if line.startswith("ExecStart=")]
    assert started.endswith(" up --lag --data-dir /data/up")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["up", "--", "--nosuch"], "klamm up: No such option: --nosuch"),
        (["up", "--", "--broker-port", "many"], "klamm up: Invalid value for '--broker-port': 'many' is not a valid int"),
        (["up", "--", "--broker-port"], "klamm up: Option '--broker-port' requires an argument"),
        (["up", "--", "--help"], "klamm up --help serves nothing"),
        (["broker", "FILE", "--", "--overide", "a=b"], "klamm broker start: No such option: --overide"),
        (["broker", "FILE", "--", "more"], "klamm broker start: Got unexpected extra argument"),
    ],
)  # fmt: skip
def test_options_that_the_server_refuses_are_refused_at_once(
    words: list[str], said: str, tmp_path: Path
) -> None:
    config = tmp_path / "server.properties"
    config.write_text(f"log.dirs={tmp_path / 'data'}\n")
    given = [str(config) if word == "FILE" else word for word in words]
    done = CliRunner().invoke(app, ["service", "install", given[0], "--user", "--dry-run", *given[1:]])
    assert (done.exit_code, said in done.output) == (2, True), done.output


@pytest.mark.parametrize("words", [("--data-dir", "/data/up"), ("--lag", "--data-dir=/data/up")])
def test_up_may_write_the_folder_that_it_is_given(words: tuple[str, ...]) -> None:
    unit = plan(Wanted(kind=kind_of("up"), name="u", of_user=False, words=words))
    assert "ReadWritePaths=/var/lib/klamm /data/up\n" in unit.text()


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("memory_max", ["4G", "512M", "1000", "50%", "infinity"], ["abc", "4GB", "-1", ""]),
        ("cpu_quota", ["150%", "12.5%"], ["150", "0%", "two"]),
    ],
)
def test_limits_are_those_that_systemd_reads(name: str, good: list[str], bad: list[str]) -> None:
    wanted = Wanted(kind=kind_of("up"), name="u", of_user=True)
    for value in good:
        plan(replace(wanted, **{name: value}))
    for value in bad:
        with pytest.raises(ConfigError, match=rf"--{name.replace('_', '-')} {value}: give "):
            plan(replace(wanted, **{name: value}))


def test_lag_may_write_its_history(tmp_path: Path) -> None:
    config = tmp_path / "lag.properties"
    config.write_text("history.dir=/data/lag\n")
    unit = plan(Wanted(kind=kind_of("lag"), name="l", of_user=False, config=config))
    assert "ReadWritePaths=/var/lib/klamm /data/lag" in unit.text()


def test_the_folders_of_the_data_may_be_written(tmp_path: Path) -> None:
    config = tmp_path / "server.properties"
    config.write_text("log.dirs=/data/a,/data/b\n")
    unit = plan(Wanted(kind=kind_of("broker"), name="b", of_user=False, config=config))
    assert "ReadWritePaths=/var/lib/klamm /data/a /data/b" in unit.text()


def test_an_unknown_kind_is_named() -> None:
    with pytest.raises(ConfigError, match=r"'brokr' is no service.*broker"):
        kind_of("brokr")


# ---- versions


def _versions(prefix: Path, *names: str) -> Versions:
    for name in names:
        (prefix / "versions" / name / "bin").mkdir(parents=True)
        (prefix / "versions" / name / "bin" / "klamm").touch()
    return Versions(prefix)


class _Services:
    """Services that start with some versions, and read the data with some."""

    def __init__(self, versions: Versions, *, starts: set[str], reads: set[str]) -> None:
        self.versions, self.starts, self.reads = versions, starts, reads
        self.running: str | None = None

    def steps(self) -> Steps:
        return Steps(stop=self._stop, check=self._check, start=self._start)

    def _stop(self) -> None:
        self.running = None

    def _check(self, path: Path) -> None:
        assert self.running is None, "nothing writes while the data is read"
        if path.name not in self.reads:
            raise KlammError(f"{path.name} cannot read the data")

    def _start(self) -> None:
        current = self.versions.link(CURRENT)
        assert current is not None
        if current.name not in self.starts:
            raise KlammError(f"{current.name} does not start")
        self.running = current.name


@pytest.mark.parametrize("requirement", ["/nope", "./nope[all]", "nope-1.0-py3-none-any.whl", "~/nope"])
def test_nothing_is_made_for_a_path_where_nothing_is(tmp_path: Path, requirement: str) -> None:
    with pytest.raises(KlammError, match=r"nope.*: no such file or folder"):
        Versions(tmp_path / "prefix").make([requirement], datetime.now(UTC))
    assert not (tmp_path / "prefix").exists()


@pytest.mark.parametrize(
    "requirement", ["klamm==2.1", "klamm[all]", "https://x/k.whl", "k @ file:///k.whl", "."]
)
def test_pip_judges_what_is_no_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, requirement: str
) -> None:
    commands: list[list[str]] = []
    monkeypatch.setattr(service_versions, "run", commands.append)
    with pytest.raises(KlammError, match="there is no klamm in it"):
        Versions(tmp_path).make([requirement], datetime.now(UTC))
    assert commands[-1][-1] == requirement


def test_an_upgrade_and_the_way_back(tmp_path: Path) -> None:
    versions = _versions(tmp_path, "1", "2")
    one, two = (v.path for v in versions.all())
    services = _Services(versions, starts={"1", "2"}, reads={"1", "2"})
    versions.switch(one)
    list(change(versions, two, services.steps()))
    assert services.running == "2"
    assert [v.role for v in versions.all()] == [PREVIOUS, CURRENT]
    list(change(versions, one, services.steps()))
    assert services.running == "1"
    assert versions.link(PREVIOUS) == two


@pytest.mark.parametrize(("starts", "reads"), [({"1"}, {"1", "2"}), ({"1", "2"}, {"1"})])
def test_a_version_that_fails_is_left_again(tmp_path: Path, starts: set[str], reads: set[str]) -> None:
    versions = _versions(tmp_path, "1", "2")
    one, two = (v.path for v in versions.all())
    services = _Services(versions, starts=starts, reads=reads)
    versions.switch(one)
    with pytest.raises(KlammError, match="went back to 1, whose services run"):
        list(change(versions, two, services.steps()))
    assert services.running == "1"
    assert versions.link(CURRENT) == one


@pytest.mark.parametrize("previous", ["1", None])
def test_an_upgrade_that_fails_leaves_the_way_back_as_it_was(tmp_path: Path, previous: str | None) -> None:
    versions = _versions(tmp_path, "1", "2", "3")
    one, two, three = (v.path for v in versions.all())
    if previous is not None:
        versions.switch(one)
    versions.switch(two)
    services = _Services(versions, starts={"1", "2"}, reads={"3"})
    with pytest.raises(KlammError, match="went back to 2"):
        list(change(versions, three, services.steps()))
    assert versions.link(CURRENT) == two
    assert versions.link(PREVIOUS) == (one if previous is not None else None)


def test_a_first_version_that_fails_is_not_left_as_the_one_in_use(tmp_path: Path) -> None:
    versions = _versions(tmp_path, "1")
    (one,) = (v.path for v in versions.all())
    failing = Steps(stop=lambda: None, check=lambda _: None, start=_fail)
    with pytest.raises(KlammError, match="not ready"):
        list(change(versions, one, failing))
    assert versions.link(CURRENT) is None


def _fail() -> None:
    raise KlammError("not ready")


def test_services_run_again_when_one_of_them_does_not_stop(tmp_path: Path) -> None:
    """The others were stopped, and nothing else would start them."""
    versions = _versions(tmp_path, "1", "2")
    one, two = (v.path for v in versions.all())
    versions.switch(one)
    services = _Services(versions, starts={"1"}, reads={"1", "2"})
    with pytest.raises(KlammError, match="not ready; went back to 1, whose services run"):
        list(change(versions, two, replace(services.steps(), stop=_fail)))
    assert (services.running, versions.link(CURRENT)) == ("1", one)


def test_when_nothing_starts_both_reasons_are_said(tmp_path: Path) -> None:
    versions = _versions(tmp_path, "1", "2")
    one, two = (v.path for v in versions.all())
    versions.switch(one)
    services = _Services(versions, starts=set(), reads={"2"})
    with pytest.raises(
        KlammError, match="2 does not start; and the services do not start with 1 either: 1 does not start"
    ):
        list(change(versions, two, services.steps()))


# ---- the data


def _log_dir(folder: Path) -> Path:
    folder.mkdir()
    (folder / "meta.properties").write_text("version=1\ncluster.id=c\nnode.id=1\ndirectory.id=d\n")
    partition = folder / "orders-0"
    partition.mkdir()
    for base in (0, 2):
        records = [Record(offset=base + i, timestamp=1, key=None, value=b"v", headers=[]) for i in range(2)]
        (partition / f"{base:020d}.log").write_bytes(bytes(encode_batch(records, base_offset=base)))
    return partition


def test_sound_data_is_sound(tmp_path: Path) -> None:
    _log_dir(tmp_path / "data")
    done = check([tmp_path / "data"], whole=True)
    assert (done.partitions, done.segments, done.batches, done.problems, done.torn) == (1, 2, 2, [], [])
    assert check([tmp_path / "data"], whole=False).segments == 1


def test_a_torn_end_is_no_problem_and_a_flipped_bit_is_one(tmp_path: Path) -> None:
    partition = _log_dir(tmp_path / "data")
    newest = partition / f"{2:020d}.log"
    newest.write_bytes(newest.read_bytes() + newest.read_bytes()[:30])
    done = check([tmp_path / "data"], whole=True)
    assert (done.problems, len(done.torn)) == ([], 1)

    oldest = partition / f"{0:020d}.log"
    data = bytearray(oldest.read_bytes())
    data[-1] ^= 1
    oldest.write_bytes(data)
    (said,) = check([tmp_path / "data"], whole=True).problems
    assert "orders-0" in said
    assert "position 0 does not have its checksum" in said


def test_a_folder_of_another_version_is_said(tmp_path: Path) -> None:
    _log_dir(tmp_path / "data")
    (tmp_path / "data" / "meta.properties").write_text("version=9\n")
    (said,) = check([tmp_path / "data"], whole=False).problems
    assert "version=9" in said
