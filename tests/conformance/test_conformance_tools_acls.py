"""Our kafka-acls beside Apache's, on one broker of ours with an authorizer."""

from __future__ import annotations

import io
from collections import Counter

import pytest

from klamm.kafka_tools import run as kafka_tools_of_ours
from klamm.testing import EmbeddedBroker
from klamm_broker.server.authorizer_keys import STANDARD

TOOL = "kafka-acls"


@pytest.fixture(scope="module")
def places(apache_kafka, tmp_path_factory):
    """Yields a broker for our tool and one for Apache's: each tells what is there already."""
    config = {"authorizer.class.name": STANDARD, "super.users": "User:ANONYMOUS"}
    work = tmp_path_factory.mktemp("acls")
    with (
        EmbeddedBroker(work / "ours" / "data", config=config) as a,
        EmbeddedBroker(work / "theirs" / "data", config=config) as b,
    ):
        yield ("--bootstrap-server", a.bootstrap), ("--bootstrap-server", b.bootstrap)


def lines(text: str) -> Counter[str]:
    """Returns the lines; their order is that of Java's hash tables."""
    return Counter(line.removeprefix(" ") for line in text.rstrip("\n").split("\n"))


ADD = ("--add", "--allow-principal", "User:ann")
STEPS = [
    (*ADD, "--topic", "orders", "--operation", "Read", "--operation", "write"),
    (*ADD, "--topic", "orders", "--operation", "Read", "--operation", "write"),
    (*ADD, "--topic", "orders", "--operation", "Read", "--operation", "Alter"),
    (*ADD, "--producer", "--topic", "orders", "--transactional-id", "t", "--idempotent"),
    (*ADD, "--consumer", "--topic", "a", "--topic", "b", "--group", "g"),
    (*ADD, "--producer", "--consumer", "--topic", "c", "--group", "h"),
    (*ADD, "--topic", "app-", "--resource-pattern-type", "prefixed", "--allow-host", "10.0.0.1", "--allow-host", "10.0.0.2"),
    ("--add", "--deny-principal", "User:bob", "--deny-principal", "User:CN=x,O=y", "--cluster"),
    ("--add", "--allow-principal", "User:*", "--deny-principal", "User:eve", "--group", "*", "--operation", "Describe"),
    (*ADD, "--delegation-token", "id", "--operation", "Describe"),
    (*ADD, "--user-principal", "User:bob", "--operation", "CreateTokens"),
    ("--list",),
    ("--list", "--topic", "orders"),
    ("--list", "--topic", "app-x", "--resource-pattern-type", "match"),
    ("--list", "--topic", "app-", "--resource-pattern-type", "any"),
    ("--list", "--group", "g", "--cluster"),
    ("--list", "--principal", "User:ann", "--principal", "User:nobody"),
    ("--remove", "--topic", "orders", "--force"),
    ("--remove", "--allow-principal", "User:ann", "--topic", "a", "--operation", "Read", "--force"),
    ("--list", "--topic", "a"),
    ("--remove", "--topic", "app-x", "--resource-pattern-type", "match", "--force"),
    ("--list",),
]  # fmt: skip


def test_rights_from_their_making_to_their_end(places, kafka_tools, capfd):
    place, other = places
    for args in STEPS:
        code = kafka_tools_of_ours.main(TOOL, [*place, *args])
        ours = capfd.readouterr()
        theirs = kafka_tools.run(TOOL, *other, *args)
        assert (code, lines(ours.out), ours.err) == (theirs.code, lines(theirs.out), ""), args
        assert code == 0


def test_it_asks_before_it_removes(places, kafka_tools, capfd, monkeypatch):
    """Apache's tool asks in the same words; it needs a terminal to go on."""
    place, other = places
    remove = ("--remove", "--topic", "asked")
    some = (*remove, "--allow-principal", "User:ann", "--operation", "Read")
    for args, answer in ((remove, "n\n"), (some, "y\n"), (remove, "Y\n")):
        monkeypatch.setattr("sys.stdin", io.StringIO(answer))
        assert kafka_tools_of_ours.main(TOOL, [*place, *args]) == 0
        ours = capfd.readouterr().out
        theirs = kafka_tools.run(TOOL, *other, *args, stdin=answer)
        assert "(y/n)" in ours
        assert theirs.out.startswith(ours), args


@pytest.mark.parametrize(
    "args",
    [
        (),
        ("--list", "--add"),
        ("--list", "--producer"),
        ("--list", "--allow-principal", "User:a"),
        ("--add", "--topic", "t"),
        ("--add", "--allow-principal", "User:a"),
        ("--add", "--allow-principal", "ann", "--topic", "t"),
        (*ADD, "--topic", "t", "--operation", "Dance"),
        (*ADD, "--topic", "t", "--operation", "IdempotentWrite"),
        (*ADD, "--topic", "t", "--resource-pattern-type", "match"),
        (*ADD, "--topic", "t", "--principal", "User:x"),
        (*ADD, "--producer", "--group", "g"),
        (*ADD, "--producer", "--topic", "t", "--operation", "Read"),
        (*ADD, "--consumer", "--topic", "t"),
        (*ADD, "--consumer", "--topic", "t", "--group", "g", "--cluster"),
        (*ADD, "--idempotent", "--topic", "t"),
        (*ADD, "--topic", ""),
    ],
)
def test_what_it_refuses(args, places, kafka_tools, capfd):
    place, _ = places
    code = kafka_tools_of_ours.main(TOOL, [*place, *args])
    ours = capfd.readouterr()
    theirs = kafka_tools.run(TOOL, *place, *args)
    assert code == theirs.code == 1, theirs
    said = (ours.err or ours.out).splitlines()
    words = said[-1] if said[-1].startswith("Error") else said[0]
    known = words.partition(" only supports operations ")[0]  # the operations have an order of their own
    assert known in theirs.err + theirs.out, theirs
