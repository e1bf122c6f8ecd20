"""Apache's tools that write and read records, against our broker and the files that it wrote."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support import kafka_oracle
from support.broker import new_name
from support.kafka_tools import KafkaTools, ToolResult

from klamm.testing import EmbeddedBroker

Tool = Callable[..., ToolResult]
pytestmark = pytest.mark.usefixtures("apache_kafka")

LINES = ["h1:v1,h2:v2\tkey-1\tfirst", "h1:v1\tkey-2\tzwölf 木", "h3:v3\tkey-3\t", "h4:v4\tkey-4\tNULL"]


def properties(option: str, **values: str) -> list[str]:
    """Returns options of the console tools: print__key=true is `print.key=true`."""
    pairs = (f"{k.replace('__', '.')}={v}" for k, v in values.items())
    return [word for pair in pairs for word in (option, pair)]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_console_producer_to_console_consumer(tool: Tool, codec: str) -> None:
    name = new_name()
    tool("kafka-topics", "--create", "--topic", name, "--partitions", "1").ok()
    reader = properties("--reader-property", parse__key="true", parse__headers="true", null__marker="NULL")
    tool(
        "kafka-console-producer",
        *("--topic", name, "--compression-codec", codec, *reader),
        stdin="".join(f"{line}\n" for line in LINES),
    ).ok()
    printed = properties(
        "--formatter-property",
        print__key="true",
        print__headers="true",
        print__offset="true",
        null__literal="NULL",
    )
    read = tool(
        "kafka-console-consumer", "--topic", name, "--from-beginning", "--max-messages", "4", *printed
    ).ok()
    assert read.lines == [f"Offset:{n}\t{line}" for n, line in enumerate(LINES)]
    assert "Processed a total of 4 messages" in read.err


def test_a_consumer_of_many_partitions(tool: Tool) -> None:
    """Java's consumer reads them in a fetch session: small polls make many incremental fetches."""
    name = new_name()
    tool("kafka-topics", "--create", "--topic", name, "--partitions", "100").ok()
    keyed = properties("--reader-property", parse__key="true")
    lines = [f"key-{n}\tvalue {n}" for n in range(600)]
    tool("kafka-console-producer", "--topic", name, *keyed, stdin="".join(f"{line}\n" for line in lines)).ok()
    small = properties("--command-property", max__poll__records="20", max__partition__fetch__bytes="200")
    read = tool(
        "kafka-console-consumer",
        *("--topic", name, "--from-beginning", "--max-messages", "600", *small),
        *properties("--formatter-property", print__key="true"),
    ).ok()
    assert sorted(read.lines) == sorted(lines)


def test_console_consumer_from_an_offset_of_a_partition(tool: Tool) -> None:
    name = new_name()
    tool("kafka-console-producer", "--topic", name, stdin="").ok()
    tool("kafka-topics", "--create", "--if-not-exists", "--topic", name, "--partitions", "1").ok()
    tool("kafka-console-producer", "--topic", name, stdin="".join(f"{n}\n" for n in range(200))).ok()
    where = ("--topic", name, "--partition", "0", "--offset", "190", "--max-messages", "10")
    assert tool("kafka-console-consumer", *where).ok().lines == [str(n) for n in range(190, 200)]


def test_offsets_and_deleted_records(tool: Tool, tmp_path: Path) -> None:
    name = new_name()
    tool("kafka-topics", "--create", "--topic", name, "--partitions", "2").ok()
    tool("kafka-console-producer", "--topic", name, stdin="".join(f"{n}\n" for n in range(30))).ok()

    def offsets(time: str) -> dict[int, int]:
        lines = tool("kafka-get-offsets", "--topic", name, "--time", time).ok().lines
        return {int(line.split(":")[1]): int(line.split(":")[2]) for line in lines}

    latest = offsets("latest")
    assert sum(latest.values()) == 30
    assert offsets("earliest") == {0: 0, 1: 0}
    assert offsets("earliest-local") == {0: 0, 1: 0}
    assert offsets("max-timestamp").keys() == {p for p, end in latest.items() if end}
    assert offsets("4102444800000") == {}  # nothing is that young

    full = max(latest, key=latest.__getitem__)
    plan = tmp_path / "delete.json"
    wanted = {"topic": name, "partition": full, "offset": 7}
    plan.write_text(json.dumps({"version": 1, "partitions": [wanted]}))
    done = tool("kafka-delete-records", "--offset-json-file", str(plan)).ok()
    assert f"partition: {name}-{full}\tlow_watermark: 7" in done.lines
    assert offsets("earliest")[full] == 7


