"""Kafka's command lines for brokers, replicas, leaders and features: ours against Kafka's, on Kafka's broker and ours."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import kafka_oracle
from support.tool_scenarios import KAFKA_SETTLES_S
from support.tool_scenarios_admin import SECTIONS, play
from typer.testing import CliRunner

from klamm.admin.model import TopicPartition
from klamm.admin.replicas import Reassignment
from klamm.cli import connect_scripts
from klamm.cli.main import app
from klamm.kafka_tools import feature_levels, reassign_plans
from klamm.kafka_tools import run as kafka_tools
from klamm.kafka_tools.broker_api_versions import as_text
from klamm.testing import EmbeddedBroker
from klamm_base.errors import KlammError

# ---- both tools on one broker


@pytest.fixture(scope="module")
def tools(processes, tmp_path_factory):
    from support.kafka_tools import KafkaTools

    tools = KafkaTools(kafka_oracle.require(), tmp_path_factory.mktemp("tools"))
    yield tools
    tools.close()


@pytest.fixture
def ours(capfd):
    def run(tool, args):
        code = kafka_tools.main(tool, args)
        return code, capfd.readouterr().out

    return run


@pytest.fixture(params=["kafka", "klamm"])
def either(processes, request, tmp_path):
    """Yields Kafka's broker, and ours."""
    if request.param == "kafka":
        from support.kafka_broker import KafkaBroker

        with KafkaBroker(tmp_path) as broker:
            yield broker.address
    else:
        with EmbeddedBroker(tmp_path / "data", config={"node.id": "1"}) as broker:
            yield broker.bootstrap


@pytest.mark.usefixtures("apache_kafka")
@pytest.mark.timeout(300)
def test_both_tools_say_the_same(either, tools, tmp_path, ours):
    def theirs(tool, args):
        result = tools.run(tool, *args)
        return result.code, result.out

    for section in SECTIONS:
        expected = play(section, either, tmp_path, theirs, ours=False, settle_s=KAFKA_SETTLES_S)
        found = play(section, either, tmp_path, ours, ours=True, settle_s=KAFKA_SETTLES_S)
        assert found == expected


# ---- ours alone


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["connect-distributed"], "which properties?"),
        (["connect-distributed", "-daemon", "w.properties"], "klamm service install"),
        (["connect-distributed", "w.properties", "c.properties"], "gets its connectors by REST"),
        (["connect-standalone.sh", "/absent.properties"], "/absent.properties"),
        (["connect-mirror-maker", "a", "b", "--clusters", "x"], "2 files were given"),
    ],
)
def test_scripts_that_run_servers_say_what_is_missing(words, said):
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 2
    assert said in result.output


def test_clusters_stand_behind_their_option():
    assert connect_scripts.split_clusters(["mm2.properties", "--clusters", "a", "b"]) == (
        ["mm2.properties"],
        ["a", "b"],
    )


def test_the_tools_ask_a_broker_of_ours(broker, ours):
    code, out = ours("kafka-cluster", ["cluster-id", "-b", broker.bootstrap])
    assert (code, out[:12]) == (0, "Cluster ID: ")
    code, out = ours("kafka-broker-api-versions", ["--bootstrap-server", broker.bootstrap])
    assert code == 0
    assert "\n\tProduce(0): 0 to 13 [usable: 13],\n" in out
    code, out = ours("kafka-features", ["--bootstrap-server", broker.bootstrap, "describe"])
    assert code == 0
    assert "SupportedMinVersion: 3.3-IV3" in out


def test_versions_that_are_too_old_or_new_or_unknown_are_said():
    lines = as_text({0: (99, 100), 1: (0, 1), 18: (3, 3), 4711: (1, 2)}).splitlines()
    assert "\tProduce(0): 99 to 100 [unusable: node too new]," in lines
    assert "\tFetch(1): 0 to 1 [unusable: node too old]," in lines
    assert "\tApiVersions(18): 3 [usable: 3]," in lines
    assert "\tMetadata(3): UNSUPPORTED," in lines
    assert lines[-2:] == ["\tUNKNOWN(4711): 1 to 2", ")"]


