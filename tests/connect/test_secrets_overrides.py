"""Override policies by Kafka's rules and sentences; overrides that cannot be used."""

from __future__ import annotations

import re

import pytest

from klamm.connect.child import clients
from klamm.connect.model import TaskId, TaskSpec
from klamm.connect.settings import override_policy
from klamm.connect.settings.override_policy import OverridePolicy, override_rows, warn_of_worker
from klamm_base.clientconfig import LOADS_CODE
from klamm_base.errors import ConfigError

POLICY = "connector.client.config.override.policy"
ALLOWLIST = "connector.client.config.override.allowlist"
JAVA = "org.apache.kafka.connect.connector.policy.{}ConnectorClientConfigOverridePolicy"
WORKER = {"bootstrap.servers": "127.0.0.1:1"}


@pytest.mark.parametrize("long", [False, True])
@pytest.mark.parametrize(
    ("policy", "allowed", "refused"),
    [
        ("All", ["acks", "sasl.jaas.config"], []),
        ("None", [], ["acks", "sasl.jaas.config"]),
        (
            "Principal",
            ["sasl.jaas.config", "sasl.mechanism", "security.protocol"],
            ["acks", "ssl.key.password"],
        ),
        ("Allowlist", ["linger.ms", "acks"], ["sasl.jaas.config"]),
    ],
)
def test_policies(policy, allowed, refused, long):
    given = JAVA.format(policy) if long else policy
    found = OverridePolicy.of({POLICY: given, ALLOWLIST: "linger.ms , acks,"})
    assert [found.objection(name) for name in allowed] == [None] * len(allowed)
    for name in refused:
        assert found.objection(name) == (
            f"The '{policy}' policy does not allow '{name}' to be overridden in the connector configuration."
        )


def test_everything_may_be_overridden_by_default_and_an_empty_allowlist_allows_nothing():
    assert OverridePolicy.of({}).objection("acks") is None
    assert OverridePolicy.of({POLICY: "Allowlist"}).objection("acks") is not None


@pytest.mark.parametrize("name", sorted(LOADS_CODE))
@pytest.mark.parametrize("policy", [{}, {POLICY: "Allowlist", ALLOWLIST: ",".join(LOADS_CODE)}])
def test_native_code_is_never_loaded_for_an_override(name, policy, monkeypatch):
    asked = []
    monkeypatch.setattr(override_policy, "refusal", asked.append)
    key = f"admin.override.{name}"
    [row] = override_rows({key: "/nowhere/evil.so"}, WORKER | policy)
    said = (
        f"'{name}' must not be overridden in the connector configuration: it loads native code, "
        "which only the worker's own properties may do."
    )
    assert row["value"]["errors"] == [said]
    assert asked == []
    with pytest.raises(ConfigError, match=re.escape(f"{key}: it loads native code")):
        clients.admin_config(spec({key: "/nowhere/evil.so"}), "a")
    assert clients.admin_config(spec({}, **{f"admin.{name}": "own"}), "a")[name] == "own"


def spec(connector, **worker):
    return TaskSpec(
        id=TaskId("c", 0), kind="source", connector_config=connector, task_config={}, worker=WORKER | worker
    )


def test_a_policy_that_there_is_not():
    with pytest.raises(ConfigError, match="use All, None, Principal or Allowlist"):
        OverridePolicy.of({POLICY: "com.example.OwnPolicy"})


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("producer.override.linger.ms", "x", "Invalid value x for configuration linger.ms: "),
        (
            "producer.override.buffer.memory",
            "x",
            "Invalid value x for configuration buffer.memory: Not a number",
        ),
        (
            "consumer.override.auto.offset.reset",
            "middle",
            "Invalid value middle for configuration auto.offset.reset",
        ),
        ("consumer.override.auto.offset.reset", "by_duration:P1D", "use earliest, latest or none"),
        ("admin.override.security.protocol", "TLS", "security.protocol=TLS: use one of"),
        ("admin.override.security.protocol", "SASL_SSL", None),
        ("consumer.override.fetch.max.bytes", str(2**31 - 1), None),
        ("consumer.override.nobody.knows.this", "x", None),
        ("producer.override.acks", "${env:ACKS}", None),
    ],
)
def test_values_that_cannot_be_used(name, value, said):
    (row,) = override_rows({name: value, "topic": "t"}, WORKER)
    assert row["value"]["name"] == name
    assert row["value"]["value"] == value
    if said is None:
        assert row["value"]["errors"] == []
    else:
        assert said in row["value"]["errors"][0]


def test_secrets_among_overrides_are_not_shown():
    rows = override_rows({"producer.override.sasl.jaas.config": 'm.X required password="hunter2!";'}, WORKER)
    assert "hunter2!" not in str(rows)


def test_a_workers_own_settings_are_checked_at_its_start():
    with pytest.raises(ConfigError, match=r"buffer\.memory"):
        warn_of_worker({**WORKER, "producer.buffer.memory": "much"})
