"""The console's settings, sessions and forms of connectors."""

from __future__ import annotations

import asyncio

import pytest

from klamm.console.attempts import WINDOW_S, Attempts
from klamm.console.cluster import SLOW_S, Cluster
from klamm.console.errors import ConsoleError, Upstream
from klamm.console.form import as_fields, hide, read_config, sorted_groups, unhide
from klamm.console.pages.login import _target
from klamm.console.pages.produce import encoded
from klamm.console.sessions import SESSIONS_MAX, Sessions
from klamm.console.settings import read_settings
from klamm.console.threads import in_thread
from klamm_base.errors import ConfigError
from klamm_base.properties import from_overrides


def _settings(*lines):
    return read_settings(from_overrides(lines))


def test_clusters_by_name_and_one_without():
    found = _settings(
        "bootstrap.servers=a:1",
        "security.protocol=SSL",
        "cluster.far.bootstrap.servers=b:2,c:3",
        "cluster.far.connect.url=https://c:8083/",
        "cluster.far.connect.user=ann",
        "cluster.far.connect.password=geheim",
        "cluster.far.sasl.mechanism=PLAIN",
    )
    local, far = found.clusters["local"], found.clusters["far"]
    assert (local.bootstrap, local.client) == ("a:1", {"security.protocol": "SSL"})
    assert (far.bootstrap, far.client, far.connect.url) == (
        "b:2,c:3",
        {"sasl.mechanism": "PLAIN"},
        "https://c:8083",
    )
    assert "geheim" not in repr(found)
    assert _settings().clusters["local"].bootstrap == "127.0.0.1:9092"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("cluster.far.bootstrap.server=b:2", "did you mean bootstrap.servers"),
        ("cluster.far=b:2", "write cluster.NAME.bootstrap.servers"),
        ("cluster.far.connect.url=c:8083", "write http://HOST:PORT"),
        ("cluster.far.connect.url=http://a:b@c:8083", "keys of their own"),
        ("cluster.local.bootstrap.servers=nonsense", "must look like host:port"),
        ("console.searches.max=0", "at least 1"),
    ],
)  # fmt: skip
def test_wrong_settings_are_refused_in_words(line, said):
    with pytest.raises(ConfigError, match=said):
        _settings("cluster.local.bootstrap.servers=a:1", line)


def test_a_session_ends_and_a_login_gets_a_new_one():
    sessions = Sessions(idle_s=60, most_s=1000)
    first = sessions.make(0)
    sessions.keep(first)
    token = sessions.token(first)
    assert sessions.right(first, token)
    assert not sessions.right(first, "")
    logged_in = sessions.log_in(first, "ann", "Basic x", 10)
    assert sessions.find(first.id, 11) is None
    assert not sessions.right(logged_in, token)
    assert sessions.find(logged_in.id, 70) is logged_in
    assert sessions.find(logged_in.id, 131) is None


def test_a_login_ends_after_its_longest_time_however_busy_it_is():
    sessions = Sessions(idle_s=60, most_s=100)
    session = sessions.log_in(sessions.make(0), "ann", "Basic x", 0)
    assert all(sessions.find(session.id, now_s) is session for now_s in (50, 100))
    assert not sessions.lives(session, 101)
    assert sessions.find(session.id, 101) is None
    assert sessions.logged_in == 0


def test_strangers_push_out_no_login():
    sessions = Sessions(idle_s=60, most_s=1000)
    ann = sessions.log_in(sessions.make(0), "ann", "Basic x", 0)
    oldest = sessions.make(0)
    sessions.keep(oldest)
    for _ in range(SESSIONS_MAX):
        sessions.keep(sessions.make(1))
    assert (sessions.anonymous, sessions.logged_in) == (SESSIONS_MAX, 1)
    assert sessions.find(oldest.id, 1) is None
    assert sessions.find(ann.id, 1) is ann


def test_logins_of_an_address_are_bounded():
    attempts = Attempts(3)
    assert [attempts.wait_s("10.0.0.1", now_s) for now_s in (0, 1, 2, 3)] == [0, 0, 0, WINDOW_S - 3]
    assert attempts.wait_s("10.0.0.2", 3) == 0
    assert attempts.wait_s("10.0.0.1", WINDOW_S) == 0  # the first is old
    assert attempts.wait_s("10.0.0.1", WINDOW_S) == 1
    assert [attempts.wait_s(f"2001:db8::{i}", 0) > 0 for i in range(4)] == [False, False, False, True]
    for _ in range(10):
        assert attempts.wait_s("10.0.0.3", 0) == 0
        attempts.succeeded("10.0.0.3")
    assert not any(Attempts(0).wait_s("10.0.0.1", 0) for _ in range(10))


@pytest.mark.parametrize(
    "text",
    ["//evil.example", "/\\evil.example", "/\t/evil.example", "/\n/evil.example", "/ok\\x", "https://evil.example", "/\x00", "//[", "", "x"],
)  # fmt: skip
def test_a_login_leads_to_no_other_site(text):
    assert _target(text) == "/"


