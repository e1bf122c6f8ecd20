"""The console's pages over a real broker and a real worker, as a browser asks for them."""

from __future__ import annotations

import http.client
import json
import re
from contextlib import contextmanager
from urllib.parse import quote

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from support.broker import new_name, new_topic, wait_until
from support.browser import Browser
from support.klamm import Server

from klamm.web.passwords import hash_password


def _fill(broker, topic, count):
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for i in range(count):
        producer.produce(topic, json.dumps({"id": i}), f"k{i}", headers={"n": str(i)})
    producer.flush(30)


def test_a_check_of_health_may_ask_for_the_head_alone(browser):
    for path in ("/", "/c/local/topics"):
        text = browser.ask("HEAD", path)
        assert (browser.status, text, browser.headers["Content-Type"].split(";")[0]) == (200, "", "text/html")
    browser.ask("HEAD", "/c/local/topics/nosuch")
    assert browser.status == 404
    browser.ask("HEAD", "/c/local/topics/nosuch/records/stream")  # has no end
    assert browser.status == 405


def test_a_topic_from_its_creation_to_its_end(broker, browser):
    name = new_name()
    text = browser.post("/c/local/new-topic", name=name, partitions="2", **{"set.retention.ms": "60000"})
    assert (browser.status, f"Topic {name} was created." in text) == (200, True)
    preview = browser.post(
        f"/c/local/topics/{name}/settings/preview",
        **{"set.retention.ms": "", "set.max.message.bytes": "2000"},
    )
    assert re.search(
        r"<del><code>60000</code></del>.*<ins>.*<ins><code>2000</code></ins>|<ins><code>2000</code></ins>.*<del><code>60000</code></del>.*<ins>",
        preview,
        re.DOTALL,
    )
    assert "60000" in browser.get(f"/c/local/topics/{name}/settings")  # nothing has changed yet
    changed = browser.post(
        f"/c/local/topics/{name}/settings/edit", **{"set.retention.ms": "", "set.max.message.bytes": "2000"}
    )
    assert f"2 settings of {name} changed" in changed
    wrong = browser.post(f"/c/local/topics/{name}/settings/edit", **{"set.max.message.bytes": "many"})
    assert browser.status == 400
    assert "max.message.bytes" in wrong
    assert f"{name} has 3 partitions now" in browser.post(
        f"/c/local/topics/{name}/partitions", partitions="3"
    )
    _fill(broker, name, 30)
    assert "type " + name in browser.post(f"/c/local/topics/{name}/trim", how="all", confirm="x")
    assert "were deleted" in browser.post(f"/c/local/topics/{name}/trim", how="all", confirm=name)
    assert f"Topic {name} was deleted." in browser.post(f"/c/local/topics/{name}/delete", confirm=name)
    assert f"there is no topic {name}" in browser.get(f"/c/local/topics/{name}")
    assert browser.status == 404


def test_the_list_is_searched_sorted_and_paged(broker, browser):
    names = [new_topic(broker, partitions=1 + i % 2, name=f"paged-{i:03d}") for i in range(60)]
    # The list is asked for once in two seconds
    text = wait_until(
        lambda: (found := browser.get("/c/local/topics?q=PAGED-")) and "60 topics" in found and found,
        "60 topics",
    )
    assert (names[0] in text, names[55] in text) == (True, False)
    assert names[55] in browser.get("/c/local/topics?q=paged-&page=2")
    text = browser.get("/c/local/topics?q=paged-00&sort=partitions&down=1")
    assert text.index("paged-001") < text.index("paged-000")


@contextmanager
def _stream(console, path):
    """Yields the answer to a request for a stream; leaves it at the end, as a browser does."""
    connection = http.client.HTTPConnection(console.removeprefix("http://"), timeout=60)
    connection.request("GET", path)
    with connection.getresponse() as answer:
        yield answer
    connection.close()


def _events(answer, end="done"):
    found, kind = [], ""
    while line := answer.readline().decode():
        if line.startswith("event: "):
            kind = line[7:].strip()
        elif line.startswith("data: "):
            found.append((kind, json.loads(line[6:])))
            if kind in (end, "failed"):
                break
    return found


def _found(console, path):
    with _stream(console, path) as answer:
        return _events(answer)


