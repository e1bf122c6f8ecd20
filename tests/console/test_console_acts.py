"""Forms of the console that change something, filled in and sent in Chromium: ACLs, connectors and their offsets, plugin packages, subjects."""

from __future__ import annotations

import json

import pytest
from confluent_kafka import Producer
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import Select
from support.broker import new_name, new_topic, wait_until
from support.klamm import Server
from support.registry_process import RegistryProcess
from support.wheels import PLUGIN, make_wheel

from klamm.testing import EmbeddedBroker, EmbeddedWorker
from klamm_broker.server.authorizer_keys import STANDARD

pytestmark = pytest.mark.usefixtures("processes")


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    """Yields a console over a broker with an authorizer, a worker that installs packages, and a registry."""
    folder = tmp_path_factory.mktemp("acts")
    config = {"authorizer.class.name": STANDARD, "super.users": "User:ANONYMOUS"}
    with (
        EmbeddedBroker(folder / "data", config=config) as broker,
        EmbeddedWorker(broker.bootstrap, directory=folder / "worker") as worker,
        RegistryProcess(
            broker.bootstrap, folder / "registry", **{"kafkastore.topic.replication.factor": "1"}
        ) as registry,
    ):
        settings = (
            "listeners=http://127.0.0.1:0", f"bootstrap.servers={broker.bootstrap}", f"connect.url={worker.url}",
            f"registry.url={registry.url}",
        )  # fmt: skip
        with Server("console", "start", *(w for each in settings for w in ("--override", each))) as server:
            yield server.ready["console"], broker, worker, registry


def _text(driver):
    return driver.execute_script("return document.querySelector('main')?.innerText ?? ''")


def _press(driver, name):
    """Presses the first shown button that begins with this name."""
    buttons = driver.find_elements(By.CSS_SELECTOR, "main button")
    next(b for b in buttons if b.is_displayed() and b.text.startswith(name)).click()


def test_an_acl_is_made_and_deleted(parts, chromium):
    chromium.get(f"{parts[0]}/c/local/access")
    chromium.find_element(By.CSS_SELECTOR, "summary").click()
    chromium.find_element(By.NAME, "principal").send_keys("ann")
    Select(chromium.find_element(By.NAME, "operation")).select_by_visible_text("READ")
    Select(chromium.find_element(By.NAME, "kind")).select_by_visible_text("TOPIC")
    chromium.find_element(By.NAME, "name").send_keys("orders-")
    Select(chromium.find_element(By.NAME, "pattern")).select_by_visible_text("a beginning")
    _press(chromium, "Make")
    wait_until(lambda: "topic orders-*" in _text(chromium), "the ACL")
    assert "User:ann" in _text(chromium)
    _press(chromium, "Delete")
    wait_until(lambda: "Deleted:" in _text(chromium), "its end")
    assert "topic orders-*" not in _text(chromium)


def test_a_connector_is_paused_stopped_and_sent_back(parts, chromium, tmp_path):
    address, broker, worker, _ = parts
    topic, name, out = new_name(), new_name("sink"), tmp_path / "out"
    new_topic(broker, name=topic)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for i in range(5):
        producer.produce(topic, str(i))
    producer.flush(30)
    words = "org.apache.kafka.connect.storage.StringConverter"
    worker.create(
        name,
        {
            "connector.class": "FileStreamSink", "topics": topic, "file": str(out), "key.converter": words,
            "value.converter": words,
        },
    )  # fmt: skip
    url = f"{address}/c/local/connectors/{name}"
    wait_until(lambda: out.exists() and len(out.read_text().split()) == 5, "the records")
    for button, state in (
        ("Pause", "PAUSED"),
        ("Resume", "RUNNING"),
        ("Restart all", "RUNNING"),
        ("Stop", "STOPPED"),
    ):
        chromium.get(url)
        _press(chromium, button)
        wait_until(lambda: chromium.get(url) or f"State\n{state}" in _text(chromium), f"{button}: {state}")
    chromium.get(f"{url}/offsets")
    area = chromium.find_element(By.NAME, "offsets")
    assert '"kafka_offset": 5' in area.get_attribute("value")
    area.clear()
    place = {"partition": {"kafka_topic": topic, "kafka_partition": 0}, "offset": {"kafka_offset": 3}}
    area.send_keys(json.dumps({"offsets": [place]}))
    _press(chromium, "Set these")
    wait_until(lambda: '"kafka_offset": 3' in _text(chromium), "new offsets")
    chromium.get(url)
    _press(chromium, "Resume")
    wait_until(lambda: out.read_text().split() == list("0123434"), "two records again")
    chromium.get(f"{url}/history")
    assert "STOPPED" in _text(chromium)


def test_a_failed_connectors_history_has_its_trace(parts, chromium, tmp_path):
    address, broker, worker, _ = parts
    topic, name = new_topic(broker), new_name("sink")
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce(topic, b"no number")
    producer.flush(30)
    numbers = "org.apache.kafka.connect.converters.LongConverter"
    config = {"connector.class": "FileStreamSink", "topics": topic, "file": str(tmp_path / "out")}
    worker.create(name, config | {"value.converter": numbers})
    url = f"{address}/c/local/connectors/{name}/history"
    wait_until(lambda: chromium.get(url) or "state FAILED" in _text(chromium), "the failure")
    trace = chromium.find_element(By.CSS_SELECTOR, ".events details")
    assert "\n" not in trace.text  # its first line
    trace.find_element(By.TAG_NAME, "summary").click()
    assert "Caused by:" in trace.find_element(By.TAG_NAME, "pre").text
    worker.delete(name)