@pytest.mark.parametrize(
    "text", ["/", "/c/local/topics?q=a%20b&sort=-size", "/c/local/topics/a/records?where=x+%3E+1"]
)
def test_a_login_leads_back(text):
    assert _target(text) == text


def test_a_thread_ends_with_its_page():
    """Given up, and left by its browser."""
    ended = []

    def work(stop):
        stop.wait(10)
        ended.append(stop.is_set())

    async def given_up():
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await in_thread(work, lambda: False)
        assert ended == [True]

    asyncio.run(given_up())
    asyncio.run(in_thread(work, lambda: True))
    assert ended == [True, True]


# ---- forms of connectors


def _info(name, group, order, **more):
    definition = {
        "group": group,
        "order_in_group": order,
        "type": "STRING",
        "display_name": name.title(),
        **more,
    }
    return {
        "definition": definition,
        "value": {"name": name, "errors": ["missing"] if more.get("required") else [], "visible": True},
    }


def test_a_form_has_the_workers_groups_and_order_and_errors_at_the_field():
    answer = {
        "groups": ["Common", "Files"],
        "configs": [
            _info("topic", "Files", 2),
            _info("file", "Files", 1, required=True),
            _info("name", "Common", 1),
        ],
    }
    groups = sorted_groups(answer, {"name": "x", "unknown.key": "7"})
    assert [(title, [f.name for f in fields]) for title, fields in groups] == [
        ("Common", ["name"]),
        ("Files", ["file", "topic"]),
        ("Other settings", ["unknown.key"]),
    ]
    file = groups[1][1][0]
    assert (file.errors, file.required, groups[0][1][0].value) == (("missing",), True, "x")


def test_fields_and_json_are_the_same_configuration():
    form = {
        "c.topic": " t ",
        "c.name": "x",
        "c.file": "",
        "new.key": "transforms",
        "new.value": "a",
        "csrf": "1",
    }
    assert as_fields(form) == {"name": "x", "topic": "t", "transforms": "a"}
    assert read_config('{"name": "x", "config": {"topic": "t", "n": 3, "b": true, "z": null}}') == {
        "name": "x", "topic": "t", "n": "3", "b": "true",
    }  # fmt: skip
    for text, said in (("{", "JSON: "), ("[1]", "an object"), ('{"a": {}}', "the value of a")):
        with pytest.raises(ConsoleError, match=said):
            read_config(text)


def test_a_page_never_has_a_secret_and_a_change_keeps_it():
    stored = {"connection.password": "geheim", "user.password": "${file:/a:b}", "topic": "t"}
    shown = hide(stored)
    assert shown == {"connection.password": "[hidden]", "user.password": "${file:/a:b}", "topic": "t"}
    assert unhide({**shown, "topic": "u"}, stored) == {**stored, "topic": "u"}


def test_fields_keep_a_delimiter_and_lines():
    form = {"c.delimiter": " ", "c.query": "a\r\nb", "c.topic": " t"}
    assert as_fields(form) == {"delimiter": " ", "query": "a\nb", "topic": "t"}
    assert unhide(as_fields(form), {"topic": " t"}) == {"delimiter": " ", "query": "a\nb", "topic": " t"}


def test_json_is_produced_as_it_was_written():
    for text in ("12345678901234567890.125", '{"a": 1,\n "a": 1.0}'):
        assert encoded("value", f" {text} ", "json", empty=b"") == text.encode()
    with pytest.raises(ConsoleError, match="NaN is no number"):
        encoded("value", "[NaN]", "json", empty=b"")


def test_a_list_that_was_asked_for_before_a_change_is_not_kept():
    async def run():
        cluster = Cluster(_settings("bootstrap.servers=127.0.0.1:1").clusters["local"])
        answers = iter(["old", "new"])

        async def ask():
            answer = next(answers)
            if answer == "old":
                cluster.forget()  # somebody deletes a topic meanwhile
            return answer

        return [await cluster.kept("topics", ask) for _ in range(3)]

    assert asyncio.run(run()) == ["old", "new", "new"]


def test_a_list_that_fails_tells_no_login(caplog):
    async def run():
        cluster = Cluster(_settings("bootstrap.servers=127.0.0.1:1").clusters["local"])
        now = {"failing": False}

        async def ask():
            await asyncio.sleep(SLOW_S * 1.1)
            if now["failing"]:
                raise Upstream("Connect does not answer")
            return ["x"]

        def asked(login):
            return cluster.kept("connectors", ask, login=login, for_s=0)

        assert [await asked("Basic Z2VoZWlt"), await asked("Basic b3RoZXI=")] == [["x"], ["x"]]
        now["failing"] = True
        assert await asked("Basic Z2VoZWlt") == ["x"]  # of before, and asked for again
        (again,) = [task for task in asyncio.all_tasks() if task.get_name().startswith("refresh")]
        await again
        return again.get_name()

    with caplog.at_level("INFO"):
        name = asyncio.run(run())
    said = name + caplog.text
    assert ("Connect does not answer" in said, "Z2Vo" in said) == (True, False)
