"""`klamm user`: whoever is added can log in, and nobody else."""

from __future__ import annotations

import sys

import pytest
from support.klamm import klamm
from support.secure_broker import LoginClient, SecureBroker

NOT_UTF8 = sys.executable
FIRST, SECOND = "first password ü", "second"


@pytest.fixture
def secure(tmp_path, processes):
    with SecureBroker(tmp_path) as broker:
        yield broker


def may_log_in(broker, password, *, mechanism="SCRAM-SHA-512"):
    with LoginClient(broker.sasl_port) as client:
        return client.scram("ann", password, mechanism=mechanism).error_code == 0


def test_a_user_from_the_first_day_to_the_last(secure, tmp_path):
    def user(*args, **settings):
        return klamm("user", *args, "-b", secure.bootstrap, **settings)

    (tmp_path / "password").write_text(f"{FIRST}\n")
    added = user("add", "ann", "--password-file", str(tmp_path / "password"))
    assert (added.returncode, added.stderr) == (0, "")
    assert may_log_in(secure, FIRST)
    again = user("add", "ann", stdin="x\n")
    assert (again.returncode, again.stderr) == (
        1, "klamm: user 'ann' is there already; `klamm user passwd` changes the password\n",
    )  # fmt: skip
    assert user("passwd", "ann", stdin=f"{SECOND}\n").returncode == 0
    assert (may_log_in(secure, FIRST), may_log_in(secure, SECOND)) == (False, True)
    both = user("add", "ann", "--mechanism", "SCRAM-SHA-256", "--iterations", "8192", stdin=f"{SECOND}\n")
    assert both.returncode == 0
    listed = user("list", "-o", "csv")
    assert listed.stdout == "user,mechanism,iterations\nann,SCRAM-SHA-256,8192\nann,SCRAM-SHA-512,4096\n"
    assert user("remove", "ann", "--mechanism", "SCRAM-SHA-256").returncode == 0
    assert may_log_in(secure, SECOND)
    assert not may_log_in(secure, SECOND, mechanism="SCRAM-SHA-256")
    assert user("remove", "ann").stdout == "removed ann (SCRAM-SHA-512)\n"
    assert not may_log_in(secure, SECOND)


@pytest.mark.parametrize(
    ("args", "stdin", "why"),
    [
        (["passwd", "bea"], "x\n", "no user 'bea' with SCRAM-SHA-512; `klamm user add` makes one"),
        (["remove", "bea"], "", "no user 'bea'"),
        (["add", "bea"], "\n", "the password is empty"),
        (["add", "bea", "--password-file", "/no/such"], "", "--password-file /no/such: No such file or directory"),
        (["add", "bea", "--password-file", NOT_UTF8], "", f"--password-file {NOT_UTF8}: is not UTF-8"),
        (["add", "bea", "--mechanism", "PLAIN"], "x\n", "--mechanism PLAIN: use one of SCRAM-SHA-256, SCRAM-SHA-512"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_one_sentence(secure, args, stdin, why):
    done = klamm("user", *args, "-b", secure.bootstrap, stdin=stdin)
    assert done.returncode in (1, 2)
    assert done.stderr == f"klamm: {why}\n"


@pytest.mark.parametrize("command", [["topic", "list"], ["user", "list"], ["kafka-topics", "--list"]])
def test_who_comes_without_a_login_is_told_what_is_missing(secure, command):
    there = "--bootstrap-server", f"127.0.0.1:{secure.sasl_port}"
    done = klamm(*command, *there)
    assert done.returncode == 1
    assert "; does it want TLS or a login (" in done.stdout + done.stderr
