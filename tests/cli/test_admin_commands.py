"""`klamm group`, `offsets`, `config`, `txn` against a real broker: output formats, dry runs, errors and exit codes."""

from __future__ import annotations

import asyncio
import csv
import io
import json

import pytest
import yaml
from confluent_kafka import Consumer, Producer, TopicPartition
from support.broker import new_name, new_topic, wait_until
from support.raw import RawClient
from support.share_client import Reader
from typer.testing import CliRunner

from klamm.admin import configs, topics
from klamm.admin.client import Admin
from klamm.admin.errors import AdminError
from klamm.admin.model import TopicPartition as Partition
from klamm.cli.main import app
from klamm.kafka_tools import run as kafka_tools
from klamm.testing import EmbeddedBroker
from klamm_kafka.client import Cluster
from klamm_kafka.wire.batch import Record, encode_batch
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from klamm_kafka.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from klamm_kafka.wire.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    Subtopology,
    Topology,
)


@pytest.fixture
def run(broker):
    def call(*words, code=0):
        result = CliRunner().invoke(app, [*words, "-b", broker.bootstrap])
        assert result.exit_code == code, result.output
        return result

    return call


@pytest.fixture
def filled(broker):
    """Returns a topic with 3 and 2 records in its partitions."""
    topic = new_topic(broker, 2)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for partition, count in ((0, 3), (1, 2)):
        for i in range(count):
            producer.produce(topic, f"v{i}", partition=partition, timestamp=1_700_000_000_000 + i * 1000)
    assert producer.flush(60) == 0
    return topic


@pytest.fixture
def group(broker, filled):
    """Returns a group that has read one record of partition 0 and all of partition 1."""
    name = new_name("group")
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": name})
    consumer.commit(offsets=[TopicPartition(filled, 0, 1), TopicPartition(filled, 1, 2)], asynchronous=False)
    consumer.close()
    return name


def rows(result):
    return json.loads(result.stdout)


# ---- topics


def test_settings_of_many_topics_are_asked_for_together(broker, monkeypatch):
    topics = [new_topic(broker, config={"retention.ms": str(n)} if n % 2 else None) for n in range(5)]
    monkeypatch.setattr(configs, "_AT_ONCE", 2)

    async def ask():
        async with Admin(broker.bootstrap) as admin:
            return await configs.topic_overrides(admin, [*topics, "no-such-topic"])

    found = asyncio.run(ask())
    gone = found.pop("no-such-topic")
    assert isinstance(gone, AdminError)
    assert "cannot describe topic" in str(gone)
    assert found == {t: {"retention.ms": str(n)} if n % 2 else {} for n, t in enumerate(topics)}


# ---- groups


def test_lag_in_every_format(run, group, filled):
    found = rows(run("group", "describe", group, "-o", "json"))
    assert [(r["topic"], r["partition"], r["current_offset"], r["log_end_offset"], r["lag"]) for r in found] == [
        (filled, 0, 1, 3, 2), (filled, 1, 2, 2, 0),
    ]  # fmt: skip
    lines = run("group", "describe", group, "-o", "jsonl").stdout.splitlines()
    assert [json.loads(line) for line in lines] == found
    assert yaml.safe_load(run("group", "describe", group, "-o", "yaml").stdout) == found
    table = list(csv.DictReader(io.StringIO(run("group", "describe", group, "-o", "csv").stdout)))
    assert [(r["partition"], r["lag"], r["consumer_id"]) for r in table] == [("0", "2", ""), ("1", "0", "")]
    plain = run("group", "describe", group).stdout.splitlines()
    assert plain[0].split() == [
        "GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID", "HOST", "CLIENT-ID",
    ]  # fmt: skip
    assert plain[1].split() == [group, filled, "0", "1", "3", "2", "-", "-", "-"]
    wide = run("group", "describe", group, "--verbose").stdout.splitlines()
    assert wide[0].split()[-2:] == ["LEADER-EPOCH", "STATE"]


