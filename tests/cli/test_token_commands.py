"""`klamm token`: whoever has the settings that it prints logs in, until the token ends."""

from __future__ import annotations

import re

import pytest
from support.klamm import klamm
from support.secure_broker import SecureBroker
from support.secure_kafka import jaas, property_


@pytest.fixture
def secure(tmp_path, processes):
    with SecureBroker(tmp_path) as broker:
        broker.add_user()
        yield broker


def write(path, login):
    path.write_text("security.protocol=SASL_PLAINTEXT\n" + login)
    return str(path)


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_token_logs_in_until_it_ends(secure, tmp_path, mechanism):
    login = f"sasl.mechanism={mechanism}\nsasl.jaas.config={property_(jaas(mechanism))}\n"
    owner = write(tmp_path / "ann.properties", login)

    def token(*args, stdin="", file=owner):
        return klamm("token", *args, "-b", secure.sasl_bootstrap, "--command-config", file, stdin=stdin)

    made = token("create", "--renewer", "bob", "--max-lifetime-ms", "600000")
    assert made.returncode == 0, made.stderr
    assert made.stdout.startswith(f"sasl.mechanism={mechanism}\n")
    assert re.fullmatch(r"token \S+ of User:ann expires \S+Z; renewed, it lives until \S+Z\n", made.stderr)
    by_token = write(tmp_path / "token.properties", made.stdout)
    place = ("-b", secure.sasl_bootstrap, "--command-config", by_token)
    assert klamm("group", "list", *place).returncode == 0

    listed = token("list", "--owner", "ann", "-o", "csv").stdout.splitlines()
    assert listed[0] == "id,owner,requester,renewers,issued,expires,max"
    assert listed[1].split(",")[1:4] == ["User:ann", "User:ann", "User:bob"]
    password = re.search(r'password="([^"]+)"', made.stdout)[1]
    assert password not in "".join(listed) + made.stderr
    assert token("renew", stdin=f"{password}\n").stdout.startswith("expires 20")
    assert token("expire", stdin=f"{password}\n").stdout.startswith("expires 20")
    assert len(token("list", "-o", "csv").stdout.splitlines()) == 1
    refused = klamm("group", "list", *place)
    assert refused.returncode == 1
    assert "uthentication failed" in refused.stderr
    again = token("renew", stdin=f"{password}\n")
    assert (again.returncode, again.stdout) == (1, "")
    assert "DELEGATION_TOKEN_NOT_FOUND" in again.stderr or "not found" in again.stderr.lower()


@pytest.mark.parametrize(
    ("args", "stdin", "why"),
    [
        (["renew"], "no base64!\n", "the HMAC is not base64; it is the password that `klamm token create` printed"),
        (["create", "--owner", "User:"], "", "'User:' is no user: write User:NAME or NAME"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_one_sentence(args, stdin, why, processes):
    done = klamm("token", *args, stdin=stdin)
    assert (done.returncode, done.stderr) == (2, f"klamm: {why}\n")
