"""A worker's plugin packages without any broker: what is published, taken back, removed, and built again."""

from __future__ import annotations

import asyncio
import base64
import shutil
from typing import Any

import pytest
from support.wheels import Unzip, make_wheel

from klamm.connect.errors import Conflict, NotFound
from klamm.connect.model import PluginInfo
from klamm.connect.plugins.admin import PluginAdmin
from klamm.connect.plugins.catalog import PluginRegistry, PluginVersionNotFound
from klamm.connect.plugins.waiting import WaitingConnectors
from klamm.connect.service.rollout import spread, told
from klamm.environments.store import Store

CODE = """
from klamm_plugins.hookspecs import hookimpl
from klamm_plugins.transform import Predicate

class {name}Predicate(Predicate):
    @classmethod
    def version(cls):
        return "{version}"
    def test(self, record):
        return True

@hookimpl
def register_predicates():
    return [{name}Predicate]
"""


class Group:
    """The config topic of a group, and workers that follow it."""

    def __init__(self) -> None:
        self.workers: list[PluginAdmin] = []
        self.records: list[tuple[str, bytes | None]] = []
        self.fails: Exception | None = None
        self.used: dict[str, str] = {}

    def worker(self, directory, name="g") -> PluginAdmin:
        async def nothing(params, timeout_s):
            return {"plugins": [], "broken": [], "files": []}

        admin = PluginAdmin(
            Store(directory, tool=Unzip()), group=name, list_beside=nothing, configs=lambda: [("c", self.used)],
            worker={}, publish=self.publish,
        )  # fmt: skip
        self.workers.append(admin)
        return admin

    async def publish(self, records) -> None:
        if self.fails is not None:
            raise self.fails
        self.records += records
        for admin in self.workers:
            for record in records:
                admin.apply(*record)


def upload(folder, name: str, version: str = "1", extra: str = "") -> dict[str, str]:
    code = CODE.format(name=name.title(), version=version) + extra
    wheel = make_wheel(folder, name, version, {f"{name}.py": code}, entry_points={name: name})
    return {"file": wheel.name, "wheel": base64.b64encode(wheel.read_bytes()).decode()}


async def until(condition) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.02)


@pytest.mark.usefixtures("processes")
async def test_a_package_is_installed_used_and_removed(tmp_path):
    group = Group()
    admin = group.worker(tmp_path / "p")
    await admin.start()
    try:
        await used_and_removed(tmp_path, group, admin)
    finally:
        await admin.stop()


async def used_and_removed(tmp_path, group, admin):
    shown = await admin.install(upload(tmp_path, "acme"))
    assert (shown.state, [p.plugin_class for p in shown.plugins]) == ("ready", ["acme.AcmePredicate"])
    assert [key.rpartition("-")[0].rpartition("-")[0] for key, _ in group.records] == [
        "klamm-plugins-wheel", "klamm-plugins-package",
    ]  # fmt: skip
    group.used = {"connector.class": "x", "predicates": "p", "predicates.p.type": "AcmePredicate"}
    environment = await admin.environment_of(group.used, {})
    assert environment.entry_points == (("acme", "acme"),)
    # An environment that somebody has deleted is built again.
    shutil.rmtree(tmp_path / "p/environments")
    assert await admin.environment_of(group.used, {}) == environment
    assert (tmp_path / "p/environments").is_dir()
    with pytest.raises(Conflict, match="acme==1 is used by c"):
        await admin.remove("acme")
    group.used = {}
    await admin.remove("acme")
    assert await admin.installed() == []
    with pytest.raises(NotFound):
        await admin.remove("acme")
    assert [value for _, value in group.records[2:]] == [None, None]


@pytest.mark.usefixtures("processes")
async def test_only_connectors_that_changed_are_looked_at_for_their_packages(tmp_path, monkeypatch):
    """Each of hundreds of new connectors is a change; they name the same packages as before."""
    group, looked = Group(), []
    admin = group.worker(tmp_path / "p")
    configs = {"a": {"connector.class": "A"}, "b": {"connector.class": "B"}}
    admin._configs = configs.items
    of = admin._packages_of
    monkeypatch.setattr(
        admin, "_packages_of", lambda config: looked.append(config["connector.class"]) or of(config)
    )
    try:
        await admin.install(upload(tmp_path, "acme"))
        admin._note_users()
        configs["b"] = {"connector.class": "X", "predicates": "p", "predicates.p.type": "AcmePredicate"}
        for _ in range(3):
            admin._note_users()
        assert looked == ["A", "B", "X"]
        (record, _) = admin._installed["acme==1"]
        assert admin._store.users(record) == ["b"]
        await admin.install(upload(tmp_path, "more"))
        admin._note_users()
        assert looked[3:] == ["A", "X"], "other plugins may have the names"
    finally:
        await admin.stop()