def test_perf_tools_agree_about_what_went_through(tool: Tool) -> None:
    name = new_name()
    tool("kafka-topics", "--create", "--topic", name, "--partitions", "3").ok()
    produced = tool(
        "kafka-producer-perf-test",
        *("--topic", name, "--num-records", "20000", "--record-size", "200", "--throughput", "-1"),
        *("--command-property", "acks=all", "compression.type=lz4"),
    )
    assert produced.ok().lines[-1].startswith("20000 records sent, ")
    read = tool(
        "kafka-consumer-perf-test", "--topic", name, "--num-records", "20000", "--timeout", "20000"
    ).ok()
    names, values = (line.split(", ") for line in read.lines)
    assert dict(zip(names, values, strict=True))["data.consumed.in.nMsg"] == "20000"


def events(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def test_verifiable_producer_and_consumer(tool: Tool, broker: EmbeddedBroker) -> None:
    name, group = new_name(), new_name("group")
    # It closes itself in a hook of the JVM's end: a JVM of its own.
    produced = kafka_oracle.require().run(
        "org.apache.kafka.tools.VerifiableProducer",
        *("--bootstrap-server", broker.bootstrap, "--topic", name, "--max-messages", "300", "--acks", "-1"),
    )
    assert produced.returncode == 0, produced.stderr
    said = events(produced.stdout)
    assert said[-1]["name"] == "tool_data"
    assert (said[-1]["sent"], said[-1]["acked"]) == (300, 300)
    acknowledged = {(e["partition"], e["offset"]) for e in said if e["name"] == "producer_send_success"}
    assert len(acknowledged) == 300

    consumed = tool(
        "kafka-verifiable-consumer",
        *(
            "--topic",
            name,
            "--group-id",
            group,
            "--max-messages",
            "300",
            "--reset-policy",
            "earliest",
            "--verbose",
        ),
    ).ok()
    said = events(consumed.out)
    assert {(e["partition"], e["offset"]) for e in said if e["name"] == "record_data"} == acknowledged
    commits = [e for e in said if e["name"] == "offsets_committed"]
    assert all(e["success"] for e in commits)
    committed: dict[int, int] = {}
    for event in commits:
        committed |= {o["partition"]: o["offset"] for o in event["offsets"]}
    assert sum(committed.values()) == 300


def test_log_dirs(tool: Tool, broker: EmbeddedBroker) -> None:
    name = new_name()
    tool("kafka-topics", "--create", "--topic", name, "--partitions", "1").ok()
    tool("kafka-console-producer", "--topic", name, stdin="something\n").ok()
    answer = tool("kafka-log-dirs", "--describe", "--topic-list", name).ok().lines[-1]
    (directory,) = json.loads(answer)["brokers"][0]["logDirs"]
    assert directory["logDir"] == str(broker.data_dir)
    assert directory["error"] is None
    (partition,) = directory["partitions"]
    size = (broker.data_dir / f"{name}-0" / f"{0:020}.log").stat().st_size
    assert partition == {"partition": f"{name}-0", "size": size, "offsetLag": 0, "isFuture": False}


def test_dump_log_reads_our_consumer_offsets(
    tool: Tool, kafka_tools: KafkaTools, broker: EmbeddedBroker
) -> None:
    name, group = new_name(), new_name("group")
    tool("kafka-topics", "--create", "--topic", name, "--partitions", "1").ok()
    tool("kafka-console-producer", "--topic", name, stdin="1\n2\n3\n").ok()
    tool(
        "kafka-console-consumer",
        *("--topic", name, "--group", group, "--from-beginning", "--max-messages", "3"),
    ).ok()
    tool("kafka-consumer-groups", "--delete", "--group", group).ok()
    segments = sorted(broker.data_dir.glob(f"__consumer_offsets-*/{0:020}.log"))
    dumped = kafka_tools.run(
        "kafka-dump-log", "--files", ",".join(map(str, segments)), "--offsets-decoder", "--print-data-log"
    ).ok()
    assert "isvalid: false" not in dumped.out
    ours = [line for line in dumped.lines if f'"group":"{group}"' in line]
    keys = [json.loads(line.split(" key: ", 1)[1].split(" payload: ")[0]) for line in ours]
    values = [line.split(" payload: ", 1)[1] for line in ours]
    by_kind = [
        (key["type"], "<DELETE>" if v == "<DELETE>" else json.loads(v)["data"])
        for key, v in zip(keys, values, strict=True)
    ]
    (commit,) = [data for kind, data in by_kind if kind == "1" and data != "<DELETE>"]
    assert commit["offset"] == 3
    generations = [data for kind, data in by_kind if kind == "2" and data != "<DELETE>"]
    assert generations[0]["members"][0]["subscription"]["topics"] == [name]
    assert generations[-1]["members"] == []
    assert sorted(kind for kind, data in by_kind if data == "<DELETE>") == ["1", "2"]