def test_records_are_searched_and_shown(broker, console, browser):
    name = new_topic(broker, partitions=3)
    _fill(broker, name, 500)
    path = f"/c/local/topics/{name}/records"
    found = _found(console, f"{path}/stream?where=value.id%20%3E%20490&limit=100")
    assert sum(data["count"] for kind, data in found if kind == "rows") == 9
    assert found[-1][1]["more"] is False
    found = _found(console, f"{path}/stream?start=oldest&key=k7")
    (row,) = (data["html"] for kind, data in found if kind == "rows")
    place = re.search(rf"{path}/(\d)/(\d+)", row)
    text = browser.get(place[0])
    assert '"id": 7' in text
    assert "<pre>k7</pre>" in text
    browser.get(f"{path}/0/99999")
    assert browser.status == 404
    failed = _found(console, "/c/local/topics/nope/records/stream")
    assert failed[-1] == ("failed", {"said": "there is no topic nope"})


def _places(found):
    """Returns the records of a search, as (partition, offset) in their order, and where to go on."""
    html = "".join(data["html"] for kind, data in found if kind == "rows")
    return [(int(p), int(o)) for p, o in re.findall(r"/records/(\d+)/(\d+)", html)], found[-1][1]["on"]


@pytest.mark.parametrize(
    "how",
    ["start=newest", "start=oldest", "start=newest&where=value.id%20%25%202%20%3D%3D%201", "start=oldest&text=1"],
)  # fmt: skip
def test_a_search_is_gone_on_with_until_its_end(broker, console, how):
    name = new_topic(broker, partitions=3)
    _fill(broker, name, 200)
    path = f"/c/local/topics/{name}/records/stream?{how}"
    wanted, on = _places(_found(console, f"{path}&limit=1000"))
    assert not on
    assert len(wanted) > 50
    places, all_found = "", []
    for _ in range(50):
        found, places = _places(_found(console, f"{path}&limit=7{'&on=' + places if places else ''}"))
        assert len(found) <= 7
        all_found += found
        if not places:
            break
    assert (sorted(all_found), len(all_found)) == (sorted(wanted), len(wanted))


def test_a_search_goes_back_to_the_oldest_record(broker, console):
    """It reads several ranges by one consumer, the newest first."""
    name = new_topic(broker, partitions=2)
    _fill(broker, name, 5_000)
    found = _found(console, f"/c/local/topics/{name}/records/stream?where=value.id%20%3C%203")
    assert len(_places(found)[0]) == 3, found[-1]
    assert found[-1][1]["read"] == 5_000


def test_a_search_until_a_time_reads_nothing_later(broker, console):
    name = new_topic(broker)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for i in range(2_000):
        producer.produce(name, b"x", timestamp=1_000_000 + i, partition=0)
    producer.flush(30)
    path = f"/c/local/topics/{name}/records/stream?until=1000019"
    for start in ("newest", "oldest", "time&at=1000010"):
        found = _found(console, f"{path}&start={start}")
        places, _ = _places(found)
        assert sorted(places) == [(0, i) for i in range(10 if "at" in start else 0, 20)], start
        assert found[-1][1]["read"] < 200, start


def test_a_search_sees_committed_records_unless_it_is_asked_for_all(broker, console, browser):
    """Aborted ones at the log's end, and those of a transaction that is open, hold it up for nobody."""
    name = new_topic(broker)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": name, "linger.ms": 0})
    producer.init_transactions(30)
    for end, text in (
        (producer.commit_transaction, "good"),
        (producer.abort_transaction, "bad"),
        (None, "open"),
    ):
        producer.begin_transaction()
        for i in range(5):
            producer.produce(name, f"{text}{i}")
        producer.flush(30)
        if end is not None:
            end(30)
    for start in ("newest", "oldest", "offset&at=-3", "newest&text=o"):
        found = _found(console, f"/c/local/topics/{name}/records/stream?start={start}")
        places, on = _places(found)
        assert sorted(places) == ([] if "at" in start else [(0, i) for i in range(5)]), start
        assert (on, found[-1][0]) == ("", "done")
        assert found[-1][1]["seconds"] < 5
    places, _ = _places(_found(console, f"/c/local/topics/{name}/records/stream?start=oldest&un=1"))
    assert places == [(0, i) for first in (0, 6, 12) for i in range(first, first + 5)]
    assert "bad0" in browser.get(f"/c/local/topics/{name}/records/0/6")
    producer.abort_transaction(30)


