"""franz-go, the Go client that shares no code with librdkafka or the Java client: records, groups, admin.

The program is franz-go/main.go, built once per session; what it should see is said here.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.broker import new_name, new_topic

from klamm.testing import EmbeddedBroker

Franz = Callable[..., Any]
pytestmark = [pytest.mark.usefixtures("franz_go"), pytest.mark.timeout(900)]
SOURCE = Path(__file__).with_name("franz-go")


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns the program; skips where Go is missing, or where its modules can neither be found nor fetched."""
    go = shutil.which("go")
    if go is None:
        pytest.skip("Go is not installed (no go on PATH; Debian: apt-get install golang)")
    modules = subprocess.run(
        [go, "mod", "download"], cwd=SOURCE, capture_output=True, text=True, timeout=400, check=False
    )
    if modules.returncode:
        pytest.skip(
            f"`go mod download` in {SOURCE} failed; it needs a Go module proxy (GOPROXY): {modules.stderr.strip()[-300:]}"
        )
    built = tmp_path_factory.mktemp("franz-go") / "franz-go"
    command = [go, "build", "-mod=readonly", "-buildvcs=false", "-o", str(built), "."]
    subprocess.run(command, cwd=SOURCE, check=True, timeout=400, env=os.environ | {"CGO_ENABLED": "0"})
    return built


@pytest.fixture(scope="session")
def franz(program: Path, broker: EmbeddedBroker) -> Franz:
    """Run a scenario against our broker and return what it printed."""

    def run(scenario: str, topic: str, *args: str) -> Any:
        command = [str(program), broker.bootstrap, scenario, topic, *args]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, f"{scenario}: {done.stderr}\n{broker.log_text[-2000:]}"
        return json.loads(done.stdout)

    return run


def test_topics_are_administered_by_kadm(franz: Franz) -> None:
    answer = franz("admin", new_name())
    assert answer["configs"] == {"retention.ms": "60000", "segment.bytes": "1048576"}
    assert (answer["partitions"], answer["ends"], answer["brokers"]) == (5, 5, 1)
    assert len(answer["cluster"]) == 22
    assert answer["again"].startswith("TOPIC_ALREADY_EXISTS")
    assert answer["gone"].startswith("UNKNOWN_TOPIC_OR_PARTITION")


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_records_go_in_and_come_out(franz: Franz, codec: str) -> None:
    topic = new_name()
    produced = franz("produce", topic, codec, "1000")
    assert {r["value"] for r in produced} == {f"value-{n}" for n in range(1000)}
    assert len({r["partition"] for r in produced}) > 1
    consumed = franz("consume", topic, "1000")
    place = lambda r: (r["partition"], r["offset"])
    assert sorted(consumed, key=place) == sorted(produced, key=place)


def test_a_group_goes_on_where_it_committed(franz: Franz, broker: EmbeddedBroker) -> None:
    topic, group = new_topic(broker, 2), new_name("group")
    produced = {r["value"] for r in franz("produce", topic, "lz4", "300")}
    first = franz("group", topic, group, "200")
    second = franz("group", topic, group, "100")
    assert len(first) == 200
    assert {r["value"] for r in [*first, *second]} == produced


def test_two_members_share_and_hand_over(franz: Franz, broker: EmbeddedBroker) -> None:
    topic = new_topic(broker, 6)
    assert franz("two-members", topic, new_name("group")) == {"alone": 6, "shared": [3, 3], "after": 6}


def test_groups_are_administered_by_kadm(franz: Franz, broker: EmbeddedBroker) -> None:
    topic, group = new_topic(broker, 1), new_name("group")
    franz("produce", topic, "none", "10")
    franz("group", topic, group, "10")
    franz("produce", topic, "none", "4")
    answer = franz("group-admin", topic, group)
    assert (answer["state"], answer["lag"], answer["moved"]) == ("Empty", 4, 1)
    assert group in answer["listed"]
    assert answer["gone"].startswith("GROUP_ID_NOT_FOUND")
