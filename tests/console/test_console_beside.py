"""The console beside real parts: a schema registry, a lag server, an agent, a mirror, all in Chromium."""

from __future__ import annotations

import json

import pytest
from agent.harness import AgentProcess
from confluent_kafka import Consumer, TopicPartition
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import Select
from support.broker import new_name, new_topic, wait_until
from support.browser import Browser
from support.kafka_broker import free_port
from support.klamm import Server
from support.mirror import mirror_file, produce
from support.registry_process import RegistryProcess

from klamm.testing import EmbeddedBroker

pytestmark = pytest.mark.usefixtures("processes")

AVRO = {
    "type": "record",
    "name": "User",
    "fields": [{"name": "name", "type": "string"}, {"name": "age", "type": ["null", "int"]}],
}
JSON = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
PROTOBUF = 'syntax = "proto3"; message Order { string id = 1; int32 n = 2; }'


@pytest.fixture(scope="module")
def parts(broker, processes, tmp_path_factory):
    """Yields a console's address, with a registry, a lag server, an agent and a mirror beside its broker."""
    folder = tmp_path_factory.mktemp("beside")
    topic, read, copied = new_topic(broker), new_topic(broker), new_topic(broker)
    produce(broker.bootstrap, copied, ["a", "b", "c"])
    port = free_port()
    flows = {
        "A->B.enabled": "true", "topics": copied, "emit.heartbeats.enabled": "false",
        "dedicated.mode.enable.internal.rest": "true", "listeners": f"http://127.0.0.1:{port}",
    }  # fmt: skip
    agent = AgentProcess(folder / "agent", broker.bootstrap, topic, more="[metrics]\nport = 0")
    (folder / "agent/logs").mkdir(parents=True, exist_ok=True)
    (folder / "agent/logs/x.log").write_text("one\ntwo\nthree\n")
    agent.start()
    lag = (
        "listeners=http://127.0.0.1:0", f"bootstrap.servers={broker.bootstrap}", f"history.dir={folder / 'lag'}",
        "storage.min-distance=0", "evaluator.minimum-stop=1",
    )  # fmt: skip
    try:
        with (
            EmbeddedBroker() as target,
            RegistryProcess(
                broker.bootstrap, folder / "registry", **{"kafkastore.topic.replication.factor": "1"}
            ) as registry,
            Server("lag", "start", *(w for each in lag for w in ("--override", each))) as judge,
            Server("mirror", "start", str(_mirror(folder, broker, target, flows))),
        ):
            metrics = wait_until(lambda: agent.status().get("metrics_port"), "the agent's metrics")
            settings = (
                "listeners=http://127.0.0.1:0", f"bootstrap.servers={broker.bootstrap}", f"registry.url={registry.url}",
                f"lag.url={judge.ready['lag']}", f"mirror.url=http://127.0.0.1:{port}",
                f"metrics.urls=http://127.0.0.1:{metrics}/metrics",
            )  # fmt: skip
            with Server(
                "console", "start", *(w for each in settings for w in ("--override", each))
            ) as server:
                yield {
                    "console": server.ready["console"],
                    "registry": registry,
                    "topic": read,
                    "copied": copied,
                }
    finally:
        agent.kill()


def _mirror(folder, source, target, flows):
    return mirror_file(folder / "mm2.properties", {"A": source.bootstrap, "B": target.bootstrap}, flows)


def _text(driver, selector="main"):
    return driver.execute_script("return document.querySelector(arguments[0])?.innerText ?? ''", selector)


def _opened(driver, url, word, what):
    wait_until(lambda: driver.get(url) or word in _text(driver), what)
    return _text(driver)


def test_an_agent(parts, chromium):
    text = _opened(chromium, f"{parts['console']}/c/local/watched", "3 records, the last", "acknowledged")
    assert "1, 1 open" in text or "1, 0 open" in text
    assert "logs/**/*.log" in text
    assert "none" in text.partition("Errors")[2][:10]
    chromium.find_element(By.CSS_SELECTOR, "summary").click()
    assert "klamm_agent_lag_bytes" in _text(chromium)


def test_a_mirror_flow(parts, chromium):
    text = _opened(chromium, f"{parts['console']}/c/local/mirror", parts["copied"], "the flow's partition")
    assert f"A.{parts['copied']}" in text
    wait_until(lambda: "RUNNING" in _text(chromium), "it follows by itself")
    assert ("Gaps" in text, "Checkpoint" in text) == (True, True)


