"""The console for everybody: axe-core finds nothing serious on any page, in light and dark, and a keyboard is enough."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Producer
from console.test_console_chromium import PAGES
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from support.broker import new_topic

FOLDER: Final = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "klamm-axe"
RUN: Final = """
const done = arguments[0];
axe.run(document, {resultTypes: ["violations"]}).then(
  r => done(r.violations.map(v => `${v.impact} ${v.id}: ${v.nodes[0].html.slice(0, 120)}`)), e => done(["critical " + e]));
"""


@pytest.fixture(scope="module")
def axe():
    """Returns the script of axe-core."""
    found = sorted(FOLDER.glob("axe-core-*.min.js"))
    if not found:
        pytest.skip(f"axe-core is not in {FOLDER}; tests/peers/fetch_axe.sh fetches it")
    return found[-1].read_text()


@pytest.fixture(scope="module")
def topic(broker):
    name = new_topic(broker)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce(name, json.dumps({"id": 1}), "k")
    producer.flush(30)
    return name


def _violations(driver, axe):
    # By the debugger: the page's policy lets no script of ours in
    driver.execute_cdp_cmd("Runtime.evaluate", {"expression": axe})
    return [v for v in driver.execute_async_script(RUN) if v.startswith(("serious", "critical"))]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(console, chromium, topic, axe, scheme):
    chromium.set_script_timeout(60)
    media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    chromium.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    found = {}
    for path in PAGES:
        chromium.get(console + path.format(topic=topic))
        found[path] = _violations(chromium, axe)
    assert {path: v for path, v in found.items() if v} == {}
    chromium.execute_script(
        "document.querySelector('main').innerHTML = '<input><img src=\"/static/icon.svg\">'"
    )
    assert len(_violations(chromium, axe)) == 2  # it does look


def test_a_keyboard_is_enough(console, chromium, topic):
    chromium.get(f"{console}/c/local/topics")
    body = chromium.find_element(By.TAG_NAME, "body")
    body.send_keys(Keys.TAB)
    skip = chromium.switch_to.active_element
    assert (skip.text, skip.location["x"] >= 0) == ("To the content", True)
    skip.send_keys(Keys.ENTER)
    seen = []
    for _ in range(12):
        chromium.switch_to.active_element.send_keys(Keys.TAB)
        now = chromium.switch_to.active_element
        shape = chromium.execute_script(
            "const s = getComputedStyle(arguments[0]); return s.outlineStyle + s.outlineWidth", now
        )
        assert shape not in ("none0px", "none3px"), now.get_attribute("outerHTML")[:100]
        seen.append(now.get_attribute("name") or now.text)
        if now.text == topic:
            break
    assert "Brokers" not in seen  # the navigation was skipped
    assert seen.index("q") < seen.index(topic)
    chromium.switch_to.active_element.send_keys(Keys.ENTER)
    assert topic in chromium.current_url