def test_a_package_is_installed_and_removed(parts, chromium, tmp_path):
    code = PLUGIN.format(name="Shown", version="1.2").replace("import acme_lib", "")
    wheel = make_wheel(
        tmp_path, "acme-shown", "1.2", {"acme_shown.py": code}, entry_points={"acme-shown": "acme_shown"}
    )
    chromium.get(f"{parts[0]}/c/local/plugins")
    chromium.find_element(By.NAME, "wheel").send_keys(str(wheel))
    _press(chromium, "Install")
    wait_until(lambda: "acme-shown 1.2 was installed." in _text(chromium), "the package")
    wait_until(
        lambda: chromium.get(f"{parts[0]}/c/local/plugins") or "ShownConnector" in _text(chromium),
        "its class",
    )
    wait_until(
        lambda: chromium.get(f"{parts[0]}/c/local/new-connector") or "ShownConnector" in _text(chromium),
        "to choose",
    )
    chromium.get(f"{parts[0]}/c/local/plugins")
    _press(chromium, "Remove")
    wait_until(lambda: "acme-shown 1.2 was removed." in _text(chromium), "its end")


def test_a_subject_is_deleted(parts, chromium):
    address, _, _, registry = parts
    subject = new_name("subject")
    registry.ask("POST", f"/subjects/{subject}/versions", {"schema": '"string"'})
    chromium.get(f"{address}/c/local/schemas/{subject}")
    chromium.find_element(By.NAME, "confirm").send_keys(subject)
    _press(chromium, "Delete")
    wait_until(lambda: f"Subject {subject} was deleted." in _text(chromium), "its end")
    assert registry.ask("GET", f"/subjects/{subject}/versions")[0] == 404


def test_a_user_and_quotas_are_made_and_removed(parts, chromium):
    name = new_name("user")

    def fill(summary, fields, button):
        chromium.get(f"{parts[0]}/c/local/access")
        chromium.find_element(By.XPATH, f"//summary[text()='{summary}']").click()
        form = chromium.find_element(By.XPATH, f"//details[summary[text()='{summary}']]")
        for field, text in fields.items():
            form.find_element(By.NAME, field).send_keys(text)
        form.find_element(By.XPATH, f".//button[text()='{button}']").click()

    fill("New user or password", {"user": name, "password": "geheim"}, "Save")
    wait_until(lambda: f"{name} has a password for SCRAM" in _text(chromium), "the user")
    assert "geheim" not in chromium.page_source
    fill("Set quotas", {"user": name, "producer_byte_rate": "1024"}, "Set")
    wait_until(lambda: "producer_byte_rate=1,024" in _text(chromium), "the quota")
    fill("Set quotas", {"user": name, "producer_byte_rate": "much"}, "Set")
    wait_until(lambda: "is no number" in _text(chromium), "the error")
    fill("Set quotas", {"user": name}, "Set")
    wait_until(lambda: "producer_byte_rate=1,024" not in _text(chromium), "no quota")
    row = f"//tr[th[text()='{name}']]//button[starts-with(normalize-space(), 'Remove')]"
    chromium.find_element(By.XPATH, row).click()
    wait_until(lambda: f"{name} has no SCRAM" in _text(chromium), "the user's end")


def test_dead_letters_are_looked_at_and_sent_again(parts, chromium, tmp_path):
    address, broker, worker, _ = parts
    topic, name = new_name(), new_name("sink")
    new_topic(broker, name=topic)
    worker.create(
        name,
        {
            "connector.class": "FileStreamSink", "topics": topic, "file": str(tmp_path / "out"),
            "value.converter": "org.apache.kafka.connect.json.JsonConverter", "value.converter.schemas.enable": "false",
            "errors.tolerance": "all", "errors.deadletterqueue.topic.name": f"{name}-dlq",
            "errors.deadletterqueue.topic.replication.factor": "1", "errors.deadletterqueue.context.headers.enable": "true",
        },
    )  # fmt: skip
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce(topic, b"{bad")
    producer.flush(30)
    url = f"{address}/c/local/dead-letters/{name}-dlq"
    wait_until(lambda: chromium.get(url) or f"{topic}-0@0" in _text(chromium), "the letter")
    chromium.find_element(By.CSS_SELECTOR, ".records details summary").click()
    worker.halt(name)  # else the letter comes back
    wait_until(lambda: not worker.status(name)["tasks"], "its tasks have ended")
    _press(chromium, "What would be sent")
    wait_until(lambda: f"1 record would be sent to {topic}." in _text(chromium), "the look")
    _press(chromium, "Send again")
    wait_until(lambda: f"Sent again: 1 record to {topic}." in _text(chromium), "it is sent")
    assert "Not sent again\n0" in _text(chromium)
    chromium.get(f"{address}/c/local/dead-letters/{name}-dlq?error=nothing-holds-this")
    assert "None." in _text(chromium)
    worker.delete(name)
