"""A fork server per environment: started when needed, ended when idle, replaced when it dies."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path

import pytest
from support.runtime import SOURCE, STRING, Watched, alive, install_plugins, task_spec, wait_for

from klamm.connect.children.fork_servers import ForkServers
from klamm.connect.children.launcher import LaunchError
from klamm.connect.model import State, TaskId
from klamm.connect.plugins.requirements import ChildEnvironment
from klamm_base.errors import ConfigError, KlammError

pytestmark = pytest.mark.usefixtures("processes")

PROBE = """
from klamm_plugins.hookspecs import hookimpl
from klamm_plugins.connector import SourceConnector, SourceTask
import probe_lib

class ProbeConnector(SourceConnector):
    @classmethod
    def version(cls):
        return probe_lib.VERSION
    @classmethod
    def task_class(cls):
        return ProbeTask
    def start(self, props):
        pass
    def task_configs(self, n):
        return [{}]

class ProbeTask(SourceTask):
    def start(self, props):
        pass
    def poll(self):
        self.context.stopping.wait(0.1)
    def stop(self):
        pass

@hookimpl
def register_connectors():
    return [ProbeConnector]
"""


def make_site(directory: Path, version: str) -> str:
    """Makes an environment's site folder, by hand."""
    site = directory / version / "site"
    info = site / "probe-1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: probe\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[klamm]\nprobe = probe\n")
    (site / "probe.py").write_text(PROBE)
    (site / "probe_lib.py").write_text(f"VERSION = {version!r}\n")
    return str(site)


@pytest.fixture(autouse=True)
def plugin_path(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", install_plugins(tmp_path / "runtime"))


async def gone(servers: ForkServers, site: str) -> None:
    await wait_for(lambda: site not in servers.sites, lambda: str(servers.sites), 60)


async def test_a_server_starts_when_needed_and_ends_when_idle(tmp_path):
    one, two = make_site(tmp_path, "1"), make_site(tmp_path, "2")
    servers = ForkServers(idle_s=0.4)
    await servers.start()
    try:
        assert servers.sites == {}
        child = await servers.spawn(one, "a", lambda _: None)
        other = await servers.spawn(two, "b", lambda _: None)
        pids = dict(servers.sites)
        assert len({servers.pid, *pids.values()}) == 3
        other.kill()
        await other.exited
        await gone(servers, two)
        await wait_for(lambda: not alive(pids[two]), lambda: "it is still there")
        assert alive(pids[one])  # its child lives
        child.kill()
        await gone(servers, one)
        again = await servers.spawn(two, "c", lambda _: None)
        again.kill()
        with pytest.raises(LaunchError, match="was removed; restart the connector"):
            await servers.spawn(str(tmp_path / "3"), "d", lambda _: None)
    finally:
        await servers.stop()
    with pytest.raises(LaunchError, match="stopping"):
        await servers.spawn(one, "d", lambda _: None)


async def test_a_child_is_asked_of_the_next_server_where_one_has_just_ended():
    servers = ForkServers()
    try:
        await servers.spawn(None, "a", lambda _: None)
        pid = servers.pid
        os.kill(pid, signal.SIGKILL)
        while alive(pid):
            time.sleep(0.01)  # the loop has not seen its end
        child = await servers.spawn(None, "b", lambda _: None)
        assert child.pid is not None
        assert servers.pid != pid
    finally:
        await servers.stop()


async def test_the_first_server_imports_what_its_children_need_before_it_forks(tmp_path, monkeypatch):
    (tmp_path / "needed_by_children.py").write_text(
        "import os, pathlib\npathlib.Path(__file__).with_suffix('.pid').write_text(str(os.getpid()))\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    servers = ForkServers(preload=["needed_by_children"])
    await servers.start()
    try:
        assert (tmp_path / "needed_by_children.pid").read_text() == str(servers.pid)
    finally:
        await servers.stop()


class Placed(Watched):
    """Connectors whose class is `probe.ProbeConnector` run in the site that their config names."""

    def __init__(self) -> None:
        super().__init__()
        self.supervisor._environment_of = self._environment_of

    async def _environment_of(self, config, worker, *, strict=True) -> ChildEnvironment:
        match config.get("site"):
            case "bad":
                raise ConfigError("these packages do not go together")
            case "away":
                raise KlammError("the index does not answer")
            case site:
                return ChildEnvironment(site=site, entry_points=() if site is None else (("probe", "probe"),))


def spec(name: str, **config: str):
    return task_spec(name, {"connector.class": "probe.ProbeConnector", "key.converter": STRING, **config})


async def test_tasks_of_two_environments_and_none_run_at_once_and_survive_their_server(tmp_path):
    sites = {v: make_site(tmp_path, v) for v in ("1", "2")}
    async with Placed() as w:
        await w.supervisor.start_task(task_spec("none", {"connector.class": SOURCE, "behaviour": "idle"}))
        for version, site in sites.items():
            await w.supervisor.start_task(spec(f"p{version}", site=site))
        for name in ("none", "p1", "p2"):
            await w.wait_state(TaskId(name, 0), State.RUNNING)
        assert [w.last(TaskId(f"p{v}", 0)).version for v in "12"] == ["1", "2"]
        os.kill(w.supervisor._servers.sites[sites["1"]], signal.SIGKILL)
        await w.wait_states(TaskId("p1", 0), State.RUNNING, State.RESTARTING, State.RUNNING)
        assert w.last(TaskId("p1", 0)).version == "1"
        for name in ("none", "p2"):
            assert w.states(TaskId(name, 0)) == [State.RUNNING]


@pytest.mark.parametrize("site", ["bad", "away"])
async def test_a_task_without_an_environment_is_failed_with_the_reason(site):
    async with Placed() as w:
        await w.supervisor.start_task(spec("x", site=site))
        await w.wait_states(TaskId("x", 0), State.FAILED)
        said = "these packages do not go together" if site == "bad" else "the index does not answer"
        assert said in w.last(TaskId("x", 0)).trace
        await asyncio.sleep(0)
        assert w.supervisor.pid(TaskId("x", 0)) is None