def test_large_records_are_not_all_kept(broker, console):
    name = new_topic(broker)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "message.max.bytes": 1_000_000})
    for i in range(40):
        producer.produce(name, b"%02d" % i + b"x" * 900_000)
        producer.poll(0)
        if i % 10 == 9:
            producer.flush(30)
    found = _found(console, f"/c/local/topics/{name}/records/stream?text=x")
    places, on = _places(found)
    assert places == [(0, i) for i in range(39, 39 - len(places), -1)]
    assert 10 < len(places) < 20
    assert on == f"0:{40 - len(places)}"


def test_a_search_that_is_left_ends_its_consumer(broker, worker):
    """One tail is as many as there may be; it makes room when it is left."""
    name = new_topic(broker)
    settings = [
        "listeners=http://127.0.0.1:0",
        f"bootstrap.servers={broker.bootstrap}",
        "console.searches.max=1",
    ]
    with Server("console", "start", *(w for s in settings for w in ("--override", s))) as server:
        url, path = server.ready["console"], f"/c/local/topics/{name}/records/stream?tail=1"
        with _stream(url, path) as first:
            assert _events(first, "progress")[-1][0] == "progress"
            with _stream(url, path) as second:
                assert second.status == 429

        def free():
            with _stream(url, path) as answer:
                return answer.status == 200

        wait_until(free, "the tail's place is free again", timeout_s=15)


def test_a_record_is_produced(broker, browser):
    name = new_topic(broker)
    text = browser.post(
        f"/c/local/topics/{name}/produce",
        key="a",
        key_form="text",
        value='{"x": 1}',
        value_form="json",
        headers="trace: t1",
    )
    assert "The record is at offset 0 of partition 0." in text
    assert ('"x": 1' in text, "t1" in text) == (True, True)
    assert "that is not JSON" in browser.post(f"/c/local/topics/{name}/produce", value="{", value_form="json")


def test_a_groups_lag_and_new_offsets(broker, browser):
    name, group = new_topic(broker), new_name("group")
    _fill(broker, name, 20)
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([name])
    assert len(consumer.consume(20, 30)) == 20
    consumer.commit(asynchronous=False)
    refused = browser.post(f"/c/local/groups/{group}/reset", offsets=f"{name}:0=5")
    assert (browser.status, "only while it has no members" in refused) == (400, True)
    consumer.close()
    chart = json.loads(browser.get(f"/c/local/groups/{group}/lag"))
    assert chart["lines"] == [{"name": name, "values": [0]}]
    preview = browser.post(f"/c/local/groups/{group}/reset/preview", how="shift", value="-15")
    fixed = re.search(r'name="offsets" value="([^"]+)"', preview)[1]
    assert fixed == f"{name}:0=5"
    assert "1 offset of" in browser.post(f"/c/local/groups/{group}/reset", offsets=fixed)
    assert re.search(r"<dt>Lag</dt><dd>15</dd>", browser.get(f"/c/local/groups/{group}"))
    assert f"Group {group} was deleted." in browser.post(f"/c/local/groups/{group}/delete", confirm=group)


def test_a_groups_name_may_have_a_slash(broker, browser):
    name, group = new_topic(broker), new_name("team/a b?c#d%e")
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
    consumer.commit(offsets=[TopicPartition(name, 0, 0)], asynchronous=False)
    consumer.close()
    path = f"/c/local/groups/{quote(group, safe='')}"
    text = browser.get(path)
    assert (f'data-chart="{path}/lag"' in text, f'href="{path}/reset"' in text) == (True, True)
    assert f"1 offset of {group} set." in browser.post(f"{path}/reset", offsets=f"{name}:0=0")


