"""`klamm acl`: rights are given and taken, and `check` says what the broker decides."""

from __future__ import annotations

import pytest
from support.klamm import klamm
from typer.testing import CliRunner

from klamm.cli.main import app
from klamm.testing import EmbeddedBroker
from klamm_broker.server.authorizer_keys import STANDARD


@pytest.fixture
def broker(tmp_path, processes):
    config = {"authorizer.class.name": STANDARD, "super.users": "User:admin;User:ANONYMOUS"}
    with EmbeddedBroker(tmp_path / "data", config=config) as running:
        yield running


def test_rights_are_given_explained_and_taken(broker):
    def acl(*args):
        return klamm("acl", *args, "-b", broker.bootstrap)

    said = acl("add", "ann", "read", "describe-configs", "--topic", "ord", "--prefix")
    assert said.stdout.splitlines() == [
        "User:ann is allowed READ on TOPIC PREFIXED ord from host *",
        "User:ann is allowed DESCRIBE_CONFIGS on TOPIC PREFIXED ord from host *",
    ], said.stderr
    assert acl("add", "*", "write", "--topic", "orders", "--deny", "--host", "10.0.0.1").returncode == 0

    def check(*args):
        done = acl("check", *args)
        assert done.stderr == ""
        return done.returncode, done.stdout.strip()

    allowed = (0, "yes: User:ann is allowed READ on TOPIC PREFIXED ord from host *")
    assert check("ann", "read", "--topic", "orders") == allowed
    assert check("ann", "describe", "--topic", "orders") == allowed
    denied = (1, "no: User:* is denied WRITE on TOPIC LITERAL orders from host 10.0.0.1")
    assert check("ann", "write", "--topic", "orders", "--host", "10.0.0.1") == denied
    assert check("ann", "write", "--topic", "orders") == (1, "no: the resource has ACLs, and none allows it")
    without = (1, "no: the resource has no ACL, and allow.everyone.if.no.acl.found=false")
    assert check("ann", "alter", "--cluster") == without
    assert check("admin", "alter", "--cluster") == (0, "yes: User:admin is one of super.users")

    listed = acl("list", "--topic", "orders", "-o", "csv").stdout.splitlines()
    assert listed == [
        "principal,permission,operation,resource_type,pattern,resource,host",
        "User:ann,allow,read,topic,prefixed,ord,*",
        "User:ann,allow,describe-configs,topic,prefixed,ord,*",
        "User:*,deny,write,topic,literal,orders,10.0.0.1",
    ]
    gone = acl("remove", "ann", "--topic", "ord", "--prefix").stdout.splitlines()
    assert [line.partition(":")[0] for line in gone] == ["removed"] * 2
    assert len(acl("list", "-o", "csv").stdout.splitlines()) == 2
    again = acl("remove", "ann", "--topic", "ord", "--prefix")
    assert (again.returncode, again.stderr) == (
        1,
        "klamm: User:ann has no such ACL; `klamm acl list --principal User:ann` shows all\n",
    )


@pytest.mark.parametrize(
    ("args", "why"),
    [
        (["add", "ann", "dance", "--topic", "t"], "'dance' is no operation; there are all, read, write"),
        (["add", "ann", "any", "--topic", "t"], "the operation `any` is for `remove`"),
        (["add", "User:", "read", "--topic", "t"], "'User:' is no user: write NAME or User:NAME"),
        (["add", "ann", "read"], "name one resource: --topic"),
        (["check", "ann", "read", "--topic", "t", "--cluster"], "name one resource: --topic"),
        (["add", "ann", "read", "--cluster", "--prefix"], "--prefix goes with a name"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(args, why, processes):
    done = klamm("acl", *args)
    assert done.returncode == 2
    assert done.stderr.startswith(f"klamm: {why}")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("args", "why"),
    [
        (["create", "--group", "g"], "create is no operation of a group; there are all, read, delete, describe, describe-configs, alter-configs"),
        (["read", "--topic", "t", "--host", "localhost"], "--host 'localhost' is no address; give one as 10.0.0.1, or '*' for all"),
    ],
)  # fmt: skip
def test_a_rule_that_could_never_allow_anything_is_refused(args, why):
    for command in ("add", "check"):
        done = CliRunner().invoke(app, ["acl", command, "ann", *args])
        assert (done.exit_code, done.stderr) == (2, f"klamm: {why}\n")
