"""`klamm context`: what is kept, what a command takes from it, and what never leaves it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.klamm import KLAMM
from typer.testing import CliRunner

from klamm.cli import cluster as clusters
from klamm.cli import kafka, rest_client
from klamm.cli.main import app
from klamm.cli.saved_contexts import SETTINGS, as_toml, load, parse
from klamm_base.errors import ConfigError, KlammError


@pytest.fixture
def config(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for name in ("KLAMM_CONTEXT", "KLAMM_BOOTSTRAP_SERVER", "KLAMM_COMMAND_CONFIG", "KLAMM_REST_URL"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "klamm"


def klamm(*words, code=0, stdin=None):
    result = CliRunner().invoke(app, list(words), input=stdin)
    assert result.exit_code == code, result.output + repr(result.exception)
    return result.output


@pytest.fixture
def asked(monkeypatch):
    """Yields the clusters and workers that commands asked."""
    seen = []

    def metadata(cluster, client):
        seen.append((cluster.bootstrap, cluster.command_config))
        raise KlammError("asked")

    def call(worker, method, path, body=None, **_):
        seen.append((worker.url, worker.user, worker.token))
        raise KlammError("asked")

    monkeypatch.setattr(clusters.Cluster, "metadata", metadata)
    monkeypatch.setattr(rest_client.Worker, "call", call)
    return seen


def test_a_context_is_added_listed_used_renamed_and_removed(config):
    klamm("context", "add", "prod", "-b", "kafka:9092", "--property", "client.id=me", "--use")
    klamm("context", "add", "lab", "-b", "127.0.0.1:1", "--rest-url", "http://lab:8083")
    assert (config / "contexts.toml").stat().st_mode & 0o777 == 0o600
    assert (config / "contexts/prod.properties").stat().st_mode & 0o777 == 0o600
    lines = [line.split() for line in klamm("context", "list").splitlines()]
    assert lines[1:] == [
        ["no", "lab", "127.0.0.1:1", "http://lab:8083", "-"],
        ["yes", "prod", "kafka:9092", "-", "-"],
    ]
    klamm("context", "rename", "prod", "production")
    assert load().current == "production"
    assert "client.id" in klamm("context", "show")
    assert not (config / "contexts/prod.properties").exists()
    klamm("context", "remove", "production")
    assert list(load().by_name) == ["lab"]
    assert load().current is None
    assert not list((config / "contexts").iterdir())
    assert "no context 'gone'" in klamm("context", "use", "gone", code=1)
    assert "is there already" in klamm("context", "add", "lab", "-b", "x:1", code=1)


def test_settings_come_from_options_then_environment_then_the_context(config, asked, monkeypatch):
    klamm("context", "add", "one", "-b", "one:1", "--property", "client.id=me", "--use")
    klamm("context", "add", "two", "-b", "two:2")
    own = config / "contexts/one.properties"

    def place(*words):
        klamm(*words, code=1)
        return asked.pop()

    assert place("topic", "list") == ("one:1", own)
    assert place("--context", "two", "topic", "list") == ("two:2", None)
    monkeypatch.setenv("KLAMM_CONTEXT", "two")
    assert place("topic", "list") == ("two:2", None)
    monkeypatch.setenv("KLAMM_BOOTSTRAP_SERVER", "env:3")
    assert place("topic", "list") == ("env:3", None)  # a login belongs to its address
    assert place("--context", "one", "topic", "list") == ("one:1", own)
    assert place("--context", "one", "topic", "list", "-b", "flag:4") == ("flag:4", None)
    monkeypatch.delenv("KLAMM_BOOTSTRAP_SERVER")
    monkeypatch.delenv("KLAMM_CONTEXT")
    klamm("context", "use", "--none")
    assert place("topic", "list") == (clusters.DEFAULT_BOOTSTRAP, None)


def test_a_login_goes_to_its_own_worker_only(config, asked):
    klamm(
        "context", "add", "one", "--rest-url", "http://one:1", "--rest-token", "-", "--use", stdin="secret\n"
    )

    def place(*words):
        klamm("connector", "list", *words, code=1)
        return asked.pop()

    assert place() == ("http://one:1", None, "secret")
    assert place("--url", "http://two:2") == ("http://two:2", None, None)
    assert place("--user", "ann:pass") == ("http://one:1", "ann:pass", None)


def test_a_context_without_the_place_that_a_command_needs_is_named(config):
    klamm("context", "add", "one", "-b", "one:1", "--use")
    assert "context 'one' (klamm context use) has no REST address" in klamm("connector", "list", code=1)
    assert "no context 'nope'" in klamm("--context", "nope", "topic", "list", code=1)


@pytest.mark.usefixtures("processes")
def test_a_cluster_without_connect_has_its_page_and_its_doctor(config, broker):
    """Klamm's tools beside a Kafka cluster, where no worker runs."""
    klamm("context", "add", "one", "-b", broker.bootstrap, "--use")
    shown = json.loads(klamm("top", "--once", "--json", "--interval", "0.2"))
    assert shown["connectors"] is None
    checks = [row["check"] for row in json.loads(klamm("doctor", "-o", "json"))]
    assert "broker" in checks
    assert "connect" not in checks