def test_lag_of_some_partitions_and_of_whole_topics(run, group, filled):
    def lags(*words):
        return [
            (r["partition"], r["lag"]) for r in rows(run("group", "describe", group, *words, "-o", "json"))
        ]

    assert lags("--lagging") == [(0, 2)]
    assert lags("--topic", f"{filled[:-2]}*", "--topic", "x") == [(0, 2), (1, 0)]
    assert lags("--topic", "no-such*") == []
    whole = rows(run("group", "describe", group, "--by-topic", "-o", "json"))
    assert whole == [{"group": group, "topic": filled, "partitions": 2, "lag": 2, "state": "Empty"}]
    assert "are for offsets" in run("group", "describe", group, "--members", "--by-topic", code=2).output


def test_listing(run, group):
    assert {"group": group, "type": "Classic", "state": "Empty", "protocol_type": ""}.items() <= next(
        r for r in rows(run("group", "list", "-o", "json")) if r["group"] == group
    ).items()
    assert group in run("group", "list", "--state", "empty", "--type", "classic").stdout
    assert group not in run("group", "list", "--state", "Stable").stdout
    assert "'bad' is not one of" in run("group", "list", "--state", "bad", code=2).stderr


def test_a_share_group_is_listed_by_its_type(run, broker, filled):
    name = new_name("share")
    with RawClient(broker.port) as client:
        beat = ShareGroupHeartbeatRequest(
            group_id=name, member_id="m", member_epoch=0, subscribed_topic_names=[filled]
        )
        assert client.request(beat, 1).error_code == 0
    asked = run("group", "list", "--type", "share", "-o", "json")
    assert {"group": name, "type": "Share", "protocol_type": "share"}.items() <= next(
        r for r in rows(asked) if r["group"] == name
    ).items()
    assert name not in run("group", "list").stdout
    assert name in run("group", "list", "--all").stdout


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_members_of_both_protocols(run, broker, filled, protocol):
    name = new_name(protocol)
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": name,
            "group.protocol": protocol,
            "client.id": "me",
        }
    )
    consumer.subscribe([filled])
    try:
        wait_until(lambda: consumer.poll(0.05) or consumer.assignment(), "an assignment")
        member = next(r for r in rows(run("group", "describe", name, "--members", "-o", "json")))
        assert (member["client_id"], member["partitions"], member["assignment"]) == ("me", 2, f"{filled}:0,1")
        state = rows(run("group", "describe", name, "--state", "-o", "json"))[0]
        assert (state["type"], state["members"], state["group_epoch"] is None) == (
            protocol.capitalize(), 1, protocol == "classic",
        )  # fmt: skip
        refused = run("group", "reset", name, "--topic", filled, "--to-earliest", "--execute", code=1)
        assert f"group {name!r} is " in refused.stderr
        assert "offsets are set only while it has no members" in refused.stderr
        assert "the group has members" in run("group", "delete", name, code=1).stderr
    finally:
        consumer.close()


def test_a_reset_is_shown_and_then_done(run, group, filled):
    shown = run("group", "reset", group, "--topic", f"{filled}:0", "--to-offset", "99", "-o", "json")
    assert rows(shown) == [{"group": group, "topic": filled, "partition": 0, "new_offset": 3}]
    assert "New offset (99) is higher than latest offset" in shown.stderr
    assert "dry run: 1 offset would be set (--execute sets them)" in shown.stderr
    assert rows(run("group", "describe", group, "-o", "json"))[0]["current_offset"] == 1
    done = run("group", "reset", group, "--all-topics", "--shift-by", "-1", "--execute")
    assert "2 offsets set" in done.stderr
    assert [r["current_offset"] for r in rows(run("group", "describe", group, "-o", "json"))] == [0, 1]
    run("group", "reset", group, "--topic", filled, "--to-datetime", "2023-11-14T22:13:21.000", "--execute")
    assert [r["current_offset"] for r in rows(run("group", "describe", group, "-o", "json"))] == [1, 1]


def test_offsets_are_exported_and_imported(run, group, filled, tmp_path):
    exported = run("group", "export", group).stdout
    assert sorted(line.rpartition(",")[2] for line in exported.splitlines()) == ["1", "2"]
    file = tmp_path / "offsets.csv"
    file.write_text(exported)
    other = new_name("copy")
    assert "dry run" in run("group", "import", str(file), "-g", other).stderr
    assert "no group" in run("group", "describe", other, code=1).stderr
    run("group", "import", str(file), "-g", other, "--execute")
    assert [r["current_offset"] for r in rows(run("group", "describe", other, "-o", "json"))] == [1, 2]
    both = run("group", "export", group, other).stdout
    file.write_text(both)
    assert len(rows(run("group", "import", str(file), "-o", "json"))) == 4
    file.write_text("t,x,1\n")
    assert f"{file}: line 1: partition 'x'" in run("group", "import", str(file), "-g", other, code=1).stderr
    assert (
        "cannot be read: No such file"
        in run("group", "import", str(tmp_path / "no"), "-g", other, code=1).stderr
    )