def test_a_group_is_judged(broker, parts, chromium):
    topic, group = parts["topic"], new_name("group")
    produce(broker.bootstrap, topic, [str(i) for i in range(20)])
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
    for offset in (3, 4):
        consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    consumer.close()
    text = _opened(chromium, f"{parts['console']}/c/local/groups/{group}", "Judged", "the judgement")
    assert ("Next record" in text, " old" in text) == (True, True)
    wait_until(lambda: chromium.find_elements(By.CSS_SELECTOR, ".chart canvas"), "the chart")
    wait_until(lambda: "age of the next record" in _text(chromium, ".chart"), "the age in the chart")
    browser = Browser(parts["console"])
    assert " old" in browser.get(f"/c/local/groups?q={group}")


@pytest.mark.parametrize(
    ("kind", "schema", "good", "bad"),
    [
        ("AVRO", json.dumps(AVRO), {"name": "ann", "age": {"int": 7}}, {"name": 1}),
        ("JSON", json.dumps(JSON), {"n": 7}, {"n": "x"}),
        ("PROTOBUF", PROTOBUF, {"id": "a", "n": 7}, {"nothing": 1}),
    ],
)
def test_a_record_is_produced_by_its_schema(broker, parts, chromium, kind, schema, good, bad):
    topic = new_topic(broker)
    status, _ = parts["registry"].ask(
        "POST", f"/subjects/{topic}-value/versions", {"schema": schema, "schemaType": kind}
    )
    assert status == 200
    url = f"{parts['console']}/c/local/topics/{topic}/produce"

    def chosen():
        chromium.get(url)
        return Select(chromium.find_element(By.NAME, "value_form")).first_selected_option.text == "schema"

    wait_until(chosen, "the subject is known, so its schema is offered")
    assert not chromium.find_element(By.NAME, "key_subject").is_displayed()
    chromium.find_element(By.NAME, "value").send_keys(json.dumps(bad))
    chromium.find_element(By.CSS_SELECTOR, "main button.good").click()
    wait_until(lambda: f"value: {topic}-value" in _text(chromium, ".wrong"), "what is wrong")
    area = chromium.find_element(By.NAME, "value")
    area.clear()
    area.send_keys(json.dumps(good))
    chromium.find_element(By.CSS_SELECTOR, "main button.good").click()
    wait_until(lambda: "is at offset 0" in _text(chromium), "the record")
    assert f"{kind.lower()}, schema" in _text(chromium)
    assert "7" in _text(chromium, "main pre:last-of-type") or "7" in _text(chromium)


def test_a_schema_that_is_not_there_is_a_sentence(broker, parts):
    topic, browser = new_topic(broker), Browser(parts["console"])
    browser.get("/")
    said = browser.post(f"/c/local/topics/{topic}/produce", value_form="schema", value="{}")
    assert (browser.status, f"value: {topic}-value" in said) == (400, True)
    assert "latest" not in browser.get(f"/c/local/topics/{topic}/records")
    wrong = browser.post(
        f"/c/local/topics/{topic}/produce", value_form="schema", value="{}", value_version="x"
    )
    assert "value_version: 'x' is no whole number" in wrong


def test_a_new_version_keeps_its_references(parts):
    registry, browser = parts["registry"], Browser(parts["console"])
    inner, outer = new_name("inner"), new_name("outer")
    registry.ask("POST", f"/subjects/{inner}/versions", {"schema": json.dumps(AVRO)})
    fields = [{"name": "user", "type": "User"}]
    record = {"type": "record", "name": "Order", "fields": fields}
    references = [{"name": "User", "subject": inner, "version": 1}]
    registry.ask(
        "POST", f"/subjects/{outer}/versions", {"schema": json.dumps(record), "references": references}
    )
    path = f"/c/local/schemas/{outer}"
    page = browser.get(path)
    shown = page.partition('name="references" rows="5" spellcheck="false">')[2].partition("</textarea>")[0]
    assert json.loads(shown) == references
    fields.append({"name": "note", "type": "string", "default": ""})
    text = json.dumps(record)
    assert "The schema is compatible." in browser.post(f"{path}/check", schema=text, references=shown)
    assert "The schema has the id" in browser.post(path, schema=text, references=shown)
    assert registry.ask("GET", f"/subjects/{outer}/versions/2")[1]["references"] == references
    assert "references: that is not JSON" in browser.post(path, schema=text, references="{")
