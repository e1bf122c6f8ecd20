"""The console over a worker that is not ours: it hides nothing, answers slowly, and may be away."""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from support.broker import wait_until
from support.browser import Browser
from support.klamm import Server

from klamm.web.passwords import hash_password

CONFIG = {
    "connector.class": "Foreign", "name": "x", "query": "SELECT a -- all\nFROM b", "delimiter": " ", "pass.phrase.of": "geheim1",
    "db.password": "geheim2", "db.address": "mongodb://ann:geheim3@db/x",
}  # fmt: skip
TYPES = {"pass.phrase.of": "PASSWORD"}


class _Handler(BaseHTTPRequestHandler):
    def _answer(self, code, body):
        data = json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self):
        worker = self.server
        worker.lists += self.path == "/connectors"
        time.sleep(worker.pause_s)
        definitions = [{"name": key, "type": TYPES.get(key, "STRING")} for key in CONFIG]
        answers = {
            "/connectors": worker.names, "/connectors/x": {"name": "x", "config": CONFIG, "tasks": [], "type": "source"},
            "/connectors/x/config": CONFIG, "/connector-plugins/Foreign/config": definitions,
            "/connectors/x/status": {"connector": {"state": "RUNNING", "worker_id": "w"}, "tasks": [], "type": "source"},
        }  # fmt: skip
        found = None if worker.broken else answers.get(self.path)
        self._answer(*((404, {"message": "not here"}) if found is None else (200, found)))

    def do_PUT(self):
        worker = self.server
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        time.sleep(worker.pause_s)
        worker.asked.append((self.path, body))
        if worker.broken:
            self._answer(500, {"message": "broken"})
        elif not self.path.endswith("/validate"):
            self._answer(200, {})
        else:
            rows = [
                {
                    "definition": {
                        "name": k,
                        "type": TYPES.get(k, "STRING"),
                        "group": "All",
                        "order_in_group": i,
                    },
                    "value": {"name": k, "value": v, "errors": [], "visible": True},
                }
                for i, (k, v) in enumerate(sorted((dict.fromkeys(CONFIG, "") | body).items()))
            ]
            self._answer(200, {"error_count": 0, "groups": ["All"], "configs": rows})

    def log_message(self, *_):
        """Says nothing."""