def test_groups_and_offsets_are_deleted(run, group, filled):
    assert (
        run("group", "delete-offsets", group, "--topic", f"{filled}:1").stdout
        == f"deleted the offset of {filled}-1\n"
    )
    assert [r["partition"] for r in rows(run("group", "describe", group, "-o", "json"))] == [0]
    assert run("group", "delete", group).stdout == f"deleted {group}\n"
    assert run("group", "delete", group, code=1).stderr == f"klamm: no group {group!r}\n"
    assert run("group", "describe", group, code=1).stderr == f"klamm: no group {group!r}\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["group", "reset", "g", "--topic", "t"], "give exactly one place of"),
        (["group", "reset", "g", "--topic", "t", "--to-latest", "--to-earliest"], "were given"),
        (["group", "reset", "g", "--to-latest"], "give --topic, or --all-topics"),
        (["group", "reset", "g", "--topic", "t:x", "--to-latest"], "Invalid partition 'x'"),
        (["group", "reset", "g", "--topic", "t", "--by-duration", "1h"], "is not a duration like P7D"),
        (["group", "reset", "g", "--topic", "t", "--to-datetime", "now"], "is not a time like"),
        (["group", "describe"], "name groups, or give --all-groups"),
        (["group", "describe", "g", "--members", "--state"], "give one of --offsets, --members and --state"),
        (["offsets", "t", "--topic-partitions", "t:1"], "cannot stand beside a topic"),
        (["offsets", "t", "--time", "soon"], "Malformed time argument soon"),
        (["config", "describe", "--entity-type", "topic"], "'topic' is not one of topics"),
        (["config", "alter", "--entity-type", "topics", "--add-config", "a=b"], "name each --entity-type"),
        (["config", "alter", "--entity-type", "topics", "--entity-name", "t"], "give --add-config"),
        (
            ["config", "alter", "--entity-type", "topics", "--entity-name", "t", "--add-config", "a"],
            "key=val",
        ),
        (["config", "describe", "--entity-type", "brokers", "--entity-name", "x"], "'x' is no broker id"),
        (["txn", "find-hanging", "-p", "1"], "needs --topic"),
        (["group", "list", "-o", "xml"], "'xml' is not one of 'table'"),
    ],
)
def test_wrong_use_is_a_sentence_and_exits_2(words, said, run):
    result = run(*words, code=2)
    assert said in " ".join(result.stderr.replace("\u2502", " ").split())


# ---- offsets, settings, transactions


def test_offsets_at_a_time(run, filled):
    def found(*words):
        return [r["offset"] for r in rows(run("offsets", filled, "-o", "json", *words))]

    assert found() == found("--time", "-1") == [3, 2]
    assert found("--time", "earliest") == found("--time", "-2") == [0, 0]
    assert found("--time", "-3") == [2, 1]
    assert found("--time", "1700000001500") == [2, None]
    assert found("--partitions", "1") == [2]
    assert rows(run("offsets", "--topic-partitions", f"{filled}:1-", "-o", "json"))[0]["partition"] == 1
    assert "matches" in run("offsets", new_name(), code=1).stderr
    assert filled not in run("offsets", "--exclude-internal-topics", "--topic", "__.*", code=1).stdout