def test_secrets_are_not_shown(config):
    jaas = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="sesame";'
    words = ["--property", "security.protocol=SASL_PLAINTEXT", "--property", "sasl.mechanism=PLAIN"]
    words += [
        "--property",
        f"sasl.jaas.config={jaas}",
        "--rest-url",
        "http://x:1",
        "--rest-user",
        "ann:sesame",
    ]
    words += ["--registry-url", "http://eve:sesame@r:1", "--registry-user", "bob:"]
    klamm("context", "add", "one", "-b", "one:1", "--use", *words, stdin="sesame\n")
    assert load().get("one")["registry_user"] == "bob:sesame"
    for form in ("table", "wide", "json", "yaml", "csv"):
        shown = klamm("context", "list", "-o", form) + klamm("context", "show", "-o", form)
        assert "sesame" not in shown
        assert "bob" in shown
    (config / "contexts.toml").chmod(0o644)
    assert "chmod 600" in klamm("context", "list", code=2)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "a context names a place"),
        (["--rest-url", "x:1"], "write http://HOST:PORT"),
        (["--rest-token", "t"], "--rest-token needs --rest-url"),
        (["--property", "a=b"], "--property needs --bootstrap-server"),
        (["-b", "nowhere"], "nowhere"),
        (["-b", "a:1", "--property", "security.protocol=TLS"], "security.protocol"),
        (["-b", "a:1", "--command-config", "/absent"], "/absent: no such file"),
    ],
)
def test_what_no_command_can_use_is_not_kept(config, words, said):
    assert said in klamm("context", "add", "x", *words, code=2)
    assert not (config / "contexts.toml").exists()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("current = 'x'", "there is no such context"),
        ("contexts = 3", "must be tables"),
        ("[contexts.a]\nfoo = '1'", "foo is not one of"),
        ("[contexts.a]\nrest_url = 1", "must be text"),
        ("[context.a]", "context is not one of"),
        ("a = ", "contexts.toml"),
    ],
)
def test_a_broken_file_is_named_with_what_is_wrong(text, said):
    with pytest.raises(ConfigError, match=said):
        parse(text, Path("contexts.toml"))


NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,20}", fullmatch=True)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@given(st.dictionaries(NAMES, st.dictionaries(st.sampled_from(SETTINGS), TEXT), max_size=4), st.data())
def test_what_is_written_is_read_again(by_name, data):
    current = data.draw(st.sampled_from([None, *by_name]))
    found = parse(as_toml(by_name, current), Path("x"))
    assert (found.by_name, found.current) == (by_name, current)


# ---- Kafka's own command lines


@pytest.fixture
def ran(monkeypatch):
    """Yields the command lines that Kafka's commands were given."""
    seen = []
    monkeypatch.setattr(kafka, "run", lambda name, words: seen.append((name, *words)) or 0)
    return seen


def test_kafkas_commands_take_the_cluster_of_the_context_and_say_so(config, ran):
    klamm("context", "add", "prod", "-b", "kafka:9092", "--property", "client.id=me", "--use")
    klamm("context", "add", "lab", "-b", "127.0.0.1:1")
    file = str(config / "contexts/prod.properties")
    said = klamm("kafka-topics", "--list")
    assert (
        said
        == f"klamm: context 'prod' (klamm context use): --bootstrap-server kafka:9092 --command-config {file}\n"
    )
    klamm("--context", "lab", "kafka-topics.sh", "--list")
    klamm("kafka-console-consumer", "--consumer.config", "mine", "--topic", "t")
    klamm("kafka-cluster", "cluster-id")
    at = ("--bootstrap-server", "kafka:9092")
    assert ran == [
        ("kafka-topics", *at, "--command-config", file, "--list"),
        ("kafka-topics", "--bootstrap-server", "127.0.0.1:1", "--list"),
        ("kafka-console-consumer", *at, "--consumer.config", "mine", "--topic", "t"),
        ("kafka-cluster", "cluster-id", *at, "--command-config", file),
    ]


@pytest.mark.parametrize(
    "words",
    [
        ("kafka-topics", "-bootstrap-server=b:1", "--list"), ("kafka-topics", "--help"), ("kafka-topics",), ("kafka-dump-log", "--files", "x"),
        ("kafka-cluster", "cluster-id", "-b", "b:1"), ("kafka-replica-verification", "--broker-list", "b:1"),
        ("kafka-e2e-latency", "b:1", "t", "1", "all", "1"), ("kafka-consumer-groups", "--validate-regex", "x"),
        ("kafka-producer-perf-test", "--producer-props", "bootstrap.servers=b:1"), ("connect-distributed", "w.properties"),
    ],
)  # fmt: skip
def test_a_command_line_that_names_its_cluster_or_needs_none_stays_as_it_is(config, ran, words):
    klamm("context", "add", "prod", "-b", "kafka:9092", "--use")
    assert klamm(*words) == ""
    assert ran == [words]


def test_the_environment_goes_before_a_context_that_was_not_named(config, ran, monkeypatch):
    klamm("context", "add", "prod", "-b", "kafka:9092", "--use")
    klamm("context", "add", "rest", "--rest-url", "http://lab:8083")
    monkeypatch.setenv("KLAMM_BOOTSTRAP_SERVER", "other:1")
    assert klamm("kafka-topics", "--list") == "klamm: KLAMM_BOOTSTRAP_SERVER: --bootstrap-server other:1\n"
    assert "--bootstrap-server kafka:9092" in klamm("--context", "prod", "kafka-topics", "--list")
    assert "context 'rest' has no bootstrap server" in klamm(
        "--context", "rest", "kafka-topics", "--list", code=1
    )


@pytest.mark.usefixtures("processes")
def test_contexts_that_are_added_at_once_are_all_kept(config):
    adding = [
        subprocess.Popen(
            [str(KLAMM), "context", "add", f"c{n}", "-b", f"h{n}:9092"], stdout=subprocess.DEVNULL
        )
        for n in range(8)
    ]
    assert [process.wait(60) for process in adding] == [0] * 8
    assert sorted(load().by_name) == [f"c{n}" for n in range(8)]
