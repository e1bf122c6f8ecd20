"""Several registries on one topic: one writes, the others forward; who stood still writes nothing any more."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
from support.broker import new_name, new_topic, wait_until
from support.registry_process import RegistryProcess

from klamm.testing import EmbeddedBroker
from klamm_base.configdef import ConfigDef
from klamm_plugins.converters.registry import RegisteredSchema, RegistryClient, client_config
from klamm_plugins.converters.registry_admin import RegistryAdmin


def pair(broker: EmbeddedBroker, tmp_path: Path, **settings: str) -> tuple[RegistryProcess, RegistryProcess]:
    topic = new_name("_schemas")
    more = {"kafkastore.topic": topic, "schema.registry.group.id": topic, **settings}
    return (
        RegistryProcess(broker.bootstrap, tmp_path / "1", **more),
        RegistryProcess(broker.bootstrap, tmp_path / "2", **more),
    )


def leads(registry: RegistryProcess) -> bool:
    return bool(registry.ask("GET", "/health")[1]["leads"])


def test_a_leader_that_stood_still_is_fenced(broker: EmbeddedBroker, tmp_path: Path) -> None:
    first, second = pair(broker, tmp_path)
    with first, second:
        leader, other = (first, second) if leads(first) else (second, first)
        assert leader.ask("POST", "/subjects/a/versions", {"schema": '"int"'})[1]["id"] == 1
        assert leader.process is not None
        os.kill(leader.process.pid, signal.SIGSTOP)
        try:
            wait_until(lambda: leads(other), "the other one leads")
            assert other.ask("POST", "/subjects/b/versions", {"schema": '"long"'})[1]["id"] == 2
        finally:
            os.kill(leader.process.pid, signal.SIGCONT)
        # At first it may believe that it leads: then its write fails, and it is told so.
        status, answer = leader.ask("POST", "/subjects/c/versions", {"schema": '"double"'})
        assert status in {200, 500}, answer
        wait_until(lambda: not leads(leader), "the former one follows")
        status, answer = leader.ask("POST", "/subjects/c/versions", {"schema": '"double"'})
        assert (status, answer["id"]) == (200, 3)
        versions = [each.ask("GET", "/schemas")[1] for each in (leader, other)]
        assert versions[0] == versions[1]
        assert [(v["subject"], v["id"]) for v in versions[0]] == [("a", 1), ("b", 2), ("c", 3)]


def test_a_write_waits_for_a_leader_that_stands_still_so_long_only(
    broker: EmbeddedBroker, tmp_path: Path
) -> None:
    first, second = pair(broker, tmp_path, **{"leader.read.timeout.ms": "1000"})
    with first, second:
        leader, other = (first, second) if leads(first) else (second, first)
        assert other.ask("POST", "/subjects/a/versions", {"schema": '"int"'})[1]["id"] == 1
        assert leader.process is not None
        os.kill(leader.process.pid, signal.SIGSTOP)
        try:
            began = time.monotonic()
            status, answer = other.ask("POST", "/subjects/b/versions", {"schema": '"long"'})
            assert (status, answer["error_code"]) == (500, 50003)
            assert "did not answer within 1000 ms (leader.read.timeout.ms)" in answer["message"]
            assert time.monotonic() - began < 30
        finally:
            os.kill(leader.process.pid, signal.SIGCONT)


def test_a_write_waits_until_a_leader_that_is_gone_is_replaced(
    broker: EmbeddedBroker, tmp_path: Path
) -> None:
    first, second = pair(broker, tmp_path)
    with first, second:
        leader, other = (first, second) if leads(first) else (second, first)
        assert other.ask("POST", "/subjects/a/versions", {"schema": '"int"'})[1]["id"] == 1
        leader.end(kill=True)
        status, answer = other.ask("POST", "/subjects/b/versions", {"schema": '"long"'})
        assert (status, answer.get("id")) == (200, 2), answer


def test_what_the_mirror_does_with_registries(broker: EmbeddedBroker, tmp_path: Path) -> None:
    registry, _ = pair(broker, tmp_path)
    with registry:
        settings = client_config(ConfigDef()).parse({"schema.registry.url": registry.url})
        admin = RegistryAdmin(RegistryClient.of(settings))
        schema = RegisteredSchema(id=41, kind="AVRO", text='"int"', references=())
        assert (admin.level(), admin.level("s"), admin.mode_in_force("s")) == ("BACKWARD", None, "READWRITE")
        admin.set_mode("s", "IMPORT")
        assert admin.import_version("s", 7, schema, {}) == 41
        admin.set_mode("s", None)
        assert admin.versions("s") == [7]
        assert admin.places_of(41) == [("s", 7)]
        found = admin.find("s", schema, {})
        assert found is not None
        assert found.version == 7
        assert found.guid is not None
        assert admin.ids_of_guid(found.guid) == [41]
        admin.set_level("s", "FULL")
        assert admin.level("s") == "FULL"
        admin.set_level("s", None)
        admin.delete_version("s", 7)
        assert admin.versions("s") == []
        assert admin.version("s", 7, deleted=True) is not None
        assert admin.by_id(41) is not None
        assert admin.by_id(42) is None


@pytest.mark.parametrize(
    ("partitions", "policy", "said"), [(1, "delete", "schemas get lost"), (2, "compact", "has 2 partitions")]
)
def test_a_topic_that_is_none_of_a_registry_is_refused(
    broker: EmbeddedBroker, tmp_path: Path, partitions: int, policy: str, said: str
) -> None:
    topic = new_topic(broker, partitions, {"cleanup.policy": policy})
    registry = RegistryProcess(broker.bootstrap, tmp_path, **{"kafkastore.topic": topic})
    with pytest.raises(AssertionError, match=said):
        registry.start()
    assert registry.process is not None
    assert registry.process.wait(30) == 2
    assert registry.process.stdout is not None
    registry.process.stdout.close()
