"""The console's form for a new connector, filled in by Chromium where it is there, else sent as a browser would send it."""

from __future__ import annotations

import http.cookiejar
import importlib.util
import json
import re
import shutil
import urllib.parse
import urllib.request
from collections.abc import Mapping
from typing import Any

from servers import Stop, say, wait


def make_connector(console: str, config: Mapping[str, str]) -> None:
    """Makes a connector in the form: first with a mistake, which it must show at its field. Raises Stop."""
    programs = shutil.which("chromium"), shutil.which("chromedriver")
    if None in programs or importlib.util.find_spec("selenium") is None:
        say("no Chromium with its driver and selenium here: the form is sent without a browser")
        _without(console, config)
    else:
        _chromium(console, config, *map(str, programs))


def _chromium(console: str, config: Mapping[str, str], program: str, driver: str) -> None:
    from selenium import webdriver
    from selenium.common.exceptions import WebDriverException
    from selenium.webdriver.chrome.service import Service
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys

    options = webdriver.ChromeOptions()
    options.binary_location = program
    for word in (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--window-size=1280,900",
    ):
        options.add_argument(word)
    page = webdriver.Chrome(options=options, service=Service(driver))
    try:
        page.get(console)
        say(f"Chromium shows {console}: {page.title}")
        page.get(f"{console}/c/local/new-connector/form?plugin={config['connector.class']}")

        def field(name: str, key: str) -> Any:
            script = "const f = document.getElementsByName(arguments[0])[0]; return f && (f[arguments[1]] ?? f.getAttribute(arguments[1]))"
            return page.execute_script(script, name, key)

        area = page.find_element(By.NAME, "json")
        area.send_keys(Keys.CONTROL, "a")
        area.send_keys(json.dumps({**config, "tasks.max": "many"}) + "\t")
        wait(lambda: field("c.tasks.max", "aria-invalid") == "true", "the wrong field has its error")
        described = str(field("c.tasks.max", "aria-describedby"))
        wrong = page.execute_script(
            "return document.querySelector(arguments[0])?.innerText", f"#{described} .wrong"
        )
        say(f"tasks.max=many: the form says {wrong!r}")

        def corrected() -> bool:
            try:  # the page may be replacing its fields meanwhile
                page.execute_script(
                    "document.getElementsByName('c.tasks.max')[0].closest('details').open = true"
                )
                tasks = page.find_element(By.NAME, "c.tasks.max")
                tasks.clear()
                tasks.send_keys("1\t")
            except WebDriverException:
                return False
            return True

        wait(corrected, "the field can be corrected")
        wait(lambda: '"1"' in str(field("json", "value")), "JSON follows the field")
        page.find_element(By.CSS_SELECTOR, "form.connector .stick .good").click()
        wait(lambda: f"Connector {config['name']} was saved." in page.page_source, "the connector is saved")
    finally:
        page.quit()


def _without(console: str, config: Mapping[str, str]) -> None:
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar()))
    with opener.open(
        f"{console}/c/local/new-connector/form?plugin={config['connector.class']}", timeout=60
    ) as answer:
        token = re.findall(r'data-token="(\w+)"', answer.read().decode())[0]

    def send(path: str, settings: Mapping[str, str]) -> str:
        fields = {"csrf": token, "source": "json", "json": json.dumps(settings)}
        with opener.open(f"{console}{path}", urllib.parse.urlencode(fields).encode(), timeout=60) as page:
            return str(page.read().decode())

    found = re.findall(
        r'class="wrong">([^<]+)', send("/c/local/new-connector/check", {**config, "tasks.max": "many"})
    )
    if not found:
        raise Stop("the form took tasks.max=many")
    say(f"tasks.max=many: the form says {found[0]!r}")
    if f"Connector {config['name']} was saved." not in send("/c/local/new-connector/form", config):
        raise Stop("the form did not save the connector")
