"""Transactions as Apache's own programs see them: its tools against our broker, its clients, and its files both ways."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from support import kafka_oracle
from support.broker import new_name, new_topic, wait_until
from support.kafka_broker import KafkaBroker
from support.kafka_tools import KafkaTools, ToolResult
from support.raw import RawClient, batch, produce_request
from typer.testing import CliRunner

from klamm.cli.main import app
from klamm.testing import EmbeddedBroker
from klamm_broker.coordinator.partitioning import partition_for
from klamm_kafka.wire.errors import ErrorCode as E
from klamm_kafka.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from klamm_kafka.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from klamm_kafka.wire.messages.describe_transactions import DescribeTransactionsRequest
from klamm_kafka.wire.messages.init_producer_id import InitProducerIdRequest
from klamm_kafka.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup

Tool = Callable[..., ToolResult]
pytestmark = pytest.mark.usefixtures("apache_kafka")
COPIER = Path(__file__).parents[1] / "support" / "TransactionalCopier.java"


def producer(bootstrap: str, name: str) -> Producer:
    made = Producer(
        {"bootstrap.servers": bootstrap, "transactional.id": name, "linger.ms": 0, "log_level": 0}
    )
    made.init_transactions(60)
    return made


def write(client: Producer, topic: str, *values: str) -> None:
    client.begin_transaction()
    for value in values:
        client.produce(topic, value.encode(), partition=0)
    client.flush(60)


def rows(result: ToolResult) -> list[dict[str, str]]:
    """Returns a table that a tool printed."""
    head, *lines = result.ok().lines
    return [dict(zip(head.split(), line.split(), strict=False)) for line in lines]


def test_transactions_are_listed_and_described(tool: Tool, broker: EmbeddedBroker) -> None:
    topic, name = new_topic(broker), new_name("txn")
    client = producer(broker.bootstrap, name)
    write(client, topic, "x")
    listed = {row["TransactionalId"]: row for row in rows(tool("kafka-transactions", "list"))}
    assert (listed[name]["Coordinator"], listed[name]["TransactionState"]) == ("1", "Ongoing")
    pattern = ("--transactional-id-pattern", f"{name[:-1]}.")
    assert [row["TransactionalId"] for row in rows(tool("kafka-transactions", "list", *pattern))] == [name]
    long = ("--duration-filter", "3600000", *pattern)
    assert rows(tool("kafka-transactions", "list", *long)) == []
    (described,) = rows(tool("kafka-transactions", "describe", "--transactional-id", name))
    assert described["ProducerId"] == listed[name]["ProducerId"]
    assert (described["TransactionState"], described["TransactionTimeoutMs"]) == ("Ongoing", "60000")
    assert described["TopicPartitions"] == f"{topic}-0"
    (known,) = rows(tool("kafka-transactions", "describe-producers", "--topic", topic, "--partition", "0"))
    assert (known["ProducerId"], known["CurrentTransactionStartOffset"]) == (described["ProducerId"], "0")
    client.commit_transaction(60)
    (described,) = rows(tool("kafka-transactions", "describe", "--transactional-id", name))
    assert described["TransactionState"] == "CompleteCommit"


def test_a_transaction_is_found_and_aborted_by_hand(tool: Tool, broker: EmbeddedBroker) -> None:
    topic, name = new_topic(broker), new_name("txn")
    client = producer(broker.bootstrap, name)
    write(client, topic, "x")
    where = ("--topic", topic, "--partition", "0")
    assert rows(tool("kafka-transactions", "find-hanging", *where[:2])) == [], "its coordinator knows of it"
    tool("kafka-transactions", "abort", *where, "--start-offset", "0").ok()
    (known,) = rows(tool("kafka-transactions", "describe-producers", *where))
    assert known["CurrentTransactionStartOffset"] == "None"


def test_a_transaction_that_hangs_is_found_and_aborted(kafka_tools: KafkaTools, tmp_path: Path) -> None:
    """A client of old has written in a transaction, and then all that its coordinator knew was deleted."""
    with EmbeddedBroker(tmp_path / "data") as broker, RawClient(broker.port) as raw:
        topic = new_topic(broker)
        leave_hanging(raw, "gone", topic)

        def tool(*words: str) -> ToolResult:
            return kafka_tools.run("kafka-transactions", "--bootstrap-server", broker.bootstrap, *words)

        client = producer(broker.bootstrap, "later")
        write(client, topic, "after")
        client.commit_transaction(60)
        assert committed_values(broker.bootstrap, topic, 1) == [], "all that came later waits"
        (found,) = rows(tool("find-hanging", "--topic", topic))
        assert (found["Topic"], found["Partition"], found["StartOffset"]) == (topic, "0", "0")
        klamm = ["txn", "find-hanging", "--topic", topic, "-o", "json", "-b", broker.bootstrap]
        (same,) = json.loads(CliRunner().invoke(app, klamm).stdout)
        assert (str(same["producer_id"]), same["txn_start"]) == (found["ProducerId"], 0)
        tool("abort", "--topic", topic, "--partition", "0", "--start-offset", "0").ok()
        assert rows(tool("find-hanging", "--topic", topic)) == []
        assert json.loads(CliRunner().invoke(app, klamm).stdout) == []
        assert committed_values(broker.bootstrap, topic, 1) == ["after"]


def leave_hanging(raw: RawClient, name: str, topic: str) -> None:
    """Leaves a record of long ago in a transaction that nobody knows of any more."""
    given = raw.request(InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000), 4)
    who = (name, given.producer_id, given.producer_epoch)
    added = [AddPartitionsToTxnTopic(name=topic, partitions=[0])]
    (answer,) = raw.request(
        AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=name,
            v3_and_below_producer_id=who[1],
            v3_and_below_producer_epoch=who[2],
            v3_and_below_topics=added,
        ),
        3,
    ).results_by_topic_v3_and_below
    assert answer.results_by_partition[0].partition_error_code == E.NONE
    records = batch(
        b"stuck",
        timestamp=1_700_000_000_000,
        producer_id=who[1],
        producer_epoch=who[2],
        base_sequence=0,
        is_transactional=True,
    )
    produced = raw.request(produce_request(topic, records, acks=-1, transactional_id=name), 9)
    assert produced.responses[0].partition_responses[0].error_code == E.NONE
    state = [DeleteTopicState(name="__transaction_state")]
    assert (
        raw.request(DeleteTopicsRequest(topics=state, timeout_ms=5000), 6).responses[0].error_code == E.NONE
    )


def test_force_terminate(tool: Tool, broker: EmbeddedBroker) -> None:
    topic, name = new_topic(broker), new_name("txn")
    client = producer(broker.bootstrap, name)
    write(client, topic, "x")
    tool("kafka-transactions", "forceTerminateTransaction", "--transactionalId", name).ok()
    (described,) = rows(tool("kafka-transactions", "describe", "--transactional-id", name))
    assert described["TransactionState"] in ("CompleteAbort", "Empty")


def test_the_console_consumer_reads_committed_records(tool: Tool, broker: EmbeddedBroker) -> None:
    topic = new_topic(broker)
    client = producer(broker.bootstrap, new_name("txn"))
    for n in range(4):
        write(client, topic, f"{n}.a", f"{n}.b")
        if n % 2:
            client.abort_transaction(60)
        else:
            client.commit_transaction(60)

    def read(isolation: str, count: int) -> list[str]:
        asked = (
            "--topic",
            topic,
            "--from-beginning",
            "--max-messages",
            str(count),
            "--isolation-level",
            isolation,
        )
        return tool("kafka-console-consumer", *asked).ok().lines

    assert read("read_committed", 4) == ["0.a", "0.b", "2.a", "2.b"]
    assert len(read("read_uncommitted", 8)) == 8


def test_the_perf_test_of_a_transactional_producer(tool: Tool, broker: EmbeddedBroker) -> None:
    said = tool(
        "kafka-producer-perf-test",
        *(
            "--topic",
            new_topic(broker, 3),
            "--num-records",
            "20000",
            "--record-size",
            "100",
            "--throughput",
            "-1",
        ),
        *("--transactional-id", new_name("txn"), "--transaction-duration-ms", "50"),
    ).ok()
    assert "20000 records sent" in said.out


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_javas_clients_copy_a_topic_exactly_once(broker: EmbeddedBroker, protocol: str) -> None:
    oracle = kafka_oracle.require()
    source, target = new_topic(broker, 3), new_topic(broker, 3)
    count = 600
    client = producer(broker.bootstrap, new_name("txn"))
    for n in range(0, count, 20):
        client.begin_transaction()
        for i in range(n, n + 20):
            client.produce(source, str(i).encode(), partition=i % 3)
        client.commit_transaction(60)
    command = [oracle.java, "-XX:TieredStopAtLevel=1", "-cp", f"{oracle.home}/libs/*", str(COPIER)]
    done = subprocess.run(
        [*command, broker.bootstrap, source, target, str(count), protocol],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    found = re.search(r"copied (\d+) aborted (\d+) (.*)", done.stdout)
    assert found is not None, done.stdout
    assert (int(found[1]), int(found[2]) > 0, found[3]) == (count, True, "fenced")
    assert sorted(int(v) for v in committed_values(broker.bootstrap, target, 3)) == list(range(count))


def committed_values(bootstrap: str, topic: str, partitions: int) -> list[str]:
    reader = Consumer({
        "bootstrap.servers": bootstrap, "group.id": new_name("group"), "isolation.level": "read_committed",
        "auto.offset.reset": "earliest", "enable.partition.eof": True, "log_level": 0,
    })  # fmt: skip
    reader.assign([TopicPartition(topic, p, 0) for p in range(partitions)])
    values, ends = [], set()
    deadline = time.monotonic() + 60
    while len(ends) < partitions and time.monotonic() < deadline:
        message = reader.poll(1)
        if message is None:
            continue
        if message.error() is None:
            values.append(message.value().decode())
        elif message.error().code() == KafkaError._PARTITION_EOF:
            ends.add(message.partition())
    reader.close()
    return values


# Files


def test_kafka_decodes_our_transaction_log(kafka_tools: KafkaTools, tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path / "data") as broker:
        topic = new_topic(broker, 2)
        for name, committed in (("first", True), ("second", False)):
            client = producer(broker.bootstrap, name)
            client.begin_transaction()
            for partition in (0, 1):
                client.produce(topic, b"x", partition=partition)
            client.flush(60)
            (client.commit_transaction if committed else client.abort_transaction)(10)
    for name, ends in (("first", ["2", "4"]), ("second", ["3", "5"])):
        directory = tmp_path / f"data/__transaction_state-{partition_for(name, 50)}"
        dumped = kafka_tools.run(
            "kafka-dump-log",
            *("--transaction-log-decoder", "--deep-iteration", "--files", str(directory / f"{0:020}.log")),
        ).ok()
        states = re.findall(rf'"{name}".*"transactionStatus":(\d)', dumped.out)
        assert (states[:2], states[-2:]) == (["0", "1"], ends), dumped.out
    markers = kafka_tools.run(
        "kafka-dump-log", "--print-data-log", "--files", str(tmp_path / f"data/{topic}-0/{0:020}.log")
    ).ok()
    assert "endTxnMarker: COMMIT" in markers.out
    assert "endTxnMarker: ABORT" in markers.out


def test_a_directory_that_kafka_wrote_goes_on_here(tmp_path: Path) -> None:
    """Committed, aborted and open transactions of a real broker, with offsets; its producer ids are not handed out again."""
    topic = "t"
    with KafkaBroker(tmp_path) as kafka:
        group = Consumer({"bootstrap.servers": kafka.address, "group.id": "g", "log_level": 0})
        client = producer(kafka.address, "done")
        for value, offset, committed in (("kept", 5, True), ("dropped", 6, False)):
            write(client, topic, value)
            client.send_offsets_to_transaction(
                [TopicPartition(topic, 0, offset)], group.consumer_group_metadata(), 60
            )
            (client.commit_transaction if committed else client.abort_transaction)(60)
        left = producer(kafka.address, "left")
        write(left, topic, "open")
        left.send_offsets_to_transaction([TopicPartition(topic, 0, 9)], group.consumer_group_metadata(), 60)
        group.close()
        # its markers are written after the answer
        wait_until(
            lambda: described(kafka.port, "done")["done"].transaction_state == "CompleteAbort",
            "the abort is done",
        )
        theirs = described(kafka.port, "done", "left")
    with EmbeddedBroker(tmp_path / "data", config={"node.id": "1"}) as broker:
        with RawClient(broker.port) as raw:
            wait_until(lambda: described(broker.port, "left")["left"].error_code == 0, "the ids to be loaded")
            ours = described(broker.port, "done", "left")
            assert ours == theirs
            assert committed_offset(raw, stable=False) == (E.NONE, 5)
            assert committed_offset(raw, stable=True) == (E.UNSTABLE_OFFSET_COMMIT, -1)
            given = raw.request(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0), 5)
            assert given.producer_id > max(state.producer_id for state in theirs.values())
        assert committed_values(broker.bootstrap, topic, 1) == ["kept"]
        again = producer(broker.bootstrap, "left")
        write(again, topic, "after")
        again.commit_transaction(60)
        assert committed_values(broker.bootstrap, topic, 1) == ["kept", "after"]
        with RawClient(broker.port) as raw:
            assert committed_offset(raw, stable=True) == (E.NONE, 5)


def committed_offset(raw: RawClient, *, stable: bool) -> tuple[int, int]:
    """Error and offset of group `g`, once it is loaded."""
    asked = OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id="g", topics=None)], require_stable=stable
    )
    group = wait_until(
        lambda: (found := raw.request(asked, 8).groups[0]).error_code == 0 and found, "the group to be loaded"
    )
    partition = group.topics[0].partitions[0]
    return partition.error_code, partition.committed_offset


def described(port: int, *names: str) -> dict[str, Any]:
    with RawClient(port) as raw:
        answer = raw.request(DescribeTransactionsRequest(transactional_ids=list(names)), 0)
    return {state.transactional_id: state for state in answer.transaction_states}