def test_a_connector_from_its_form_to_its_end(broker, browser, tmp_path):
    name, topic = new_name("sink"), new_topic(broker)
    form = browser.get("/c/local/new-connector/form?plugin=FileStreamSink")
    assert ("Common" in form, 'name="c.topics"' in form) == (True, True)
    fields = {"c.connector.class": "FileStreamSink", "c.name": name, "c.topics": topic, "c.tasks.max": "many"}
    checked = browser.post("/c/local/new-connector/check", source="fields", **fields)
    assert re.search(r"many.*tasks.max", checked)
    text = json.dumps(
        {
            "name": name,
            "config": {"connector.class": "FileStreamSink", "topics": topic, "file": str(tmp_path / "out")},
        }
    )
    checked = browser.post("/c/local/new-connector/check", source="json", json=text)
    assert f'name="c.topics" value="{topic}"' in checked
    assert "The worker accepts these settings." in checked
    made = browser.post("/c/local/new-connector/form", source="json", json=text)
    assert f"Connector {name} was saved." in made
    wait_until(lambda: "RUNNING" in browser.get(f"/c/local/connectors/{name}"), "the connector runs")
    assert name in browser.get("/c/local/connectors?state=RUNNING")
    assert f"{name} is stopped." in browser.post(f"/c/local/connectors/{name}/do", what="stop")
    wait_until(
        lambda: "Change offsets" in browser.get(f"/c/local/connectors/{name}/offsets"), "it is stopped"
    )
    assert "FileStreamSink" in browser.get(f"/c/local/connectors/{name}/edit")
    assert browser.get(f"/c/local/connectors/{name}/history")
    sample = json.dumps({"topic": topic, "value": '{"schema": null, "payload": 1}'})
    assert "delivered" in browser.post("/c/local/new-connector/try", source="json", json=text, sample=sample)
    assert f"Connector {name} was deleted." in browser.post(
        f"/c/local/connectors/{name}/delete", confirm=name
    )


def test_changes_need_the_token_and_no_other_sites_page(browser):
    fields = {"name": "x", "csrf": "0" * 64}
    assert "too old" in browser.ask("POST", "/c/local/new-topic", fields)
    assert browser.status == 403
    fields["csrf"] = browser.token
    for header in ({"Origin": "http://evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
        browser.ask("POST", "/c/local/new-topic", fields, **header)
        assert browser.status == 403
    browser.get("/", Host="evil.example")
    assert browser.status == 421
    browser.get("/c/local/topics")
    assert "default-src 'self'" in browser.headers["Content-Security-Policy"]


@pytest.mark.parametrize(
    "path",
    ["/", "/c/local", "/c/local/brokers/1", "/c/local/topics", "/c/local/groups", "/c/local/connectors", "/c/local/plugins", "/c/local/new-connector"],
)  # fmt: skip
def test_every_part_has_a_page(browser, path):
    assert "<main" in browser.get(path)
    assert browser.status == 200


def test_logins_roles_and_read_only(broker, worker, tmp_path):
    users = tmp_path / "users.toml"
    users.write_text(
        f'[users.ann]\npassword = "{hash_password("a")}"\nrole = "admin"\n[users.vic]\npassword = "{hash_password("v")}"\nrole = "viewer"\n'
    )
    settings = [
        "listeners=http://127.0.0.1:0", f"bootstrap.servers={broker.bootstrap}", f"connect.url={worker.url}", f"rest.auth.file={users}",
    ]  # fmt: skip

    with Server("console", "start", *(w for s in settings for w in ("--override", s))) as server:
        browser = Browser(server.ready["console"])
        assert browser.ask("GET", "/c/local/topics") == ""
        assert browser.headers["Location"] == "/login?to=%2Fc%2Flocal%2Ftopics"
        browser.get("/login")
        before = browser.cookie
        assert "wrong" in browser.post("/login", user="vic", password="x")
        assert "Topics" in browser.post("/login", user="vic", password="v", to="/c/local/topics")
        assert browser.cookie != before
        assert "vic may not administer this" in browser.post("/c/local/new-topic", name="x")
        assert "New topic" not in browser.get("/c/local/topics")
        browser.post("/logout")
        browser.post("/login", user="ann", password="a", to="//evil.example")
        assert browser.status == 200  # it went to /, not elsewhere
        name = new_name()
        assert f"Topic {name} was created." in browser.post("/c/local/new-topic", name=name)
        log = server
    audit = [line for line in log.errors if "klamm.audit" in line]
    assert any('"topic created"' in line and '"user": "ann"' in line for line in audit), audit
    with Server(
        "console", "start", *(w for s in [*settings[:3], "console.read.only=true"] for w in ("--override", s))
    ) as server:
        browser = Browser(server.ready["console"])
        browser.get("/")
        assert "read-only" in browser.post("/c/local/new-topic", name="x")
        assert browser.status == 403
