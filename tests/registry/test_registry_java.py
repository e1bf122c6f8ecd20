"""Confluent's Java client against our registry, and its Avro rules as the oracle of ours: verdicts, reasons, canonical texts.

Confluent's jars are not at Maven Central, but Flink's Avro format has its client and its Avro provider within. Fetch it by
`mvn dependency:get -Dtransitive=false -Dartifact=org.apache.flink:flink-sql-avro-confluent-registry:1.20.0`.
"""

from __future__ import annotations

import base64
import json
import subprocess
from pathlib import Path
from random import Random
from typing import Any

import pytest
from registry.test_registry_compat import AVRO_CASES
from support import kafka_oracle
from support.broker import new_name
from support.registry_process import RegistryProcess

from klamm.registry.model import Schema
from klamm.registry.schemas import differences, read
from klamm.testing import EmbeddedBroker

SOURCE = Path(__file__).with_name("ConfluentClient.java")
JARS = Path.home() / ".m2/repository/org/apache/flink/flink-sql-avro-confluent-registry"
PAIRS = 3_000
pytestmark = pytest.mark.usefixtures("java_runtime")


def java(*args: str, stdin: str = "") -> list[str]:
    jar = next(JARS.glob("*/*.jar"), None)
    if jar is None:
        pytest.skip(f"Confluent's client is not here ({JARS}): see this module's first lines")
    oracle = kafka_oracle.require()
    logging = next(Path(oracle.home).glob("libs/slf4j-api-*.jar"))
    command = [oracle.java, "-Xmx256m", "-cp", f"{jar}:{logging}", str(SOURCE), *args]
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def decoded(text: str) -> str:
    return base64.b64decode(text).decode()


def schemas(random: Random, depth: int = 0) -> Any:
    """Returns some Avro schema, whose names are few, so that pairs resemble each other."""
    names = iter(random.sample(["A", "B", "C", "x.D", "x.E", "F"], 6))

    def some(depth: int) -> Any:
        kind = random.choice(
            ["primitive", "primitive", "logical", "union", "array", "map", "record", "enum", "fixed"]
        )
        if depth > 3 or kind == "primitive":
            return random.choice(["null", "int", "long", "float", "double", "string", "bytes", "boolean"])
        if kind == "logical":
            return random.choice(
                [{"type": "int", "logicalType": "date"}, {"type": "string", "p": [1, {"q": None}]}]
            )
        if kind == "union":
            return [
                "null",
                *random.sample(["int", "long", "string", "bytes", {"type": "array", "items": "int"}], 2),
            ]
        if kind in {"array", "map"}:
            return {"type": kind, "items" if kind == "array" else "values": some(depth + 1)}
        name = next(names, None)
        if name is None:
            return "int"
        made: dict[str, Any] = {"type": kind, "name": name}
        if random.random() < 0.3:
            made["doc"] = "it's ünïcode"
        if random.random() < 0.3:
            made["aliases"] = ["Old", "x.Other"]
        if kind == "enum":
            return {**made, "symbols": random.sample(["P", "Q", "R"], 2), **random.choice([{}, {"k": 1}])}
        if kind == "fixed":
            return {**made, "size": random.choice([4, 8])}
        if "." not in name and random.random() < 0.3:
            made["namespace"] = "y.z"
        fields = [{"name": n, "type": some(depth + 1)} for n in random.sample("abcd", 2)]
        for field in fields:
            if field["type"] in ("int", "long") and random.random() < 0.5:
                field["default"] = 1
            if random.random() < 0.2:
                field |= {"aliases": ["a", "b"], "order": "ignore", "own": {"x": 1}}
        return {**made, "fields": fields}

    return some(depth)


def test_avro_is_judged_and_written_as_by_confluent() -> None:
    random = Random(18)
    pairs = [(json.dumps(new), json.dumps(old)) for new, old, _ in AVRO_CASES]
    pairs += [(json.dumps(schemas(random)), json.dumps(schemas(random))) for _ in range(PAIRS)]
    answers = java("oracle", stdin="".join(f"{encoded(n)} {encoded(o)}\n" for n, o in pairs))
    assert len(answers) == len(pairs)
    for (new, old), answer in zip(pairs, answers, strict=True):
        text, *reasons = map(decoded, answer.split(" "))
        (kept, mine), (_, theirs) = (read(Schema(kind="AVRO", text=each)) for each in (new, old))
        assert kept.text == text
        found = [d.kind for d in differences(mine, theirs, ("new", "old"))]
        confluents = [each.partition("errorType:'")[2].partition("'")[0] for each in reasons]
        if reasons and reasons[0].startswith(
            "Unexpected exception"
        ):  # two fields of the writer are meant by one
            assert found
            continue
        assert found == confluents, f"{new} for {old}: {reasons}"


def test_the_client_of_java(broker: EmbeddedBroker, tmp_path: Path) -> None:
    with RegistryProcess(broker.bootstrap, tmp_path) as registry:
        found = dict(line.split(" ", 1) for line in java(registry.url, new_name()))
    assert "READER_FIELD_MISSING_DEFAULT_VALUE" in found.pop("why")
    assert found == {
        "distinct": "true", "same": "true", "by": "id true", "id": "true", "version": "2", "versions": "[1, 2]", "latest": "2",
        "fits": "true false", "refused": "409 409", "set": "FULL", "level": "FULL", "mode": "READONLY READONLY",
        "subjects": "true", "deleted": "2 [1]", "gone": "[1, 2]", "missing": "404 40401",
    }  # fmt: skip