def test_settings_are_altered_and_described(run, filled):
    who = ["--entity-type", "topics", "--entity-name", filled]
    assert run("config", "describe", *who, "-o", "json").stdout == "[]\n"
    changed = run(
        "config", "alter", *who, "--add-config", "cleanup.policy=[compact,delete],max.message.bytes=5000"
    )
    assert changed.stdout == f"altered topics {filled}\n"
    assert [
        (r["name"], r["value"], r["source"]) for r in rows(run("config", "describe", *who, "-o", "json"))
    ] == [
        ("cleanup.policy", "compact,delete", "DYNAMIC_TOPIC_CONFIG"),
        ("max.message.bytes", "5000", "DYNAMIC_TOPIC_CONFIG"),
    ]
    run("config", "alter", *who, "--delete-config", "cleanup.policy,max.message.bytes")
    assert run("config", "describe", *who, "-o", "jsonl").stdout == ""
    assert len(rows(run("config", "describe", *who, "--all", "-o", "json"))) > 20
    assert "retention.ms" in run("config", "alter", *who, "--add-config", "retention.ms=abc", code=1).stderr
    absent = new_name()
    who[-1] = absent
    assert run("config", "describe", *who, code=1).stderr == f"klamm: no topic {absent!r}\n"


@pytest.mark.parametrize("kind", ["topics", "brokers", "groups", "client-metrics"])
def test_a_setting_to_delete_that_is_not_there_is_named(run, broker, kind, capsys):
    name = {"topics": new_topic(broker, 1), "brokers": "1"}.get(kind, "some")
    known = {"topics": "retention.ms", "brokers": "log.retention.ms"}
    who = ["--entity-type", kind, "--entity-name", name]
    said = run("config", "alter", *who, "--delete-config", "nope", code=1).stderr
    assert said == f"klamm: {kind} have no setting 'nope'; nothing was altered\n"
    if kind in known:
        done = run("config", "alter", *who, "--delete-config", known[kind])
        assert done.stderr == f"klamm: {known[kind]} was not set for {kind} {name}\n"
        assert done.stdout == f"altered {kind} {name}\n"
    kafkas = ["--bootstrap-server", broker.bootstrap, "--alter", *who, "--delete-config", "nope"]
    assert kafka_tools.main("kafka-configs", kafkas) == 0, "as Kafka's tool and broker"
    assert capsys.readouterr().out == f"Completed updating config for {kind[:-1]} {name}.\n"


def test_settings_of_brokers_and_their_defaults(run):
    defaults = ["--entity-type", "brokers", "--entity-default"]
    run("config", "alter", *defaults, "--add-config", "message.max.bytes=3000000")
    found = rows(run("config", "describe", "--entity-type", "brokers", "-o", "json"))
    assert ("(default)", "message.max.bytes", "3000000") in {
        (r["entity_name"], r["name"], r["value"]) for r in found
    }
    run("config", "alter", *defaults, "--delete-config", "message.max.bytes")
    again = run("config", "alter", *defaults, "--delete-config", "message.max.bytes")
    assert again.stderr == "klamm: message.max.bytes was not set for the default of brokers\n"
    left = rows(run("config", "describe", *defaults, "-o", "json"))
    assert "message.max.bytes" not in {r["name"] for r in left}


def test_transactions(run, broker, filled):
    name = new_name("txn")
    for command in ("describe", "terminate", "describe"):  # an id that is not there is not made
        assert run("txn", command, name, code=1).stderr == f"klamm: no transactional id {name!r}\n"
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": name})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(filled, b"v", partition=1)
    assert producer.flush(60) == 0
    listed = next(r for r in rows(run("txn", "list", "-o", "json")) if r["transactional_id"] == name)
    assert listed["state"] == "Ongoing"
    described = rows(run("txn", "describe", name, "-o", "json"))[0]
    assert (described["partitions"], described["producer_id"]) == ([f"{filled}-1"], listed["producer_id"])
    found = rows(run("txn", "describe-producers", "--topic", filled, "-p", "1", "-o", "json"))
    state = next(p for p in found if p["producer_id"] == listed["producer_id"])
    assert state["txn_start"] == 2
    assert (
        rows(run("txn", "find-hanging", "--topic", filled, "--max-transaction-timeout", "0", "-o", "json"))
        == []
    )
    assert (
        "no open transaction starts at offset 77"
        in run("txn", "abort", "--topic", filled, "-p", "1", "--start-offset", "77", code=1).stderr
    )
    run("txn", "terminate", name)
    assert rows(run("txn", "describe", name, "-o", "json"))[0]["state"] in (
        "CompleteAbort",
        "PrepareAbort",
        "Empty",
    )


