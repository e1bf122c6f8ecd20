"""Kafka's replication policies and ours give the same answers for every kind of name."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import kafka_oracle

from klamm_mirror.settings.policy import POLICIES

ORACLE = Path(__file__).parents[1] / "support" / "PolicyOracle.java"
TOPICS = [
    "t", "A.t", "A.B.t", "A_t", "A_B_t", "a.b_c", "heartbeats", "A.heartbeats", "A.B.heartbeats", "A_heartbeats",
    "app-heartbeats", "A.app-heartbeats", "heartbeats.x", "myheartbeats", ".t", "t.", "A..t", "A.", "..", "__t", "_t",
    "mm2-offset-syncs.B.internal", "mm2-offset-syncs_B_internal", "mm2-x.internal", "mm2.internal", "mm2x", "x.internal",
    "A.checkpoints.internal", "A_checkpoints_internal", "checkpoints.internal", ".checkpoints.internal",
    "A.mm2-x.internal", "A.__t", "mm2-configs.A.internal", "connect-configs",
]  # fmt: skip


@pytest.mark.usefixtures("apache_kafka")
@pytest.mark.parametrize(("separator", "internal"), [(".", True), ("_", True), ("_", False), ("--", False)])
def test_the_policies_agree(separator, internal):
    oracle = kafka_oracle.require()
    said = oracle.run(str(ORACLE), separator, str(internal).lower(), *TOPICS)
    assert said.returncode == 0, said.stderr
    answers = [tuple(line.split("\t")) for line in said.stdout.splitlines()]
    assert len(answers) == 2 * len(TOPICS)
    assert [ours(*answer[:2], separator, internal=internal) for answer in answers] == answers


def ours(name: str, topic: str, separator: str, *, internal: bool) -> tuple[str, ...]:
    policy = POLICIES[name](
        separator=separator, internal_separator=separator if internal else ".", source_alias="A"
    )
    found = (
        policy.format_remote_topic("A", topic), policy.topic_source(topic), policy.upstream_topic(topic),
        policy.original_topic(topic), policy.offset_syncs_topic(topic), policy.checkpoints_topic(topic),
    )  # fmt: skip
    is_ = (
        policy.is_heartbeats_topic, policy.is_checkpoints_topic, policy.is_mm2_internal_topic, policy.is_internal_topic,
    )  # fmt: skip
    texts = ["null" if text is None else text for text in found]
    return (name, topic, *texts, *(str(ask(topic)).lower() for ask in is_))