class Worker(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.asked, self.names, self.pause_s, self.broken = [], ["x"], 0.0, False
        self.lists = 0
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        threading.Thread(target=self.serve_forever, daemon=True).start()


@pytest.fixture(scope="module")
def foreign():
    with Worker() as worker:
        yield worker
        worker.shutdown()


@pytest.fixture(scope="module")
def users(tmp_path_factory):
    path = tmp_path_factory.mktemp("users") / "users.toml"
    path.write_text(
        f'[anonymous]\nrole = "viewer"\n[users.ann]\npassword = "{hash_password("a")}"\nrole = "admin"\n'
    )
    return path


@pytest.fixture(scope="module")
def address(broker, foreign, users):
    settings = (
        "listeners=http://127.0.0.1:0", f"bootstrap.servers={broker.bootstrap}", f"connect.url={foreign.url}", f"rest.auth.file={users}",
        "cluster.away.bootstrap.servers=127.0.0.1:1",
    )  # fmt: skip
    with Server("console", "start", *(w for s in settings for w in ("--override", s))) as server:
        yield server.ready["console"]


@pytest.fixture
def worker(foreign):
    yield foreign
    foreign.pause_s, foreign.broken, foreign.names = 0.0, False, ["x"]
    foreign.asked.clear()


@pytest.fixture
def browser(address):
    found = Browser(address)
    found.get("/login")
    return found


@pytest.fixture
def ann(browser):
    browser.post("/login", user="ann", password="a")
    return browser


def test_no_secret_is_on_a_page(worker, browser):
    """A viewer's page, with a password by its type, one by its name, and one in an address."""
    text = browser.get("/c/local/connectors/x")
    assert "mongodb://ann:[hidden]@db/x" in text
    browser.post("/login", user="ann", password="a")
    text += browser.get("/c/local/connectors/x/edit")
    assert [word for word in ("geheim1", "geheim2", "geheim3") if word in text] == []


def test_a_save_keeps_what_the_form_does_not_show_or_cannot_write(worker, ann):
    shown = CONFIG | {
        "pass.phrase.of": "[hidden]", "db.password": "[hidden]", "db.address": "mongodb://ann:[hidden]@db/x",
        "query": CONFIG["query"].replace("\n", "\r\n"),
    }  # fmt: skip
    fields = {f"c.{k}": v for k, v in shown.items()}
    ann.post("/c/local/new-connector/form", editing="x", source="fields", **fields, **{"c.more": "1"})
    assert worker.asked[-1] == ("/connectors/x/config", CONFIG | {"more": "1"})
    said = ann.post(
        "/c/local/new-connector/form",
        editing="x", source="fields", **fields | {"c.db.address": "mongodb://ann:[hidden]@other/x"},
    )  # fmt: skip
    assert (ann.status, "db.address: [hidden] stands for a secret" in said) == (400, True)
    new = {"c.connector.class": "Foreign", "c.name": "y", "c.db.password": "[hidden]"}
    said = ann.post("/c/local/new-connector/form", source="fields", **new)
    assert (ann.status, "db.password: [hidden] stands for a secret" in said) == (400, True)


def test_a_viewer_has_nothing_checked(worker, browser):
    browser.get("/c/local/connectors")
    for path, fields in (
        ("form", {"c.connector.class": "Foreign"}), ("form", {"c.connector.class": "Foreign", "source": "json", "json": "{"}),
        ("check", {"c.connector.class": "Foreign"}),
    ):  # fmt: skip
        browser.post(f"/c/local/new-connector/{path}", **fields)
        assert browser.status == 403
    assert worker.asked == []


def test_who_needs_no_login_may_log_in(browser):
    assert '<a href="/login?to=%2Fc%2Flocal%2Fconnectors">Log in</a>' in browser.get("/c/local/connectors")
    browser.post("/login", user="ann", password="a")
    assert "/login?to" not in browser.get("/c/local/connectors")


def test_a_cluster_that_is_away_holds_up_no_page(worker, browser):
    began = time.monotonic()
    text = browser.get("/")
    assert time.monotonic() - began < 2
    assert (">asked</span>" in text or "unreachable" in text, 'hx-trigger="load delay:2s"' in text) == (
        True,
        True,
    )
    wait_until(lambda: "no answer within" in browser.get("/"), "the reason", timeout_s=15)


def test_a_list_that_took_long_tells_its_age(worker, browser):
    worker.pause_s = 0.3
    before = worker.lists
    wait_until(lambda: browser.get("/c/local/connectors") and worker.lists > before, "the list")
    worker.names = ["x", "y"]
    time.sleep(6)
    text = browser.get("/c/local/connectors")
    assert ("ago; the figures of now" in text, ">y</a>" in text) == (True, False)
    wait_until(lambda: ">y</a>" in browser.get("/c/local/connectors"), "the list of now")


def test_a_form_outlives_a_worker_that_is_broken(worker, ann):
    worker.broken = True
    fields = {"c.connector.class": "Foreign", "c.name": "x", "c.file": "/data"}
    text = ann.post("/c/local/new-connector/check", source="fields", **fields)
    assert ("Connect: broken" in text, 'name="c.file" value="/data"' in text) == (True, True)


@pytest.fixture
def driver(chromium, address):
    chromium.get(f"{address}/login")
    if chromium.find_elements(By.NAME, "user"):
        chromium.find_element(By.NAME, "user").send_keys("ann")
        chromium.find_element(By.NAME, "password").send_keys("a" + Keys.ENTER)
        wait_until(lambda: "/login" not in chromium.current_url, "the login")
    yield chromium
    chromium.delete_all_cookies()


def _value(driver, name):
    return driver.execute_script("return document.getElementsByName(arguments[0])[0]?.value", name)


def test_what_is_typed_while_a_form_is_checked_stays(worker, driver, address):
    driver.get(f"{address}/c/local/connectors/x/edit")
    assert _value(driver, "c.query") == CONFIG["query"]
    worker.pause_s = 1.0
    worker.asked.clear()
    driver.find_element(By.NAME, "c.name").send_keys("z\t")
    wait_until(lambda: driver.switch_to.active_element.get_attribute("name") != "c.name", "the next field")
    active = driver.switch_to.active_element
    name = active.get_attribute("name")
    active.send_keys("typed")
    wait_until(lambda: worker.asked, "the check")
    time.sleep(0.5)
    driver.switch_to.active_element.send_keys(" on")
    assert _value(driver, name).endswith("typed on")
    assert driver.switch_to.active_element.get_attribute("name") == name
    driver.switch_to.active_element.send_keys("\t")
    wait_until(lambda: "typed on" in _value(driver, "json"), "it is checked when it is left")


def test_a_form_stays_when_it_cannot_be_checked(worker, driver, address):
    driver.get(f"{address}/c/local/connectors/x/edit")
    driver.delete_all_cookies()
    driver.find_element(By.NAME, "c.name").send_keys("z\t")
    wait_until(lambda: driver.find_elements(By.CSS_SELECTOR, "#fields .unanswered"), "the sentence")
    assert _value(driver, "c.name") == "xz"


def test_a_page_that_is_not_renewed_says_so(worker, driver, address):
    driver.get(f"{address}/c/local/connectors/x")
    worker.broken = True
    said = wait_until(lambda: driver.find_elements(By.CSS_SELECTOR, "#live .stale"), "the sentence")
    assert "there is no connector x" in said[0].text
    worker.broken = False
    wait_until(lambda: not driver.find_elements(By.CSS_SELECTOR, "#live .stale"), "its end")


def test_a_link_from_elsewhere_opens_the_page_of_who_is_logged_in(worker, driver, address):
    elsewhere = worker.url.replace("127.0.0.1", "localhost")
    driver.get(f"{elsewhere}/connectors")
    driver.execute_script("location.href = arguments[0]", f"{address}/c/local/topics")
    wait_until(lambda: driver.current_url.startswith(address), "the page")
    assert "ann" in driver.find_element(By.CSS_SELECTOR, ".top").text
