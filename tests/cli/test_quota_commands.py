"""`klamm quota` sets what `kafka-configs` shows, and says in a sentence what cannot be."""

from __future__ import annotations

import pytest
from support.klamm import klamm

from klamm.kafka_tools import run as kafka_tools
from klamm.testing import EmbeddedBroker


@pytest.fixture
def quota(processes, tmp_path):
    with EmbeddedBroker(tmp_path / "data") as broker:

        def run(*args):
            done = klamm("quota", *args, "-b", broker.bootstrap)
            return done.returncode, done.stdout, done.stderr

        run.bootstrap = broker.bootstrap
        yield run


def test_quotas_from_the_first_to_the_last(quota, capsys):
    assert quota("set", "--user", "ann", "producer_byte_rate=1000000", "request_percentage=12.5") == (
        0, "user ann: producer_byte_rate=1000000\nuser ann: request_percentage=12.5\n", "",
    )  # fmt: skip
    assert quota("set", "--user-default", "--client-id", "app", "controller_mutation_rate=5")[0] == 0
    assert quota("set", "--ip", "10.0.0.7", "connection_creation_rate=20")[0] == 0
    assert quota("list", "-o", "csv")[1].splitlines() == [
        "user,client_id,ip,name,value",
        "(default),app,,controller_mutation_rate,5",
        ",,10.0.0.7,connection_creation_rate,20",
        "ann,,,producer_byte_rate,1000000",
        "ann,,,request_percentage,12.5",
    ]
    assert quota("list", "--user", "ann", "-o", "csv")[1].count("\n") == 3
    words = [
        "--bootstrap-server",
        quota.bootstrap,
        "--describe",
        "--entity-type",
        "users",
        "--entity-name",
        "ann",
    ]
    assert kafka_tools.main("kafka-configs", words) == 0
    assert (
        "Quota configs for user-principal 'ann' are producer_byte_rate=1000000.0" in capsys.readouterr().out
    )
    assert (
        quota("unset", "--user", "ann", "request_percentage")[1] == "user ann: removed request_percentage\n"
    )
    assert quota("unset", "--user", "ann", "request_percentage")[:2] == (1, "")
    assert quota("unset", "--user", "ann")[1] == "user ann: removed producer_byte_rate\n"
    assert quota("unset", "--user-default", "--client-id", "app")[0] == 0
    assert quota("unset", "--ip", "10.0.0.7")[0] == 0
    assert quota("unset", "--ip", "10.0.0.7")[2] == "klamm: ip 10.0.0.7 has no quotas\n"


@pytest.mark.parametrize(
    ("args", "why"),
    [
        (["set", "producer_byte_rate=1"], "say whose quota"),
        (["set", "--user", "a", "producer_rate=1"], "'producer_rate' is no quota of users"),
        (["set", "--ip", "::1", "producer_byte_rate=1"], "is no quota of ips"),
        (["set", "--user", "a", "producer_byte_rate=many"], "needs a number"),
        (["set", "--user", "a", "--user-default", "producer_byte_rate=1"], "not both"),
        (["set", "--user", "a", "--ip", "::1", "producer_byte_rate=1"], "quotas of its own"),
        (["set", "--user", "a", "producer_byte_rate=-1"], "must be greater than 0"),
    ],
)
def test_what_cannot_be_is_one_sentence(quota, args, why):
    code, _, said = quota(*args)
    assert code in {1, 2}
    assert why in " ".join(said.replace("│", " ").split())
