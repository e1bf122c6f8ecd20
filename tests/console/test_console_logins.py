"""Logins of the console: what is remembered of strangers, what a login opens and for how long, and the metrics."""

from __future__ import annotations

import http.client
import json
from base64 import b64encode
from contextlib import closing, contextmanager

import pytest
from support.broker import new_topic, wait_until
from support.browser import Browser
from support.klamm import Server

from klamm.web.passwords import hash_password


def _users(path, role="viewer"):
    path.write_text(
        "".join(
            f'[users.{name}]\npassword = "{hash_password(name[0])}"\nrole = "{role}"\n'
            for name in ("ann", "vic")
        )
    )


@pytest.fixture(scope="module")
def users(tmp_path_factory):
    path = tmp_path_factory.mktemp("users") / "users.toml"
    _users(path)
    return path


@pytest.fixture(scope="module")
def address(broker, users):
    settings = (
        "listeners=http://127.0.0.1:0", f"bootstrap.servers={broker.bootstrap}", f"rest.auth.file={users}",
        "console.login.failures.max=3",
    )  # fmt: skip
    with Server("console", "start", *(w for s in settings for w in ("--override", s))) as server:
        yield server.ready["console"]


@pytest.fixture
def browser(address):
    found = Browser(address)
    found.get("/login")
    return found


def _ask(address, path, *, source="127.0.0.1", method="GET", body=None, **headers):
    made = http.client.HTTPConnection(address.removeprefix("http://"), timeout=30, source_address=(source, 0))
    with closing(made) as connection:
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read().decode()


def _form(browser):
    return {"Content-Type": "application/x-www-form-urlencoded", "Cookie": browser.cookie}


def _basic(login):
    return f"Basic {b64encode(login.encode()).decode()}"


def test_nothing_is_remembered_of_who_asks_for_no_page(address):
    for path in ("/health", "/static/console.css", "/static/nope.css", "/nope", "/c/local/topics"):
        assert _ask(address, path)[1].get("Set-Cookie") is None, path
    assert _ask(address, "/login")[1].get("Set-Cookie") is not None


def test_records_are_those_of_the_topics_that_a_grant_names(broker, address, users):
    """Whoever may see all connectors may not read the topic that has their passwords."""
    kept, names = users.read_text(), [new_topic(broker, name=name) for name in ("open-1", "hidden-1")]
    named = 'role = "viewer"\nconnectors = ["*"]\ntopics = ["*", "!hidden-*"]'
    browser = Browser(address)
    browser.get("/login")
    browser.post("/login", user="vic", password="v")

    def statuses():
        found = []
        for name in names:
            for path in ("", "/records", "/records/0/0", "/records/stream?from=earliest"):
                browser.get(f"/c/local/topics/{name}{path}")
                found.append(browser.status)
        return found

    try:
        assert 403 not in statuses()
        users.write_text(kept.replace('role = "viewer"', named))
        wait_until(lambda: 403 in statuses(), "the file is read again")
        assert [status == 403 for status in statuses()] == [False] * 4 + [True] * 4
    finally:
        users.write_text(kept)


def test_a_large_body_is_not_read_of_a_stranger(address, browser):
    body = f"csrf={browser.token}&user=ann&password={'a' * 20_000}"
    status, _, text = _ask(address, "/login", method="POST", body=body, **_form(browser))
    assert (status, "16 KiB" in text) == (413, True)
    status = _ask(address, "/c/local/new-topic", method="POST", body=body, **_form(browser))[0]
    assert status == 303  # to the login


def test_a_login_leads_to_this_console(browser):
    fields = {"csrf": browser.token, "user": "ann", "password": "a", "to": "/\t/evil.example"}
    browser.ask("POST", "/login", fields)
    assert (browser.status, browser.headers["Location"]) == (303, "/")


@contextmanager
def _tail(browser, topic):
    """Yields a function that returns the next line of a live tail; None: it has ended."""
    path = f"/c/local/topics/{topic}/records/stream?tail=1"
    with closing(http.client.HTTPConnection(browser.host, timeout=30)) as connection:
        connection.request("GET", path, headers={"Cookie": browser.cookie})
        with connection.getresponse() as answer:
            assert answer.status == 200
            yield lambda: answer.readline().decode() or None


def _last_words(line):
    lines = []
    while (text := line()) is not None:
        lines.append(text)
        assert len(lines) < 60, "the tail goes on"
    return "".join(lines[-3:])


def test_a_tail_ends_with_its_login(broker, browser):
    topic = new_topic(broker)
    browser.post("/login", user="ann", password="a")
    with _tail(browser, topic) as line:
        assert line()
        browser.post("/logout")
        assert "Your login has ended" in _last_words(line)


def test_a_tail_ends_with_the_right_to_see_it(broker, browser, users):
    topic = new_topic(broker)
    browser.post("/login", user="ann", password="a")
    with _tail(browser, topic) as line:
        assert line()
        users.write_text(users.read_text().replace("[users.ann]", "[users.eve]"))
        try:
            assert "Your login has ended" in _last_words(line)
        finally:
            _users(users)


def test_guessing_is_bounded(address, browser):
    def log_in(password, source):
        body = f"csrf={browser.token}&user=vic&password={password}"
        return _ask(address, "/login", source=source, method="POST", body=body, **_form(browser))

    assert [log_in(f"x{i}", "127.0.0.7")[0] for i in range(4)] == [401, 401, 401, 429]
    status, _, text = log_in("v", "127.0.0.7")  # also the right one
    assert (status, "Try again in 10 minutes" in text) == (429, True)
    assert _ask(address, "/metrics", source="127.0.0.7", Authorization=_basic("vic:v"))[0] == 429
    assert log_in("v", "127.0.0.8")[0] == 303


def test_metrics_for_prometheus(address):
    status, headers, _ = _ask(address, "/metrics")
    assert (status, headers["WWW-Authenticate"][:5]) == (401, "Basic")
    status, _, text = _ask(address, "/metrics", Authorization=_basic("vic:v"))
    assert status == 200
    lines = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert float(lines['klamm_console_logins_total{result="good"}']) >= 1
    assert float(lines["klamm_console_searches_max"]) == 8
    assert 'klamm_console_requests_total{method="GET",path="/metrics",status="401"}' in lines
    assert json.loads(_ask(address, "/health")[2]) == {"status": "healthy"}
