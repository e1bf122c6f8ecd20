"""`klamm connector signal`: what it sends, and what it refuses before it sends anything."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from klamm.cli import rest_client
from klamm.cli.connector_signal import OPTIONS
from klamm.cli.main import app
from klamm_connectors.mysql import signals

TABLES = ["-t", "shop[.]orders"]


@pytest.fixture
def sent(monkeypatch):
    """Keeps requests instead of sending them."""
    found = []
    monkeypatch.setattr(rest_client.Worker, "call", lambda _worker, *request, **_: found.append(request))
    return found


def run(*words):
    return CliRunner().invoke(app, ["connector", "signal", *words])


@pytest.mark.parametrize(
    ("words", "data"),
    [
        (
            ["execute-snapshot", "--data-collections", "a.b", "--data-collections", "c[.].*"],
            {"data-collections": ["a.b", "c[.].*"]},
        ),
        (["execute-snapshot", *TABLES, "--type", "blocking"], {"data-collections": ["shop[.]orders"], "type": "blocking"}),
        (
            ["execute-snapshot", "-t", "a.b", "--additional-condition", "a.b = x = 1 ", "--surrogate-key", "n"],
            {
                "data-collections": ["a.b"],
                "additional-conditions": [{"data-collection": "a.b", "filter": "x = 1"}],
                "surrogate-key": "n",
            },
        ),
        (["stop-snapshot"], {}),
        (["stop-snapshot", "-t", "a.b"], {"data-collections": ["a.b"]}),
        (["pause-snapshot"], {}),
        (["resume-snapshot"], {}),
        (["log", "--message", "hello"], {"message": "hello"}),
        (["of-a-plugin", "--data", '{"a": [1]}'], {"a": [1]}),
    ],
)  # fmt: skip
def test_signals_are_sent_in_debeziums_words(sent, words, data):
    done = run("a/b", *words)
    assert (done.exit_code, done.output) == (0, f"task 0 of a/b has the signal {words[0]}\n")
    assert sent == [("POST", "/connectors/a%2Fb/tasks/0/signals", {"type": words[0], "data": data})]


def test_a_signal_has_a_task_and_an_id(sent):
    assert run("shop", "pause-snapshot", "--task", "2", "--id", "mine").exit_code == 0
    assert sent == [
        ("POST", "/connectors/shop/tasks/2/signals", {"type": "pause-snapshot", "data": {}, "id": "mine"})
    ]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["execute-snapshot"], "execute-snapshot needs --data-collections DATABASE.TABLE"),
        (["log"], "log needs --message TEXT"),
        (["pause-snapshot", *TABLES], "pause-snapshot has no --data-collections; it takes no options"),
        (["stop-snapshot", "--type", "blocking"], "stop-snapshot has no --type; it takes --data-collections"),
        (
            ["execute-snapshto", *TABLES],
            f"execute-snapshto: the signals of MySqlSource are {', '.join(OPTIONS)}. For one of another plugin, give --data (a JSON object)",
        ),
        (
            ["execute-snapshot", *TABLES, "--additional-condition", "state = 1"],
            "--additional-condition 'state = 1' is not DATABASE.TABLE=CONDITION, for example \"shop.orders=state = 'new'\"",
        ),
        (
            ["execute-snapshot", *TABLES, "--data", "{}"],
            "--data is the whole of the signal's data; leave out --data-collections",
        ),
        (["execute-snapshot", "--data", "[]"], "--data '[]' is no JSON object: write {…}"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_before_anything_is_sent(sent, words, said):
    done = run("shop", *words)
    assert (done.exit_code, done.output) == (2, f"klamm: {said}\n")
    assert sent == []


def test_a_wrong_type_is_named(sent):
    done = run("shop", "execute-snapshot", *TABLES, "--type", "full")
    assert done.exit_code == 2
    assert "'full' is not one of 'incremental', 'blocking'" in done.output


@pytest.mark.parametrize("kind", OPTIONS)
def test_the_connector_knows_every_signal(kind):
    signals.parse(kind, '{"message": "hello"}' if kind == "log" else '{"data-collections": ["a"]}')