@pytest.mark.usefixtures("processes")
async def test_what_the_group_was_not_told_is_not_there_and_what_it_has_comes_back(tmp_path):
    group = Group()
    admin = group.worker(tmp_path / "p")
    first = await admin.install(upload(tmp_path, "acme"))
    await admin.start()
    try:
        await until(admin._group.caught_up.is_set)
        group.fails = TimeoutError("the topic is away")
        with pytest.raises(TimeoutError):
            await admin.install(upload(tmp_path, "acme", extra="x = 1\n"))

        async def there():
            return [(p.name, p.state, p.environment) for p in await admin.installed()]

        async with asyncio.timeout(60):
            while await there() != [("acme", "ready", first.environment)]:
                await asyncio.sleep(0.05)
    finally:
        await admin.stop()


@pytest.mark.usefixtures("processes")
async def test_workers_with_one_directory_install_and_remove_at_once(tmp_path):
    group = Group()
    one, two = group.worker(tmp_path / "p"), group.worker(tmp_path / "p")
    bodies = [upload(tmp_path, name) for name in ("acme", "other", "third")]
    await one.install(bodies[2])
    await asyncio.gather(one.start(), two.start())
    try:
        await asyncio.gather(one.install(bodies[0]), two.install(bodies[1]), one.remove("third"))
        await until(lambda: one._group.caught_up.is_set() and two._group.caught_up.is_set())
        for admin in (one, two):
            assert [(p.name, p.state) for p in await admin.installed()] == [
                ("acme", "ready"),
                ("other", "ready"),
            ]
            assert len(admin.registry.of_type("predicate")) == 2
    finally:
        await asyncio.gather(one.stop(), two.stop())


@pytest.mark.usefixtures("processes")
async def test_a_package_that_somebody_removes_on_the_machine_comes_back_to_its_group(tmp_path):
    group = Group()
    admin = group.worker(tmp_path / "p")
    await admin.install(upload(tmp_path, "acme"))
    await admin.start()
    try:
        await until(admin._group.caught_up.is_set)
        Store(tmp_path / "p").remove("acme")
        await admin.look()
        async with asyncio.timeout(60):
            while [p.state for p in await admin.installed()] != ["ready"]:
                await asyncio.sleep(0.05)
    finally:
        await admin.stop()


@pytest.mark.usefixtures("processes")
async def test_a_cluster_whose_group_is_called_the_same_takes_nothing_away(tmp_path):
    here, there = Group(), Group()
    mine, strange = here.worker(tmp_path / "p"), there.worker(tmp_path / "p")
    mine.belongs_to("one", "connect-configs")
    strange.belongs_to("two", "connect-configs")
    await mine.install(upload(tmp_path, "acme"))
    await asyncio.gather(mine.start(), strange.start())
    try:
        with pytest.raises(Conflict, match="was installed for the group g of one/connect-configs"):
            await strange.remove("acme")
        strange.apply("klamm-plugins-package-acme-1", None)  # what it had once
        await until(strange._group.caught_up.is_set)
        assert [p.state for p in await mine.installed()] == ["ready"]
        await mine.remove("acme")
        assert Store(tmp_path / "p").records() == []
    finally:
        await asyncio.gather(mine.stop(), strange.stop())


@pytest.mark.usefixtures("processes")
async def test_two_packages_whose_classes_say_one_version_are_told_and_the_newest_package_counts(tmp_path):
    group = Group()
    admin = group.worker(tmp_path / "p")
    first = await admin.install(upload(tmp_path, "acme", "1.9"))
    assert first.warnings == ()
    body = upload(tmp_path, "acme", "1.10", extra="AcmePredicate.version = classmethod(lambda cls: '1.9')\n")
    second = await admin.install(body)
    (warning,) = second.warnings
    assert warning.startswith(
        "acme==1.10 and acme==1.9 have plugins of the same class and version: acme.AcmePredicate 1.9. Their plugin.version "
        "cannot tell them apart"
    )
    assert [(p.version, p.package) for p in admin.registry.of_type("predicate")] == [
        ("1.9", "acme==1.9"), ("1.9", "acme==1.10"),
    ]  # fmt: skip
    assert admin.registry.plugin("AcmePredicate", "predicate").package == "acme==1.10"