@pytest.mark.parametrize(
    ("release", "level", "transactions"),
    [("3.3-IV3", 7, 0), ("3.9", 21, 0), ("4.0-IV1", 23, 0), ("4.0", 25, 2), ("4.4-IV0", 31, 2)],
)
def test_levels_of_a_release(release, level, transactions):
    found = feature_levels.levels_of_release(release)
    assert (found["metadata.version"], found["transaction.version"]) == (level, transactions)


def test_a_release_to_come_has_no_short_name():
    with pytest.raises(KlammError, match=r"Unknown metadata.version '4.4'"):
        feature_levels.metadata_level("4.4")


PARTITIONS = st.builds(TopicPartition, st.sampled_from(["a", "b"]), st.integers(0, 5))
ASSIGNMENTS = st.dictionaries(PARTITIONS, st.lists(st.integers(0, 9), min_size=1, max_size=3, unique=True))


@given(ASSIGNMENTS)
def test_a_plan_is_read_as_it_was_written(assignment):
    dirs = {(tp, r): "/d" for tp, replicas in assignment.items() for r in replicas[:1]}
    plan = reassign_plans.parse_plan(reassign_plans.as_json(assignment, dirs))
    assert plan.targets == {tp: tuple(r) for tp, r in assignment.items()}
    assert plan.dirs == dirs


@given(
    st.integers(1, 6),
    st.integers(1, 4),
    st.dictionaries(st.integers(0, 9), st.sampled_from(["r1", "r2", "r3"]), min_size=1),
    st.booleans(),
    st.integers(0, 9),
    st.integers(0, 9),
)
def test_replicas_are_spread_evenly_over_brokers_and_racks(count, factor, racks, aware, start, shift):
    current = {TopicPartition("t", p): list(range(factor)) for p in range(count)}
    places = {b: r if aware else None for b, r in racks.items()}
    if factor > len(racks):
        with pytest.raises(KlammError, match="larger than available brokers"):
            reassign_plans.spread(current, places, start=start, shift=shift)
        return
    found = reassign_plans.spread(current, places, start=start, shift=shift)
    assert found.keys() == current.keys()
    leaders = [replicas[0] for replicas in found.values()]
    assert max(map(leaders.count, racks)) - min(map(leaders.count, racks)) <= 1
    for replicas in found.values():
        assert len(set(replicas)) == factor
        if aware:
            assert len({racks[b] for b in replicas}) == min(factor, len(set(racks.values())))


def test_throttles_name_sources_and_destinations():
    tp = TopicPartition("t", 0)
    running = {TopicPartition("t", 1): Reassignment(replicas=(1, 2, 4), adding=(4,), removing=(1,))}
    found = reassign_plans.moves(running, {tp: [2, 3]}, {tp: [1, 2]})
    assert reassign_plans.throttled_replicas(found) == {"t": ("0:1,0:2,1:1,1:2", "0:3,1:4")}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("xx", "not a valid JSON"),
        ("[]", "expected a JSON object"),
        ('{"version": 2}', "Not supported version field value 2"),
        ('{"partitions": 3}', "partitions must be a list"),
        ('{"partitions": [{"topic": "t"}]}', "must have a topic"),
        (
            json.dumps({"partitions": [{"topic": "t", "partition": 0, "replicas": [1], "log_dirs": []}]}),
            None,
        ),
        (
            json.dumps(
                {"partitions": [{"topic": "t", "partition": 0, "replicas": [1], "log_dirs": ["a", "b"]}]}
            ),
            r"Size of replicas list \[1\] is different from size of log dirs list \[a, b\] for partition t-0",
        ),
    ],
)
def test_a_plan_that_makes_no_sense_is_refused(text, said):
    if said is None:
        assert reassign_plans.parse_plan(text).dirs == {}
        return
    with pytest.raises(KlammError, match=said):
        reassign_plans.parse_plan(text)
