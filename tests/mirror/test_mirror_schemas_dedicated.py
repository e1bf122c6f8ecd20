"""Schemas in a mirror of a file: the plan, the start, the status, and passwords that appear nowhere."""

from __future__ import annotations

import json

import pytest
from support.broker import new_name, new_topic, wait_until
from support.klamm import Server, klamm
from support.mirror import mirror_file, status
from support.schema_registry import SchemaRegistry

from klamm_base.configdef import ConfigDef
from klamm_plugins.converters.registry import RegistryClient, client_config
from klamm_plugins.converters.registry_admin import RegistryAdmin

from .test_mirror_schemas import record

pytestmark = pytest.mark.usefixtures("processes")
USER = "ann:pass-4711"


def admin(registry: SchemaRegistry, **more: str) -> RegistryAdmin:
    parsed = client_config(ConfigDef()).parse({"schema.registry.url": registry.url, **more})
    return RegistryAdmin(RegistryClient.of(parsed))


def test_the_plan_names_what_the_start_copies_and_the_status_what_conflicts(source, target, tmp_path):
    a, b, topic = new_name("a"), new_name("b"), new_topic(source)
    user = {"basic.auth.credentials.source": "USER_INFO", "basic.auth.user.info": USER}
    with SchemaRegistry(user=USER, first_id=101) as at_a, SchemaRegistry() as at_b:
        ours, theirs = admin(at_a, **user), admin(at_b)
        ours.register(f"{topic}-value", record("Order", "a"), {})
        ours.register(f"{topic}-key", record("Key", "k"), {})
        theirs.register(f"{a}.{topic}-key", record("Mine", "z"), {})
        settings = {
            f"{a}->{b}.enabled": "true", f"{a}->{b}.sync.schemas.enabled": "true", "topics": topic,
            f"{a}.schema.registry.url": at_a.url, f"{b}.schema.registry.url": at_b.url,
            **{f"{a}.{key}": value for key, value in user.items()},
        }  # fmt: skip
        path = mirror_file(tmp_path / "mm2.properties", {a: source.bootstrap, b: target.bootstrap}, settings)
        done = klamm("mirror", "plan", str(path), "--flow", f"{a}->{b}", "-o", "json")
        assert done.returncode == 0, done.stderr
        assert "1 conflict" in done.stderr
        rows = [r for r in json.loads(done.stdout) if r["kind"] in {"schema", "conflict"}]
        schema = next(r for r in rows if r["kind"] == "schema")
        assert (schema["name"], schema["source"]) == (f"{a}.{topic}-value", f"{topic}-value")
        assert (schema["setting"], schema["new"]) == ("version 1", "id 101")
        conflict = next(r for r in rows if r["kind"] == "conflict")
        assert conflict["name"] == f"{topic}-key"
        assert "id 1, the source's has id 102" in conflict["new"]
        assert len(at_b.subjects) == 1
        with Server("mirror", "start", str(path)) as server:
            wait_until(lambda: (flow_of(path, a, b)["upkeep"] or {}).get("schemas"), "the schemas")
            wait_until(lambda: flow_of(path, a, b)["upkeep"]["schemas"]["conflicts"], "the conflict")
            flow = flow_of(path, a, b)
            assert flow["state"] == "DEGRADED"
            assert flow["why"].startswith(f"schemas: {topic}-key: {a}.{topic}-key version 1 is at")
            assert flow["upkeep"]["schemas"]["figures"] == {"subjects": 2, "registered": 1, "conflicts": 1}
            shown = klamm("mirror", "status", str(path)).stdout
            assert "schemas: 2 subjects, 1 registered, 1 conflicts, as of" in " ".join(shown.split())
            assert server.stop() == 0
            assert "pass-4711" not in "".join(server.errors) + done.stdout + done.stderr + shown
    assert at_b.subjects[f"{a}.{topic}-value"] == {1: 101}


def flow_of(path, a: str, b: str):
    return status(path)[f"{a}->{b}"]
