"""The Compose installation on a Docker engine: logs, a table and a mirrored topic arrive where they should."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

COMPOSE = Path(__file__).parents[2] / "compose"
ELASTICSEARCH = "http://127.0.0.1:9200"

pytestmark = [pytest.mark.usefixtures("docker_engine"), pytest.mark.timeout(1800)]


@pytest.fixture(scope="session")
def docker_compose_file() -> str:
    return str(COMPOSE / "compose.yaml")


@pytest.fixture(scope="session")
def docker_compose_project_name() -> str:
    return "klamm-tests"


@pytest.fixture(scope="session")
def docker_setup() -> list[str]:
    return ["down --volumes", "up --build --wait --detach"]


@pytest.fixture(scope="session")
def installation(docker_engine: None, request: pytest.FixtureRequest):
    return request.getfixturevalue("docker_services")


def get(url: str, body: dict | None = None) -> dict:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=10) as answer:
        return json.load(answer)


def wait_for(found: Callable[[], object], what: str, within_s: float = 300) -> None:
    until = time.monotonic() + within_s
    while time.monotonic() < until:
        try:
            if found():
                return
        except (urllib.error.URLError, OSError, KeyError):
            pass
        time.sleep(1)
    raise AssertionError(f"{what}: not within {within_s:g} s")


def hits(index: str, query: dict) -> int:
    url = f"{ELASTICSEARCH}/{index}/_count?ignore_unavailable=true"
    return get(url, {"query": query})["count"]


def test_a_request_becomes_a_document(installation):
    name = f"probe-{time.time_ns()}"
    with pytest.raises(urllib.error.HTTPError):
        urllib.request.urlopen(f"http://127.0.0.1:8000/{name}", timeout=10)
    wait_for(
        lambda: hits("logs-access-compose", {"term": {"url.original": f"/{name}"}}) == 1,
        "the request's document",
    )


def test_everything_is_watched(installation):
    def down() -> list[str]:
        found = get("http://127.0.0.1:9090/api/v1/targets")["data"]["activeTargets"]
        return [t["scrapeUrl"] for t in found if t["health"] != "up"] or (
            [] if found else ["nothing is scraped"]
        )

    wait_for(lambda: not down(), "every target is scraped")
    for name in ("broker", "connect", "mirror", "pipeline"):
        assert get(f"http://127.0.0.1:3000/api/dashboards/uid/klamm-{name}")["dashboard"]["panels"]


def test_kibana_has_its_dashboard(installation):
    url = "http://127.0.0.1:5601/api/saved_objects/dashboard/klamm-logs-dashboard"
    wait_for(lambda: get(url)["attributes"]["title"] == "Klamm logs", "the dashboard")


def test_a_row_becomes_a_document_and_goes_with_it(installation):
    installation._docker_compose.execute(
        'exec -T mysql sh -c \'mysql -uroot -p"$MYSQL_ROOT_PASSWORD" shop -e '
        '"INSERT INTO customers (id, name, email) VALUES (1000, \\"Klamm\\", \\"k@example.com\\")"\''
    )
    index = "mysql.shop.customers"
    wait_for(lambda: hits(index, {"term": {"id": 1000}}) == 1, "the row's document")
    installation._docker_compose.execute(
        'exec -T mysql sh -c \'mysql -uroot -p"$MYSQL_ROOT_PASSWORD" shop -e "DELETE FROM customers WHERE id = 1000"\''
    )
    wait_for(lambda: hits(index, {"term": {"id": 1000}}) == 0, "the document's end")


def test_a_topic_is_mirrored(installation):
    producer = Producer({"bootstrap.servers": "127.0.0.1:9092"})
    sent = [f"value-{i}" for i in range(100)]
    for value in sent:
        producer.produce("orders", value)
    assert producer.flush(60) == 0
    consumer = Consumer(
        {
            "bootstrap.servers": "127.0.0.1:9192",
            "group.id": "compose-test",
            "auto.offset.reset": "earliest",
            "topic.metadata.refresh.interval.ms": 1000,
            "allow.auto.create.topics": False,
        }
    )
    consumer.subscribe(["main.orders"])
    seen: set[str] = set()

    def all_there() -> bool:
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            seen.add(message.value().decode())
        return seen == set(sent)

    try:
        wait_for(all_there, "the mirrored records")
    finally:
        consumer.close()
