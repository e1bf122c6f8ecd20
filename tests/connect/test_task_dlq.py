"""`klamm dlq`: dead letters of our tasks (and Kafka's, whose headers are the same), shown and sent again, each once."""

import json
from types import SimpleNamespace

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from hypothesis import given
from hypothesis import strategies as st
from support.broker import broker, new_topic, wait_until  # noqa: F401
from support.kafka_broker import KafkaBroker
from support.runtime_broker import fill, read_all
from typer.testing import CliRunner

from klamm.cli.main import app
from klamm.cli.rest_client import Worker
from klamm.dlq.letters import PREFIX, REPLAYED, CannotReplay, Letter, Wanted
from klamm.dlq.replay import Replay

run = CliRunner()


def dlq(broker, command, *args, fails=0):  # noqa: F811
    answer = run.invoke(app, ["dlq", command, *args, "-b", broker.bootstrap])
    assert answer.exit_code == fails, answer.output
    return answer.output


def facts(topic, n, **more):
    found = {
        "topic": topic, "partition": "0", "offset": str(n), "connector.name": "snk", "task.id": "0",
        "stage": "VALUE_CONVERTER", "class.name": "c", "exception.class.name": "org.apache.kafka.connect.errors.DataException",
        "exception.message": f"no number {n}", "exception.stacktrace": "x\n\tat y",
    } | {k.replace("_", "."): v for k, v in more.items()}  # fmt: skip
    return [(PREFIX + name, value.encode()) for name, value in found.items()]


def bury(broker, dead, origin, count, first=0, **more):  # noqa: F811
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for n in range(first, first + count):
        headers = [("own", b"1"), *facts(origin, n, **more)]
        producer.produce(dead, b"v%d" % n, b"k%d" % n, headers=headers, timestamp=1_000 + n)
    assert producer.flush(60) == 0


def values(broker, topic):  # noqa: F811
    return sorted(m.value() for m in read_all(broker.bootstrap, topic))


@pytest.fixture
def topics(broker):  # noqa: F811
    return new_topic(broker), new_topic(broker)


def test_replay_sends_each_record_once_as_it_was(broker, topics):  # noqa: F811
    dead, origin = topics
    bury(broker, dead, origin, 3)
    assert dlq(broker, "replay", dead, "--dry-run") == f"3 records would be sent to {origin}\n"
    assert dlq(broker, "replay", dead, "-n", "2") == f"2 records sent to {origin}\n"
    assert dlq(broker, "replay", dead) == f"1 record sent to {origin}\n"
    assert dlq(broker, "replay", dead) == "nothing to send\n"
    bury(broker, dead, origin, 1, first=3)
    assert dlq(broker, "replay", dead) == f"1 record sent to {origin}\n"
    # Apache Kafka ends a transaction after the answer to its commit.
    found = wait_until(
        lambda: read if len(read := read_all(broker.bootstrap, origin)) > 3 else None, "the last of them"
    )
    assert [(m.key(), m.value(), m.timestamp()[1]) for m in found] == [
        (b"k%d" % n, b"v%d" % n, 1_000 + n) for n in range(4)
    ]
    assert found[0].headers() == [("own", b"1"), (REPLAYED, f"{dead}-0@0".encode())]
    row = json.loads(dlq(broker, "list", dead, "-o", "json"))[0]
    assert (row["topic"], row["not_replayed"]) == (dead, 0)
    assert dlq(broker, "replay", dead, "--again") == f"4 records sent to {origin}\n"


def test_chosen_records_are_sent_and_not_remembered(broker, topics):  # noqa: F811
    dead, origin = topics
    bury(broker, dead, origin, 2)
    bury(broker, dead, origin, 2, first=2, stage="TASK_PUT", connector_name="other")
    said = dlq(broker, "replay", dead, "--stage", "task_put")
    assert said.splitlines() == [
        f"2 records sent to {origin}",
        "2 records left as they are: not chosen",
        "chosen records are not remembered: the same command sends them once more",
    ]
    assert values(broker, origin) == [b"v2", b"v3"]
    assert dlq(broker, "replay", dead, "--connector", "snk", "--error", "NUMBER 1").startswith(
        "1 record sent"
    )
    assert values(broker, origin) == [b"v1", b"v2", b"v3"]
    assert dlq(broker, "replay", dead) == f"4 records sent to {origin}\n"


def test_what_cannot_be_sent_stops_the_replay_before_it_and_says_what_helps(broker, topics):  # noqa: F811
    dead, origin = topics
    bury(broker, dead, origin, 1)
    fill(broker.bootstrap, dead, [b"no headers"])
    bury(broker, dead, origin, 1, first=2, value_format="json")
    bury(broker, dead, "gone", 1, first=3)
    said = dlq(broker, "replay", dead, fails=1)
    assert f"{dead}-0@1 does not say which topic it came from" in said
    assert "give --to TOPIC" in said
    assert values(broker, origin) == [b"v0"]
    said = dlq(broker, "replay", dead, "--skip")
    assert "nothing to send" in said
    assert "is a source's record whose value its converter could not write" in said
    assert "belongs into the topic gone, which does not exist" in said
    other = new_topic(broker)
    assert dlq(broker, "replay", dead, "--to", other, "--again") == f"4 records sent to {other}\n"
    assert b"no headers" in values(broker, other)


