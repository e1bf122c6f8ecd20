"""Configurations of the public documentation of Debezium, Confluent and Kafka, pasted.

`debezium.json`, `confluent.json` and `kafka.json` have each with its source, and what follows: `refused` (the sentence by key), `warned`
(the sentences), `runs` (the name of an effect in `support.pasted`). A configuration that runs goes to real servers, with nothing exchanged but addresses,
users, passwords and paths.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import pytest
from support import pasted as effects
from support import pasted_place
from support.connect_worker import wait_for

HERE: Final = Path(__file__).parent
CASES: Final = {
    f"{family}: {name}": case
    for family in ("debezium", "confluent", "kafka")
    for name, case in json.loads((HERE / f"{family}.json").read_text("utf-8")).items()
}
RUNNING: Final = [name for name, case in CASES.items() if "runs" in case]


def test_every_case_says_where_it_is_from_and_what_follows() -> None:
    for name, case in CASES.items():
        assert case["source"].startswith("https://"), name
        assert case.keys() <= {"source", "config", "refused", "warned", "runs"}, name
        assert not ("runs" in case and "refused" in case), name
        assert "runs" not in case or hasattr(effects, case["runs"]), name
    assert len(CASES) > 50
    assert len(RUNNING) > 25


def test_what_is_refused_says_a_sentence_and_the_page_has_it() -> None:
    page = (HERE.parents[1] / "docs/migrating.md").read_text("utf-8")
    for name, case in CASES.items():
        for key, said in case.get("refused", {}).items():
            assert said, name
            value = case["config"].get(key, "").rpartition(".")[2]
            assert f"`{key}" in page or key.rpartition(".")[2] in page or value in page, (
                f"{name}: {key} is not on the page"
            )


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory, processes: None) -> Any:
    with pasted_place.up(tmp_path_factory.mktemp("up")) as found:
        yield found


@pytest.mark.parametrize("name", CASES)
def test_validate_says_what_runs_and_what_does_not(worker: pasted_place.Up, name: str) -> None:
    case = CASES[name]
    config = {"name": "pasted", **case["config"]}
    path = f"/connector-plugins/{quote(config['connector.class'])}/config/validate"
    status, answer = worker.request("PUT", path, config)
    if status == 400:
        assert {"connector.class": answer["message"]} == case["refused"]
        return
    errors = {v["value"]["name"]: v["value"]["errors"][0] for v in answer["configs"] if v["value"]["errors"]}
    assert errors == case.get("refused", {})
    assert answer.get("warnings", []) == case.get("warned", [])


@pytest.mark.parametrize("name", [n for n, case in CASES.items() if "refused" in case])
def test_what_is_refused_makes_no_connector(worker: pasted_place.Up, name: str) -> None:
    config = CASES[name]["config"]
    status, _ = worker.request(
        "POST", "/connectors", {"name": "refused", "config": config | {"name": "refused"}}
    )
    assert status == 400
    assert worker.request("GET", "/connectors/refused")[0] == 404


@pytest.mark.timeout(240)
@pytest.mark.parametrize("name", RUNNING)
def test_what_runs_does_what_it_says(
    name: str,
    mariadb: Any,
    postgresql_database: str,
    postgresql: Any,
    elasticsearch_server: Any,
    tmp_path: Path,
) -> None:
    case = CASES[name]
    with pasted_place.surroundings(
        tmp_path, mariadb, postgresql, postgresql_database, elasticsearch_server
    ) as place:
        effect = getattr(effects, case["runs"])
        before = getattr(effects, f"before_{case['runs']}", None)
        if before is not None:
            before(place)
        created = place.paste(case["config"])
        assert created.get("warnings", []) == case.get("warned", [])
        connector = created["name"]
        wait_for(
            lambda: place.states(connector) == ["RUNNING", "RUNNING"], lambda: str(place.status(connector))
        )
        try:
            effect(place, case["config"])
        except AssertionError as e:
            raise AssertionError(f"{e}\n{place.status(connector)}") from e
