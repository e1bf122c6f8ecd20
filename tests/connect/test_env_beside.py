"""Plugins beside the worker: listed by a child once for each state of what is installed."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path

import pytest
from support.runtime import Watched

from klamm.connect.child.calls import list_plugins
from klamm.connect.plugins import beside as plugins_beside
from klamm.connect.plugins.beside import PluginsBeside, installed_state, settled
from klamm_base.errors import KlammError

LONG_AGO = time.time() - 3600
PLUGIN = """
from klamm_plugins.hookspecs import hookimpl
from klamm_plugins.transform import Predicate

class {name}Predicate(Predicate):
    @classmethod
    def version(cls):
        return {version!r}
    def test(self, record):
        return True

@hookimpl
def register_predicates():
    return [{name}Predicate]
"""


def install(
    folder: Path, name: str, version: str = "1", code: str | None = None, at: float = LONG_AGO
) -> Path:
    info = folder / f"acme_{name}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: acme-{name}\nVersion: {version}\n")
    (info / "entry_points.txt").write_text(f"[klamm]\nacme-{name} = acme_{name}\n")
    module = folder / f"acme_{name}.py"
    module.write_text(PLUGIN.format(name=name.title(), version=version) if code is None else code)
    for path in (info / "entry_points.txt", info, module):
        os.utime(path, (at, at))
    return module


class Asked:
    """A child that answers as told, and counts the questions."""

    def __init__(self, **answer) -> None:
        self.params: list[dict] = []
        self.answer = {"plugins": [["a.B", "sink", "1"]], "broken": [], "files": []} | answer

    async def __call__(self, params, timeout_s):
        self.params.append(dict(params))
        return self.answer


@pytest.fixture
def path(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.chdir(tmp_path)
    return tmp_path


async def test_a_child_is_asked_once_until_something_is_installed_changed_or_removed(path):
    source = install(path, "one")
    asked = Asked(files=[str(source)])
    beside = PluginsBeside(asked)
    assert await beside.refresh(5)
    assert not await beside.refresh(5)
    install(path, "two")
    assert await beside.refresh(5)
    for change in (
        lambda: os.utime(source, (LONG_AGO, LONG_AGO + 1)),
        lambda: os.utime(path / "acme_one-1.dist-info/entry_points.txt", (LONG_AGO, LONG_AGO + 1)),
        lambda: (path / "acme_two-1.dist-info").rename(path / "acme_two-2.dist-info"),
        lambda: (path / "acme_one-1.dist-info").rename(path / "gone"),
        source.unlink,
    ):
        change()
        assert await beside.refresh(5)
        assert not await beside.refresh(5)
    assert len(asked.params) == 7


async def test_what_changed_a_moment_ago_is_listed_again(path, monkeypatch):
    """A file may change twice within what the clock of a file system can tell."""
    install(path, "one", at=time.time())
    beside = PluginsBeside(asked := Asked())
    with monkeypatch.context() as patched:
        patched.setattr(plugins_beside, "_UNSETTLED_S", 60.0)  # a moment that also a busy machine keeps to
        for _ in range(3):
            assert await beside.refresh(5)
    assert len(asked.params) == 3
    now = time.time()
    assert settled({"x": (int((now - 60) * 1e9), 1)}, now)
    assert settled({"x": (int((now + 3600) * 1e9), 1)}, now)  # a clock that was wrong
    assert not settled({"x": (int(now * 1e9), 1)}, now)


async def test_those_who_ask_at_once_share_an_answer(path):
    beside = PluginsBeside(asked := Asked())
    assert sorted(await asyncio.gather(*(beside.refresh(5) for _ in range(5)))) == [False] * 4 + [True]
    assert len(asked.params) == 1


async def test_those_who_come_during_a_look_share_the_next_one(path, monkeypatch):
    """A look takes a thread, and the tasks of a hundred connectors start at once."""
    install(path, "one")
    beside = PluginsBeside(asked := Asked())
    await beside.refresh(5)
    looks: list[object] = []

    def look(files=()):
        looks.append(files)
        if len(looks) == 1:  # too early for those who came later
            install(path, "two")
        return installed_state(files)

    monkeypatch.setattr(plugins_beside, "installed_state", look)
    first = asyncio.create_task(beside.refresh(5))
    await asyncio.sleep(0)
    await asyncio.gather(first, *(beside.refresh(5) for _ in range(9)))
    assert len(looks) == 2
    assert len(asked.params) == 2


async def test_a_look_that_failed_is_nobody_elses_answer(path):
    async def none(params, timeout_s):
        raise KlammError("no child")

    beside = PluginsBeside(none)
    answers = await asyncio.gather(*(beside.refresh(5) for _ in range(3)), return_exceptions=True)
    assert [type(answer) for answer in answers] == [KlammError] * 3


async def test_what_is_broken_is_tried_again(path, monkeypatch):
    monkeypatch.setattr(plugins_beside, "BROKEN_S", 60.0)
    beside = PluginsBeside(asked := Asked(broken=[["x", "ValueError: x", "trace"]]))
    await beside.refresh(5)
    await beside.refresh(5)
    assert (len(asked.params), beside.broken[0].error) == (1, "ValueError: x")
    monkeypatch.setattr(beside, "_again", 0.0)
    asked.answer = asked.answer | {"broken": []}
    assert await beside.refresh(5)
    assert beside.broken == []


async def test_without_any_answer_the_error_is_told_and_the_next_one_asks_again(path):
    async def none(params, timeout_s):
        raise KlammError("no child")

    beside = PluginsBeside(none)
    with pytest.raises(KlammError, match="no child"):
        await beside.refresh(5)
    beside._ask = Asked()
    assert await beside.refresh(5)


def test_the_source_files_are_those_of_the_plugins_alone(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    source = install(
        tmp_path, "filed", code=PLUGIN.format(name="Filed", version="1") + "import acme_not_theirs\n"
    )
    (tmp_path / "acme_not_theirs.py").write_text("")
    found = list_plugins([["acme-filed", "acme_filed"]])
    assert found["files"] == [str(source)]
    assert [row[0] for row in found["plugins"]] == ["acme_filed.FiledPredicate"]


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (
            PLUGIN.format(name="Odd", version=None),
            "ConnectError: version() of acme_odd.OddPredicate must be a text",
        ),
        ("import asyncio\nraise asyncio.CancelledError('x')", "CancelledError: x"),
    ],
)
def test_what_would_trip_the_worker_is_broken_in_the_child(code, error, tmp_path, monkeypatch):
    install(tmp_path, "odd", code=code)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "acme_odd", raising=False)
    found = list_plugins([["acme-odd", "acme_odd"]])
    assert found["plugins"] == []
    assert found["broken"][0][1].startswith(error)


@pytest.mark.usefixtures("processes")
async def test_a_package_that_ends_its_process_is_broken_and_hides_nobody(tmp_path, monkeypatch):
    install(tmp_path, "deadly", code="import os; os._exit(9)")
    install(tmp_path, "fine")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.syspath_prepend(tmp_path)
    async with Watched() as w:
        beside = PluginsBeside(lambda params, s: w.supervisor.call("list_plugins", dict(params), timeout_s=s))
        await beside.refresh(60)
        names = {p.plugin_class for p in beside.plugins}
        assert {"acme_fine.FinePredicate", "org.apache.kafka.connect.json.JsonConverter"} <= names
        (broken,) = [b for b in beside.broken if b.name == "acme-deadly"]
        assert broken.error == (
            "It cannot be imported: The plugin did not answer list_plugins: the process exited with code 9"
        )