@pytest.mark.parametrize("address", ["", "localhost", "localhost:abc", "localhost:99999", "a:1,:2"])
@pytest.mark.parametrize(
    "command",
    [["topic", "list"], ["group", "list"], ["produce", "t"], ["consume", "t"], ["config", "describe"]],
)
def test_an_address_that_cannot_be_one_is_named(command, address):
    kind = ["--entity-type", "topics"] if command[0] == "config" else []
    result = CliRunner().invoke(app, [*command, *kind, "-b", address], terminal_width=200)
    assert result.exit_code == 2
    assert f"Invalid value {address.split(',')[-1]!r} for configuration bootstrap.servers" in result.stderr


UNVERIFIED = {"transaction.partition.verification.enable": "false"}  # as brokers before KIP-890


@pytest.fixture(params=["klamm", pytest.param("kafka", marks=pytest.mark.needs("apache_kafka"))])
def unverified(processes, request, tmp_path):
    """Yields the address of a broker that appends what no coordinator knows of."""
    if request.param == "klamm":
        with EmbeddedBroker(tmp_path / "data", config=UNVERIFIED) as broker:
            yield broker.bootstrap
    else:
        from support.kafka_broker import KafkaBroker

        with KafkaBroker(tmp_path, UNVERIFIED) as broker:
            yield broker.address


async def _leave_hanging(address, topic):
    """Writes a record of a transaction that no coordinator knows."""
    batch = encode_batch(
        [Record(timestamp=1_700_000_000_000, value=b"stuck")],
        producer_id=987_654,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=True,
    )
    async with Cluster(address) as cluster:
        await cluster.refresh([topic])
        data = TopicProduceData(
            name=topic, partition_data=[PartitionProduceData(index=0, records=bytes(batch))]
        )
        asked = ProduceRequest(transactional_id="gone", acks=-1, timeout_ms=5000, topic_data=[data])
        while True:  # Kafka tells of a leader before it leads
            answer = await (await cluster.leader(topic, 0)).request(asked, 9)
            code = answer.responses[0].partition_responses[0].error_code
            if code != ErrorCode.NOT_LEADER_OR_FOLLOWER:
                return code
            await asyncio.sleep(0.1)


def test_a_transaction_that_hangs_is_found_and_aborted(unverified):
    def call(*words, code=0):
        result = CliRunner().invoke(app, [*words, "-b", unverified])
        assert result.exit_code == code, result.output
        return result

    topic = new_name()
    call("topic", "create", topic)
    assert asyncio.run(_leave_hanging(unverified, topic)) == 0
    words = ["txn", "find-hanging", "--topic", topic, "-o", "json"]
    (found,) = rows(call(*words))
    assert (found["partition"], found["producer_id"], found["txn_start"]) == (0, 987_654, 0)
    where = ["--topic", topic, "-p", "0"]
    assert (
        call("txn", "abort", *where, "--start-offset", "0").stdout
        == f"aborted the transaction at offset 0 of {topic}-0\n"
    )
    assert rows(call(*words)) == []
    assert (
        "no open transaction starts at offset 0"
        in call("txn", "abort", *where, "--start-offset", "0", code=1).stderr
    )


# ---- the client behind the commands


async def test_what_has_moved_is_asked_again_until_the_timeout(broker, filled):
    tp, gone = Partition(filled, 0), Partition(filled, 9)
    asked = []

    async def call(node_id, mine):
        asked.append(mine)
        if len(asked) == 1:
            return {p: AdminError(ErrorCode.NOT_LEADER_OR_FOLLOWER, str(p)) for p in mine}
        return dict.fromkeys(mine, "answer")

    async with Admin(broker.bootstrap, timeout_s=60) as admin:
        found = await admin.by_leader([tp, gone], call)
    assert found[tp] == "answer"
    assert asked == [[tp], [tp]]
    assert found[gone].code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    async def never(node_id, mine):
        return {p: AdminError(ErrorCode.NOT_LEADER_OR_FOLLOWER, str(p)) for p in mine}

    async with Admin(broker.bootstrap, timeout_s=0.3) as admin:
        found = await admin.by_leader([tp], never)
    assert found[tp].code == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_a_coordinator_that_loads_is_waited_for(broker):
    tried = []

    async def attempt():
        tried.append(1)
        if len(tried) < 3:
            raise AdminError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "a group")
        return "answer"

    async with Admin(broker.bootstrap, timeout_s=60) as admin:
        assert await admin.patiently(attempt) == "answer"
        assert len(tried) == 3
        with pytest.raises(AdminError, match="topic 'no-such-topic'"):
            await topics.describe_topics(admin, ["no-such-topic"])


