"""The paths of v3: all that Confluent's OpenAPI document lists (kafka-rest, August 2026), and their row in the page."""

from __future__ import annotations

import re
from pathlib import Path

from klamm.restproxy.endpoints import V3_ENDPOINTS

PAGE = Path(__file__).resolve().parents[2] / "docs/rest-proxy.md"
CONFLUENTS = """
GET /clusters
GET /clusters/C
GET POST DELETE /clusters/C/acls
POST /clusters/C/acls:batch
GET /clusters/C/broker-configs
POST /clusters/C/broker-configs:alter
GET PUT DELETE /clusters/C/broker-configs/N
GET /clusters/C/brokers
GET /clusters/C/brokers/B
GET /clusters/C/brokers/-/configs
GET /clusters/C/brokers/B/configs
POST /clusters/C/brokers/B/configs:alter
GET PUT DELETE /clusters/C/brokers/B/configs/N
GET /clusters/C/brokers/B/partition-replicas
GET /clusters/C/consumer-groups
GET /clusters/C/consumer-groups/G
GET /clusters/C/consumer-groups/G/consumers
GET /clusters/C/consumer-groups/G/consumers/M
GET /clusters/C/consumer-groups/G/consumers/M/assignments
GET /clusters/C/consumer-groups/G/consumers/M/assignments/T/partitions/P
GET /clusters/C/consumer-groups/G/lag-summary
GET /clusters/C/consumer-groups/G/lags
GET /clusters/C/consumer-groups/G/lags/T/partitions/P
GET POST /clusters/C/topics
GET PATCH DELETE /clusters/C/topics/T
GET /clusters/C/topics/-/configs
POST /clusters/C/topics/-/configs:alter
GET /clusters/C/topics/-/partitions/-/reassignment
GET /clusters/C/topics/T/configs
POST /clusters/C/topics/T/configs:alter
GET PUT DELETE /clusters/C/topics/T/configs/N
GET /clusters/C/topics/T/partitions
GET /clusters/C/topics/T/partitions/-/reassignment
GET /clusters/C/topics/T/partitions/P
GET /clusters/C/topics/T/partitions/P/offset
GET /clusters/C/topics/T/partitions/P/reassignment
GET /clusters/C/topics/T/partitions/P/replicas
GET /clusters/C/topics/T/partitions/P/replicas/B
POST /clusters/C/topics/T/records
POST /clusters/C/topics/T/records:batch
"""
LETTERS = {
    "cluster": "C",
    "broker": "B",
    "group": "G",
    "consumer": "M",
    "topic": "T",
    "partition": "P",
    "name": "N",
}


def rows(text: str) -> set[tuple[str, str]]:
    found = set()
    for line in text.split("\n"):
        *methods, path = line.split() or [""]
        found |= {(method, path) for method in methods}
    return found


def test_every_path_of_confluents_document_is_answered() -> None:
    ours = {
        (each.method, re.sub(r"\{(\w+)\}", lambda m: LETTERS[m[1]], each.template.removeprefix("/v3")))
        for each in V3_ENDPOINTS
    }
    assert ours == rows(CONFLUENTS)


def test_the_page_lists_every_path() -> None:
    """Its table has the path below the cluster, and the methods, and says yes to each."""
    listed = re.findall(r"^\| `(/[^`]*)` \| ([A-Z, ]+) \| yes \|$", PAGE.read_text(), re.MULTILINE)
    found = {(method, f"/clusters{path}") for path, methods in listed for method in methods.split(", ")}
    assert found | {("GET", "/clusters")} == rows(CONFLUENTS)
