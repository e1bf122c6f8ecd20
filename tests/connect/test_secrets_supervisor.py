"""Children get values, everybody else references; nothing that they say shows a secret."""

from __future__ import annotations

import asyncio
import logging
import threading
from unittest.mock import Mock

import pytest
from support.runtime import Watched, connector_spec, install_plugins, task_spec, wait_for

from klamm.connect.child.setup import keep_secret
from klamm.connect.children.supervisor import PluginCallError, Supervisor
from klamm.connect.model import State, TaskId
from klamm.connect.secrets import Secrets
from klamm_base.errors import ConfigError
from klamm_plugins.config_provider import ConfigData, ConfigProvider

SECRET = "hunter2-from-file"
TASK = TaskId("c", 0)


class Vault(ConfigProvider):
    """Values that live for `ttl.ms`; counts what it gave."""

    def configure(self, params):
        self.ttl_ms = int(params["ttl.ms"])
        self.asked = 0

    def get(self, path, keys=None):
        self.asked += 1
        return ConfigData({key: f"{path}-{key}-{self.asked}" for key in keys or ()}, self.ttl_ms)


@pytest.fixture(autouse=True)
def plugins(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", install_plugins(tmp_path / "plugins"))


@pytest.fixture
def reference(tmp_path):
    file = tmp_path / "db.properties"
    file.write_text(f"password={SECRET}\nurl=mysql://ann:{SECRET}@db\n")
    return f"${{file:{file}:password}}"


class Guarded(Watched):
    def __init__(self, **props):
        super().__init__()
        self.secrets = Secrets.from_properties({"config.providers": "file", **props})
        old = self.supervisor
        self.supervisor = Supervisor(
            on_event=self.events.append,
            on_progress=self.progress.__setitem__,
            on_task_configs_changed=self.changed.append,
            read_offsets=self._read_offsets,
            policy=old._around.policy,
            clock=old._clock,
            secrets=self.secrets,
            graceful_s=0.2,
        )


@pytest.mark.usefixtures("processes")
async def test_a_task_gets_the_value_and_its_trace_does_not_show_it(reference):
    config = {"db.password": reference, "where": "start", "behaviour": "connect"}
    async with Guarded() as w:
        await w.supervisor.start_task(task_spec("c", config))
        await w.wait_state(TASK, State.RESTARTING)
        trace = w.last(TASK).trace
    assert "cannot log in with [hidden]" in trace
    assert SECRET not in str(w.events)


@pytest.mark.usefixtures("processes")
async def test_the_error_of_what_is_tried_again_does_not_show_it(reference):
    async with Guarded() as w:
        await w.supervisor.start_task(
            task_spec("c", {"db.password": reference, "where": "poll", "behaviour": "away"})
        )
        await wait_for(
            lambda: TASK in w.progress and "retrying" in w.progress[TASK].details, lambda: str(w.progress)
        )
        assert w.progress[TASK].details["retrying"]["poll"]["error"] == "nobody answers [hidden]"


@pytest.mark.usefixtures("processes")
async def test_what_a_plugin_prints_is_logged_without_it(reference, caplog):
    from klamm_base.redaction import RedactingFilter

    config = {"db.password": reference, "where": "start", "behaviour": "say"}
    async with Guarded() as w:
        caplog.handler.addFilter(guard := RedactingFilter(w.secrets.redactor))
        try:
            with caplog.at_level(logging.INFO):
                await w.supervisor.start_task(task_spec("c", config))
                await w.wait_state(TASK, State.RUNNING)
                await wait_for(lambda: "the password is" in caplog.text, lambda: caplog.text)
        finally:
            caplog.handler.removeFilter(guard)
    assert "the password is [hidden]" in caplog.text
    assert SECRET not in caplog.text


@pytest.mark.usefixtures("processes")
async def test_task_configs_come_back_with_the_references(reference):
    async with Guarded() as w:
        await w.supervisor.start_connector(connector_spec("c", {"db.password": reference, "derived": "x"}))
        await w.wait_state("c", State.RUNNING)
        configs = await w.supervisor.task_configs("c", 2)
    assert [c["db.password"] for c in configs] == [reference, reference]
    assert SECRET not in str(configs)


@pytest.mark.usefixtures("processes")
async def test_validation_uses_values_and_shows_references(reference):
    config = {"connector.class": "support.runtime_plugins.CountingSourceConnector", "topic": reference}
    async with Guarded() as w:
        answer = await w.supervisor.call("validate", {"config": config | {"limit": reference}, "worker": {}})
    values = {row["value"]["name"]: row["value"] for row in answer["values"]}
    assert values["topic"]["value"] == reference
    assert values["limit"]["errors"] == [
        "Invalid value [hidden] for configuration limit: Not a number of type INT"
    ]
    assert SECRET not in str(answer)


@pytest.mark.usefixtures("processes")
async def test_a_value_that_is_not_there_fails_for_good_and_says_where(reference):
    absent = reference.replace(":password}", ":passwort}")
    async with Guarded() as w:
        await w.supervisor.start_task(task_spec("c", {"db.password": absent}))
        await w.wait_state(TASK, State.FAILED)
        assert (
            w.last(TASK).trace
            == f"ConfigError: db.password: {absent}: config provider file has no such value"
        )
        with pytest.raises(PluginCallError, match=r"db\.password"):
            await w.supervisor.call(
                "validate", {"config": {"connector.class": "x", "db.password": absent}, "worker": {}}
            )


@pytest.mark.usefixtures("processes")
@pytest.mark.parametrize("action", ["restart", "none"])
async def test_values_that_expire_restart_what_uses_them(action):
    props = {
        "config.providers": "v",
        "config.providers.v.class": f"{Vault.__module__}.Vault",
        "config.providers.v.param.ttl.ms": "300",
    }
    async with Guarded() as w:
        w.secrets._providers["v"] = vault = Vault()
        vault.configure({"ttl.ms": "300"})
        spec = task_spec("c", {"db.password": "${v:p:k}", "config.action.reload": action})
        await w.supervisor.start_task(spec)
        await w.wait_state(TASK, State.RUNNING)
        first, asked = w.supervisor.pid(TASK), vault.asked
        if action == "none":
            assert not w.supervisor._supervised[TASK]._resolved.reloads
            return
        await wait_for(
            lambda: w.supervisor.pid(TASK) not in {first, None} and w.states(TASK)[-1] is State.RUNNING,
            lambda: str(w.events),
        )
        assert vault.asked > asked
    assert props


@pytest.mark.usefixtures("processes")
async def test_what_starts_again_for_a_value_does_not_when_the_place_in_the_group_is_lost():
    """Between its two processes there is none to kill."""
    async with Guarded() as w:
        w.secrets._providers["v"] = vault = Vault()
        vault.configure({"ttl.ms": "300"})
        await w.supervisor.start_task(task_spec("c", {"db.password": "${v:p:k}"}))
        await w.wait_state(TASK, State.RUNNING)
        asked, go_on = threading.Event(), threading.Event()
        get = vault.get

        def slow(path, keys=None):
            asked.set()
            assert go_on.wait(60)
            return get(path, keys)

        vault.get = slow
        await wait_for(asked.is_set, lambda: str(w.events))
        assert not w.supervisor._supervised
        try:
            await w.supervisor.kill_all()
        finally:
            go_on.set()
        await asyncio.sleep(0.3)  # nothing is started from now on
        assert not w.supervisor._supervised


def test_a_provider_may_need_what_one_before_it_keeps(monkeypatch):
    monkeypatch.setenv("KLAMM_TEST_TTL", "700")
    props = {"config.providers": "env,v", "config.providers.v.class": f"{Vault.__module__}.Vault"}
    secrets = Secrets.from_properties(props | {"config.providers.v.param.ttl.ms": "${env:KLAMM_TEST_TTL}"})
    found = secrets.resolve({"x": "${v:p:k} and ${v:q:k}", "y": "plain"})
    assert found.config == {"x": "p-k-1 and q-k-2", "y": "plain"}
    assert found.ttl_ms == 700


def test_users_names_are_no_secrets_unless_they_are_something_else_too(tmp_path):
    file = tmp_path / "db.properties"
    file.write_text(f"user=debezium\nboth=kafkaesk\npassword={SECRET}\n")
    secrets = Secrets.from_properties({"config.providers": "file"})
    given = {
        "database.user": "user",
        "connection.username": "both",
        "token": "both",
        "db.password": "password",
    }
    resolved = secrets.resolve({key: f"${{file:{file}:{name}}}" for key, name in given.items()})
    assert resolved.config["database.user"] == "debezium"
    assert sorted(resolved.secrets) == sorted([SECRET, "kafkaesk"])
    assert secrets.redact(f"io.debezium.X kafkaesk {SECRET}") == "io.debezium.X [hidden] [hidden]"


def test_an_unknown_provider_leaves_the_text_and_is_told_once(caplog):
    secrets = Secrets()
    for _ in range(2):
        assert secrets.resolve({"k": "${vault:a:b}"}).config == {"k": "${vault:a:b}"}
    assert [r.message for r in caplog.records] == [
        "k: ${vault:...} is not replaced: config.providers has no vault"
    ]


@pytest.mark.parametrize(
    ("props", "said"),
    [
        ({"config.providers": "v"}, r"config.providers.v.class: Class v could not be found; config providers are"),
        (
            {"config.providers": "file", "config.providers.file.param.allowed.paths": "relative"},
            r"config.providers.file.param.allowed.paths: .*no absolute path",
        ),
        (
            {"config.providers": "env", "config.providers.env.param.allowlist.pattern": "("},
            r"config.providers.env.param.allowlist.pattern",
        ),
    ],
)  # fmt: skip
def test_providers_that_cannot_be_made(props, said):
    with pytest.raises(ConfigError, match=said):
        Secrets.from_properties(props)


def test_tasks_that_come_and_go_in_a_process_hide_their_secrets_by_one_filter(monkeypatch):
    """A task that fails each minute would make every line of the others' logs cost more, for ever."""
    handler = logging.NullHandler()
    monkeypatch.setattr(logging.getLogger(), "handlers", [handler])
    for number in range(3):
        keep_secret(Mock(), [f"hidden-{number}!"])
    (guard,) = handler.filters
    assert guard.redactor.redact("hidden-0! and hidden-2!") == "[hidden] and [hidden]"