def test_a_share_group_is_described_and_deleted(run, broker):
    group, topic = new_name("share"), new_topic(broker)
    with Reader(broker, group, topic) as reader:
        reader.join().produce(b"a", b"b")
        reader.fetch()
        reader.acknowledge((0, 0, [1]))
        (state,) = json.loads(run("group", "describe", group, "--state", "-o", "json").output)
        assert (state["type"], state["state"], state["members"]) == ("Share", "Stable", 1)
        (member,) = json.loads(run("group", "describe", group, "--members", "-o", "json").output)
        assert (member["consumer_id"], member["assignment"]) == (reader.member, f"{topic}:0")
        (row,) = json.loads(run("group", "describe", group, "-o", "json").output)
        assert (row["topic"], row["partition"]) == (topic, 0)
        run("group", "delete", group, code=1)
        reader.heartbeat(-1)
    assert run("group", "delete", group).output == f"deleted {group}\n"
    assert f"no group '{group}'" in run("group", "describe", group, code=1).output


def test_a_share_group_is_reset(run, broker):
    group, topic = new_name("share"), new_topic(broker)
    with Reader(broker, group, topic) as reader:
        reader.join().produce(b"a", b"b", b"c")
        reader.fetch()
        refused = run("group", "reset", group, "--topic", topic, "--to-latest", "--execute", code=1)
        assert f"group '{group}' is Stable: offsets are set only while it has no members" in refused.stderr
        reader.heartbeat(-1)
        (shown,) = rows(run("group", "reset", group, "--all-topics", "--to-latest", "-o", "json"))
        assert shown == {"group": group, "topic": topic, "partition": 0, "new_offset": 3}
        assert reader.start()[0] < 3, "a dry run"
        done = run("group", "reset", group, "--topic", f"{topic}:0", "--to-offset", "2", "--execute")
        assert "1 offset set" in done.stderr
        assert reader.start() == (2, 1)
        run("group", "reset", group, "--all-topics", "--shift-by", "-1", "--execute")
        (row,) = rows(run("group", "describe", group, "-o", "json"))
        assert (row["current_offset"], row["lag"]) == (1, 2)
    assert run("group", "delete", group).output == f"deleted {group}\n"


def test_a_streams_group_is_described_and_reset(run, broker, filled):
    group = new_name("app")
    reads = Topology(epoch=0, subtopologies=[Subtopology(subtopology_id="0", source_topics=[filled])])

    def beat(client, epoch, **more):
        ask = StreamsGroupHeartbeatRequest(group_id=group, member_id="m", member_epoch=epoch, **more)
        return client.request(ask, 0)

    with RawClient(broker.port) as client:
        given = beat(
            client, 0, rebalance_timeout_ms=60_000, active_tasks=[], standby_tasks=[], warmup_tasks=[], process_id="p",
            client_tags=[], topology=reads,
        )  # fmt: skip
        assert given.error_code == 0, given.error_message
        epoch = given.member_epoch

        def assigned():
            nonlocal epoch
            epoch = beat(client, epoch).member_epoch
            (member,) = rows(run("group", "describe", group, "--members", "-o", "json"))
            return member["partitions"] and member

        member = wait_until(assigned, "tasks")
        assert (member["consumer_id"], member["assignment"]) == ("m", "active 0:0,1")
        (state,) = rows(run("group", "describe", group, "--state", "-o", "json"))
        assert (state["type"], state["members"]) == ("Streams", 1)
        found = rows(run("group", "describe", group, "-o", "json"))
        assert [(r["topic"], r["partition"], r["current_offset"], r["lag"]) for r in found] == [
            (filled, 0, None, 3), (filled, 1, None, 2),
        ]  # fmt: skip
        run("group", "reset", group, "--topic", filled, "--to-latest", "--execute", code=1)
        beat(client, -1)
    run("group", "reset", group, "--topic", filled, "--to-latest", "--execute")
    found = rows(run("group", "describe", group, "-o", "json"))
    assert [(r["current_offset"], r["lag"]) for r in found] == [(3, 0), (2, 0)]
    assert run("group", "delete", group).output == f"deleted {group}\n"