def test_show_says_where_each_came_from_and_why(broker, topics):  # noqa: F811
    dead, origin = topics
    bury(broker, dead, origin, 2)
    fill(broker.bootstrap, dead, [b"\xff"])
    said = dlq(broker, "show", dead).splitlines()
    assert said[0].split() == ["AT", "TIME", "CAME", "FROM", "TASK", "STAGE", "ERROR"]
    assert said[2].split() == [
        "0@1", "1970-01-01T00:00:01.001+00:00", f"{origin}-0@1", "snk-0", "VALUE_CONVERTER", "DataException:", "no",
        "number", "1",
    ]  # fmt: skip
    assert "at y" in dlq(broker, "show", dead, "--trace")
    rows = json.loads(dlq(broker, "show", dead, "--values", "-n", "1", "-o", "json"))
    assert [(r["at"], r["value"], r["error"]) for r in rows] == [("0@2", {"base64": "/w=="}, None)]
    counts = json.loads(dlq(broker, "show", dead, "--by", "error", "-o", "json"))
    assert counts == [{"error": "DataException", "records": 2}, {"error": None, "records": 1}]
    assert "'x' is not one of" in dlq(broker, "show", dead, "--by", "x", fails=2)
    assert "there is no topic nothing.here" in dlq(broker, "show", "nothing.here", fails=1)


names = st.text(min_size=1, max_size=8).filter(lambda n: not n.startswith(PREFIX))
own = st.lists(st.tuples(names, st.none() | st.binary(max_size=8)), max_size=4)


@given(own, st.dictionaries(names, st.text(max_size=8), max_size=4))
def test_a_letter_keeps_the_records_own_headers_in_order(headers, said):
    of = [*headers, *((PREFIX + n, v.encode()) for n, v in said.items())]
    letter = Letter.of(("d", 1, 2), 5, b"k", None, of)
    assert letter.headers == headers
    assert letter.facts == said
    assert letter.again() == [*headers, (REPLAYED, b"d-1@2")]
    assert Wanted()(letter)


@pytest.mark.parametrize(
    ("said", "place"),
    [
        ({"topic": "t", "partition": "7"}, ("t", 7)),
        ({"topic": "t", "partition": "-1", "value.format": "converter"}, ("t", -1)),
        ({"topic": "t"}, ("t", -1)),
    ],
)
def test_a_letter_goes_where_it_came_from(said, place):
    letter = Letter.of(("d", 0, 0), None, None, None, [(PREFIX + n, v.encode()) for n, v in said.items()])
    assert letter.destination() == place
    assert letter.destination("other") == ("other", -1)


@pytest.mark.parametrize("said", [{}, {"topic": "t", "key.format": "json"}])
def test_a_letter_that_was_never_a_record_is_not_sent_by_guess(said):
    letter = Letter.of(("d", 0, 0), None, None, None, [(PREFIX + n, v.encode()) for n, v in said.items()])
    with pytest.raises(CannotReplay, match="give --to TOPIC"):
        letter.destination()


def test_the_topics_are_those_of_a_workers_connectors(broker, topics, monkeypatch):  # noqa: F811
    """The worker's answer is its REST API's; what the broker holds is the broker's."""
    dead, origin = topics
    bury(broker, dead, origin, 2)

    def answer(worker, method, path):
        assert (worker.url, method, path) == ("http://w:1", "GET", "/connectors?expand=info")
        configs = {
            "a": {"errors.deadletterqueue.topic.name": dead},
            "b": {},
            "c": {"errors.deadletterqueue.topic.name": "gone"},
        }
        return {name: {"info": {"config": config}} for name, config in configs.items()}

    monkeypatch.setattr(Worker, "call", answer)
    said = [line.split() for line in dlq(broker, "list", "--url", "http://w:1").splitlines()]
    assert said == [
        ["TOPIC", "CONNECTORS", "RECORDS", "NOT", "REPLAYED"],
        ["gone", "c", "-", "-"],
        [dead, "a", "2", "2"],
    ]


@pytest.fixture(scope="module")
def kafka(processes, tmp_path_factory):
    with KafkaBroker(tmp_path_factory.mktemp("kafka")) as found:
        yield SimpleNamespace(bootstrap=found.address)


@pytest.mark.usefixtures("apache_kafka")
def test_on_apache_kafka_it_is_the_same(kafka):
    topics = new_topic(kafka), new_topic(kafka)
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    wait_until(lambda: admin.list_topics(timeout=30).topics.keys() >= set(topics), "the broker knows them")
    test_replay_sends_each_record_once_as_it_was(kafka, topics)


def test_two_replays_at_once_send_each_letter_once(broker, topics, monkeypatch):  # noqa: F811
    """The second one asks where the first one is when it has fenced it, not before."""
    dead, origin = topics
    bury(broker, dead, origin, 3)
    real = Replay._fence_others

    def after_another(producer):
        monkeypatch.setattr(Replay, "_fence_others", staticmethod(real))
        assert dlq(broker, "replay", dead) == f"3 records sent to {origin}\n"
        real(producer)

    monkeypatch.setattr(Replay, "_fence_others", staticmethod(after_another))
    assert dlq(broker, "replay", dead) == "nothing to send\n"
    assert values(broker, origin) == [b"v0", b"v1", b"v2"]
