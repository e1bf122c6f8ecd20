"""The console in Chromium: what needs a real browser. Every page runs without an error of the browser, on a phone's width as well."""

from __future__ import annotations

import json
import time

import pytest
from confluent_kafka import Producer
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from support.broker import new_name, new_topic, wait_until


@pytest.fixture(scope="module")
def topic(broker):
    name = new_topic(broker, partitions=2)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for i in range(300):
        producer.produce(name, json.dumps({"id": i, "note": "<img src=x onerror=alert(1)>"}), f"k{i}")
    producer.flush(30)
    return name


def _text(driver, selector):
    """Returns what is read there now: the page may be replacing the element meanwhile."""
    return driver.execute_script("return document.querySelector(arguments[0])?.innerText ?? ''", selector)


def _value(driver, name, attribute="value"):
    """Returns a field as it is now."""
    return driver.execute_script(
        "const f = document.getElementsByName(arguments[0])[0]; return f && (f[arguments[1]] ?? f.getAttribute(arguments[1]))",
        name,
        attribute,
    )


def _said_by_browser(driver):
    return [entry["message"] for entry in driver.get_log("browser") if entry["level"] == "SEVERE"]


def test_a_search_shows_results_and_a_tail_what_comes(broker, console, chromium, topic):
    chromium.get(f"{console}/c/local/topics/{topic}/records")
    chromium.find_element(By.NAME, "where").send_keys("value.id >= 290")
    chromium.find_element(By.CSS_SELECTOR, ".search .good").click()
    wait_until(lambda: "10 records" in _text(chromium, ".progress"), "the search is done")
    assert len(chromium.find_elements(By.CSS_SELECTOR, ".records tbody tr")) == 10
    assert "where=value.id" in chromium.current_url  # a link to this search
    assert "<img" in _text(chromium, ".records tbody")  # text, not an image
    chromium.find_element(By.NAME, "where").clear()
    chromium.find_element(By.NAME, "tail").click()
    wait_until(
        lambda: "Waiting" in _text(chromium, ".progress") or "since" in _text(chromium, ".progress"),
        "the tail",
    )
    time.sleep(1)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce(topic, b"fresh")
    producer.flush(30)
    wait_until(lambda: "fresh" in _text(chromium, ".records"), "the new record")
    chromium.find_element(By.CSS_SELECTOR, ".stop").click()
    assert "Stopped" in _text(chromium, ".progress")
    assert _said_by_browser(chromium) == []


def test_a_list_follows_its_search(broker, console, chromium, topic):
    other = new_topic(broker, name=new_name("zzz"))
    wait_until(lambda: chromium.get(f"{console}/c/local/topics") or other in chromium.page_source, "listed")
    chromium.find_element(By.TAG_NAME, "body").send_keys("/")  # the key goes to the search field
    assert chromium.switch_to.active_element.get_attribute("name") == "q"
    chromium.switch_to.active_element.send_keys(other)
    wait_until(lambda: topic not in _text(chromium, "#list"), "the list is searched")
    assert other in _text(chromium, "#list")
    assert f"q={other}" in chromium.current_url
    assert _said_by_browser(chromium) == []


def test_a_form_and_its_json_stay_in_step(console, chromium, topic, tmp_path):
    chromium.get(f"{console}/c/local/new-connector/form?plugin=FileStreamSink")
    chromium.find_element(By.NAME, "c.name").send_keys("in-step\t")
    wait_until(lambda: "in-step" in _value(chromium, "json"), "JSON follows")
    area = chromium.find_element(By.NAME, "json")
    given = {"connector.class": "FileStreamSink", "name": "in-step", "topics": topic, "tasks.max": "x"}
    area.send_keys(Keys.CONTROL, "a")
    area.send_keys(json.dumps(given) + "\t")
    wait_until(lambda: _value(chromium, "c.topics") == topic, "fields follow")
    wait_until(lambda: _value(chromium, "c.tasks.max", "aria-invalid") == "true", "the field has its error")
    about = _value(chromium, "c.tasks.max", "aria-describedby")
    assert "Invalid value x" in _text(chromium, f"#{about}")
    assert _said_by_browser(chromium) == []


PAGES = (
    "/", "/c/local", "/c/local/brokers/1", "/c/local/topics", "/c/local/new-topic", "/c/local/topics/{topic}",
    "/c/local/topics/{topic}/records", "/c/local/topics/{topic}/records/0/0", "/c/local/topics/{topic}/settings",
    "/c/local/topics/{topic}/settings/edit", "/c/local/topics/{topic}/change", "/c/local/topics/{topic}/produce", "/c/local/groups",
    "/c/local/connectors", "/c/local/plugins", "/c/local/new-connector", "/c/local/new-connector/form?plugin=FileStreamSink",
    "/c/local/dead-letters", "/c/local/access",
)  # fmt: skip


@pytest.mark.parametrize("width", [360, 1280])
def test_every_page_runs_and_fits(console, chromium, topic, width):
    chromium.set_window_size(width, 900)
    wide, unnamed = [], []
    for path in PAGES:
        chromium.get(console + path.format(topic=topic))
        if chromium.execute_script("return document.documentElement.scrollWidth > innerWidth + 1"):
            wide.append(path)
        unnamed += [path + " " + text for text in chromium.execute_script(NAMELESS)]
        assert _said_by_browser(chromium) == [], path
    chromium.set_window_size(1280, 900)
    assert (wide, unnamed) == ([], [])


NAMELESS = """
return [...document.querySelectorAll('input:not([type=hidden]),select,textarea,button,a,th')]
  .filter(e => !(e.textContent.trim() || e.getAttribute('aria-label') || (e.labels && [...e.labels].some(l => l.textContent.trim()))))
  .map(e => e.outerHTML.slice(0, 90))
"""
"""Returns what a screen reader could not name."""
