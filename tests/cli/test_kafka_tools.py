"""Kafka's command lines, ours against what Kafka's own tools printed (tests/fixtures/kafka-tools-4.3.1).

The recording is of Kafka's tools on Kafka's broker, the test runs our tools on our broker: both must agree. The slow tests run both
tools on one broker.
"""

from __future__ import annotations

import gzip
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support import kafka_oracle
from support.broker import new_name, new_topic
from support.klamm import KLAMM
from support.tool_scenarios import KAFKA_SETTLES_S, SECTIONS, play

from klamm.kafka_tools import run as kafka_tools
from klamm.kafka_tools.options import GONE
from klamm.testing import EmbeddedBroker

RECORDED = Path(__file__).parent.parent / "fixtures/kafka-tools-4.3.1/said.json.gz"


@pytest.fixture
def emptied(processes, tmp_path):
    """Yields a broker of its own, because a section counts on an empty cluster."""
    settings = {"node.id": "1", "offsets.topic.num.partitions": "1"}
    with EmbeddedBroker(tmp_path / "data", config=settings) as broker:
        yield broker


@pytest.fixture
def ours(capfd):
    def run(tool, args):
        code = kafka_tools.main(tool, args)
        return code, capfd.readouterr().out

    return run


@pytest.mark.parametrize("section", SECTIONS)
def test_says_what_kafkas_tools_said(section, emptied, tmp_path, ours):
    recorded = json.loads(gzip.decompress(RECORDED.read_bytes()))[section]
    found = [[s.line, s.code, s.out] for s in play(section, emptied.bootstrap, tmp_path, ours)]
    assert without_synonyms(found) == without_synonyms(recorded)


def without_synonyms(said):
    """Leaves out the defaults below a setting: they are the broker's, and Kafka's broker leaves out some of them."""
    return [[line, code, [re.sub(r" synonyms=\{.*\}", "", text) for text in out]] for line, code, out in said]


WITHOUT_BROKER = {"kafka-storage"}
"""Commands that ask no broker (test_kafka_storage.py)."""
WITH_BROKER_LIST = {"kafka-log-dirs", "kafka-reassign-partitions", "kafka-replica-verification"}
ASKING = [name for name in kafka_tools.TOOLS if name not in WITHOUT_BROKER]


@pytest.mark.parametrize("name", ASKING)
def test_help_names_every_option(name, capsys):
    assert kafka_tools.main(name, ["--help"]) == 1  # as Kafka's tools end then
    said = "".join(capsys.readouterr())
    assert "--bootstrap-server" in said or "--files" in said


@pytest.mark.parametrize("name", ASKING)
@pytest.mark.parametrize("option", ["zookeeper", "broker-list"])
def test_options_of_old_kafkas_are_explained(name, option, capsys):
    if option == "broker-list" and name in WITH_BROKER_LIST:
        pytest.skip("it has this option")
    assert kafka_tools.main(name, [f"--{option}", "x"]) == 1
    assert GONE[option] in capsys.readouterr().err


def test_tls_and_sasl_that_cannot_be_used_are_named(tmp_path, capsys):
    for text, said in (
        ("security.protocol=SASL_SSL", "sasl.mechanism=GSSAPI (the default) cannot be used"),
        ("security.protocol=TLS", "security.protocol=TLS: use one of PLAINTEXT"),
        (
            "security.protocol=SSL\nssl.truststore.location=/absent.jks",
            "ssl.truststore.location=/absent.jks: cannot be read",
        ),
    ):
        config = tmp_path / "client.properties"
        config.write_text(text)
        words = ["--bootstrap-server", "127.0.0.1:1", "--list", "--command-config", str(config)]
        assert kafka_tools.main("kafka-topics", words) == 1
        printed = "".join(capsys.readouterr())
        assert said in printed
        assert str(config) in printed


def test_settings_that_have_no_effect_are_named(broker, tmp_path, capsys):
    config = tmp_path / "client.properties"
    config.write_text("retries=3\nclient.id=me\n")
    words = ["--bootstrap-server", broker.bootstrap, "--list", "--command-config", str(config)]
    assert kafka_tools.main("kafka-topics", words) == 0
    assert capsys.readouterr().err == f"{config}: retries has no effect here\n"


def test_runs_under_the_scripts_name(broker):
    name = new_topic(broker)
    for word in ("kafka-topics", "kafka-topics.sh"):
        words = [str(KLAMM), word, "--bootstrap-server", broker.bootstrap, "--list", "--topic", name]
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
        assert (done.returncode, done.stdout, done.stderr) == (0, f"{name}\n", "")