@pytest.mark.usefixtures("processes")
@pytest.mark.parametrize("by_hand", [False, True])
async def test_a_connector_that_was_started_before_its_package_starts_again_with_it(
    tmp_path, monkeypatch, by_hand
):
    monkeypatch.setattr("klamm.connect.plugins.admin.LOOK_S", 0.05)
    group = Group()
    admin = group.worker(tmp_path / "p")
    found: list[str] = []
    admin._on_found = found.extend
    await admin.start()
    try:
        await admin.install(upload(tmp_path, "acme", "1"))
        group.used = {
            "name": "c", "connector.class": "FileStreamSource", "predicates": "p", "predicates.p.type": "AcmePredicate",
            "predicates.p.plugin.version": "2",
        }  # fmt: skip
        with pytest.raises(PluginVersionNotFound):
            await admin.environment_of(group.used, {})
        await admin.look()
        assert found == []
        body = upload(tmp_path, "acme", "2")
        if by_hand:
            Store(tmp_path / "p", tool=Unzip()).install(str(tmp_path / body["file"]))
        else:
            await admin.install(body)
        await until(lambda: "c" in found)
    finally:
        await admin.stop()


def test_what_waits_is_met_until_it_was_placed_and_forgotten_with_its_connector():
    row = PluginInfo("a.Src", "source", "1", ("Src",), ("a", "a"), "a==1")
    waiting, config = WaitingConnectors(), {"name": "c", "connector.class": "Src"}
    waiting.missing(PluginRegistry(), config, {})
    assert waiting.found(PluginRegistry(), ["c"]) == []
    assert [waiting.found(PluginRegistry([row]), ["c"]) for _ in "ab"] == [["c"], ["c"]]
    waiting.satisfied(config)
    assert not waiting
    waiting.missing(PluginRegistry(), config, {})
    assert waiting.found(PluginRegistry([row]), ["other"]) == []
    assert not waiting


def test_a_class_is_missed_only_as_long_as_a_connector_names_it(tmp_path):
    group = Group()
    admin = group.worker(tmp_path / "p")
    admin._misses = {"Gone"}.__contains__
    missed = []
    for connector_class in ("Gone", "FileStreamSource"):  # the connector gets another class, or is deleted
        group.used = {"name": "c", "connector.class": connector_class}
        missed.append(admin._misses_any())
    assert missed == [True, False]


HERE = "http://here"


class Workers:
    """The answers of two other workers, round by round."""

    def __init__(self, *rounds: dict[str, Any] | None) -> None:
        self.rounds, self.asked = list(rounds), 0

    async def ask_others(self, path: str) -> dict[str, Any] | None:
        assert path == "/internal/plugins"
        self.asked += 1
        return self.rounds.pop(0) if len(self.rounds) > 1 else self.rounds[0]


@pytest.mark.usefixtures("processes")
async def test_an_installation_waits_until_every_worker_has_it(tmp_path, monkeypatch):
    monkeypatch.setattr("klamm.connect.service.rollout.ASK_S", 0.001)
    group = Group()
    one, two = group.worker(tmp_path / "one"), group.worker(tmp_path / "two")
    done = await one.install(upload(tmp_path, "acme"))
    before = told(await two.installed())
    sharing = group.worker(tmp_path / "one")
    assert told(await sharing.installed())["acme==1"]["state"] == "ready"
    assert sharing.registry.plugin("AcmePredicate", "predicate") is not None
    await two.start()
    try:
        await until(two._group.caught_up.is_set)
        after = told(await two.installed())
    finally:
        await two.stop()
    assert [each["acme==1"]["state"] for each in (before, after)] == ["building", "ready"]
    other_lock = {"acme==1": after["acme==1"] | {"lock": "another"}}
    rounds = [{"b": (200, each), "c": (404, None)} for each in ({}, other_lock, before, after)]
    workers = Workers({"b": (0, None)}, *rounds)
    assert [tuple(each) for each in await spread(done, HERE, workers.ask_others)] == [
        (HERE, "ready", None), ("b", "ready", None), ("c", "unknown", "it answers 404"),
    ]  # fmt: skip
    assert workers.asked == 5
    lost = await spread(done, HERE, Workers(None).ask_others, silent_s=0.01)
    assert lost[1:] == [("the others of the group", "unknown", "it does not answer")]
    slow = await spread(
        done, HERE, Workers({"b": (200, {}), "c": (0, None)}).ask_others, wait_s=0.05, silent_s=0.01
    )
    assert [each.state for each in slow] == ["ready", "building", "unknown"]
    failed = {"acme==1": after["acme==1"] | {"state": "failed", "error": "no index"}}
    assert (await spread(done, HERE, Workers({"b": (200, failed)}).ask_others))[1] == (
        "b",
        "failed",
        "no index",
    )


@pytest.mark.usefixtures("processes")
async def test_a_package_in_use_is_removed_by_force(tmp_path):
    group = Group()
    admin = group.worker(tmp_path / "p")
    await admin.install(upload(tmp_path, "acme"))
    group.used = {"connector.class": "x", "predicates": "p", "predicates.p.type": "AcmePredicate"}
    await admin.look()
    with pytest.raises(Conflict, match="acme==1 is used by c"):
        await admin.remove("acme")
    assert (await admin.remove("acme", force=True)).name == "acme"
    assert await admin.installed() == []
