from __future__ import annotations

import shutil

import pytest
from support.broker import broker
from support.browser import Browser
from support.klamm import Server

from klamm.testing import EmbeddedWorker

__all__ = ["broker"]


@pytest.fixture(scope="module")
def worker(broker, tmp_path_factory):
    with EmbeddedWorker(broker.bootstrap, directory=tmp_path_factory.mktemp("worker")) as running:
        yield running


@pytest.fixture(scope="module")
def console(broker, worker):
    """Yields the address of a console over a broker and a worker."""
    settings = (
        "listeners=http://127.0.0.1:0", f"cluster.local.bootstrap.servers={broker.bootstrap}", f"cluster.local.connect.url={worker.url}",
    )  # fmt: skip
    with Server("console", "start", *(word for each in settings for word in ("--override", each))) as server:
        yield server.ready["console"]


@pytest.fixture
def browser(console):
    found = Browser(console)
    found.get("/")
    return found


@pytest.fixture(scope="module")
def chromium():
    """Yields a driver of Chromium."""
    program, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if program is None or driver is None:
        pytest.skip("no Chromium with its driver: apt install chromium chromium-driver")
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

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
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    found = webdriver.Chrome(options=options, service=Service(driver))
    yield found
    found.quit()