@pytest.mark.usefixtures("processes")
def test_commands_start_without_anything_heavy():
    modules = "', 'klamm.kafka_tools.".join(kafka_tools.TOOLS.values())
    code = f"""
import importlib, sys
import klamm.cli.main
from klamm.cli.own_commands import OwnCommands
list(OwnCommands().values())
for name in ['klamm.kafka_tools.{modules}', 'klamm.admin.client', 'klamm.logdump.run']: importlib.import_module(name)
heavy = {{'confluent_kafka', 'rich', 'aiohttp', 'orjson', 'pyarrow', 'yaml'}} & set(sys.modules)
sys.exit(str(heavy) if heavy else 0)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_no_broker_is_said_soon(capsys):
    code = kafka_tools.main(
        "kafka-consumer-groups", ["--bootstrap-server", "127.0.0.1:1", "--list", "--timeout", "200"]
    )
    assert code == 0  # Kafka's ends with 0 after this failure
    assert (
        "failed due to no broker can be reached (127.0.0.1:1: Connection refused)" in capsys.readouterr().out
    )


def test_json_of_log_dirs(broker, capsys):
    name = new_topic(broker, 2)
    words = ["--bootstrap-server", broker.bootstrap, "--describe", "--topic-list", name]
    assert kafka_tools.main("kafka-log-dirs", words) == 0
    first, second, document = capsys.readouterr().out.splitlines()
    assert first == "Querying brokers for log directories information"
    assert second.startswith("Received log directory information from brokers ")
    (found,) = json.loads(document)["brokers"]
    (directory,) = found["logDirs"]
    assert directory["error"] is None
    assert [p["partition"] for p in directory["partitions"]] == [f"{name}-0", f"{name}-1"]
    assert {p["isFuture"] for p in directory["partitions"]} == {False}


def test_a_password_is_not_repeated(broker, capsys):
    words = [
        "--bootstrap-server",
        broker.bootstrap,
        "--alter",
        "--topic",
        new_name(),
        "--add-config",
        "k=secret",
    ]
    assert kafka_tools.main("kafka-configs", words) == 1
    assert "secret" not in "".join(capsys.readouterr())


# ---- both tools on one broker


@pytest.fixture(scope="module")
def tools(processes, tmp_path_factory):
    from support.kafka_tools import KafkaTools

    tools = KafkaTools(kafka_oracle.require(), tmp_path_factory.mktemp("tools"))
    yield tools
    tools.close()


@pytest.fixture(params=["kafka", "klamm"])
def either(processes, request, tmp_path):
    """Yields Kafka's broker, and ours."""
    if request.param == "kafka":
        from support.kafka_broker import KafkaBroker

        with KafkaBroker(tmp_path) as broker:
            yield broker.address
    else:
        with EmbeddedBroker(
            tmp_path / "data", config={"node.id": "1", "offsets.topic.num.partitions": "1"}
        ) as broker:
            yield broker.bootstrap


@pytest.mark.usefixtures("apache_kafka")
@pytest.mark.timeout(600)
def test_both_tools_say_the_same(either, tools, tmp_path, ours):
    def theirs(tool, args):
        result = tools.run(tool, *args)
        return result.code, result.out

    for section in SECTIONS:
        for settle_s in (KAFKA_SETTLES_S, 10 * KAFKA_SETTLES_S):  # a busy Kafka may need longer
            expected = play(section, either, tmp_path, theirs, settle_s=settle_s)
            found = play(section, either, tmp_path, ours, settle_s=settle_s)
            if found == expected:
                break
        assert found == expected


MEMBERS = """
kafka-consumer-groups --bootstrap-server @ --list --type --state
kafka-consumer-groups --bootstrap-server @ --describe --all-groups
kafka-consumer-groups --bootstrap-server @ --describe --all-groups --verbose
kafka-consumer-groups --bootstrap-server @ --describe --all-groups --members
kafka-consumer-groups --bootstrap-server @ --describe --all-groups --members --verbose
kafka-consumer-groups --bootstrap-server @ --describe --all-groups --state --verbose
kafka-consumer-groups --bootstrap-server @ --reset-offsets --all-groups --all-topics --to-earliest --execute
kafka-consumer-groups --bootstrap-server @ --delete --all-groups
kafka-consumer-groups --bootstrap-server @ --delete-offsets --group static --topic members:0
kafka-transactions --bootstrap-server @ list
kafka-transactions --bootstrap-server @ list --transactional-id-pattern tx-0
kafka-transactions --bootstrap-server @ list --duration-filter 1000000
kafka-transactions --bootstrap-server @ describe-producers --topic members --partition 0
kafka-transactions --bootstrap-server @ describe-producers --topic members --partition 1
kafka-transactions --bootstrap-server @ find-hanging --topic members --max-transaction-timeout 0
kafka-transactions --bootstrap-server @ abort --topic members --partition 0 --start-offset 77
"""


@pytest.mark.usefixtures("apache_kafka")
def test_both_tools_say_the_same_of_members_and_transactions(either, tools, ours):
    from support.tool_life import living

    with living(either, "members"):
        for line in MEMBERS.strip().splitlines():
            tool, *words = line.replace("@", either).split()
            theirs = tools.run(tool, *words)
            code, out = ours(tool, words)
            assert (code, sorted(out.splitlines())) == (theirs.code, sorted(theirs.out.splitlines())), line


def test_the_file_of_client_settings_is_one_option():
    """It is `COMMAND_CONFIG`; three tools vary its help or its argument."""
    again = re.compile(r'Option\(\s*"command-config"')
    tools = Path(kafka_tools.__file__).parent.glob("*.py")
    assert [tool.stem for tool in tools if again.search(tool.read_text())] == ["options"]
