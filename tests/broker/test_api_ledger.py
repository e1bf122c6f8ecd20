"""docs/differences.md says of every API what the registry says."""

from __future__ import annotations

import re
from pathlib import Path

from klamm_broker.api import registry
from klamm_kafka.wire.api_keys import ApiKey, message_types

PAGE = Path(__file__).parents[2] / "docs" / "differences.md"
ROW = re.compile(r"^\| (\d+) \| (\w+) \| (not served|\d+-\d+) \| (.*?) ?\|$", re.MULTILINE)


def ledger():
    section = PAGE.read_text().split("\n## Protocol ledger\n")[1].split("\n## ")[0]
    return {int(key): (name, versions, note) for key, name, versions, note in ROW.findall(section)}


def test_every_api_has_a_row_that_agrees_with_the_registry():
    served = registry.load()
    rows = ledger()
    assert list(rows) == [key.value for key in ApiKey], "one row for each key, in order"
    for key in ApiKey:
        name, versions, note = rows[key]
        assert name == "".join(word.capitalize() for word in key.name.split("_"))
        if key in served:
            assert versions == f"{served[key].min_version}-{served[key].max_version}", name
        else:
            assert versions == "not served", name
            assert note, f"{name} is not served: the ledger must say why"


def test_served_versions_are_versions_that_exist():
    for key, api in registry.load().items():
        request, response = message_types(key)
        assert request.MIN_VERSION <= api.min_version <= api.max_version <= request.MAX_VERSION, api.name
        assert api.max_version <= response.MAX_VERSION, api.name


def test_each_handler_module_is_named_by_its_key_and_says_what_it_serves():
    for key, api in registry.load().items():
        module = __import__(api.module, fromlist=["__doc__"])
        assert api.module.rpartition(".")[2] == f"api_{key:02d}_{api.name.lower()}"
        first = (module.__doc__ or "").splitlines()[0]
        versions = (
            str(api.min_version)
            if api.min_version == api.max_version
            else f"{api.min_version} (to|and) {api.max_version}"
        )
        assert re.search(rf"key {key}[:,] versions? {versions}\b", first), f"{api.module}: {first}"


def test_the_ledger_says_what_is_answered_about_authorized_operations():
    rows = ledger()
    for key, api in registry.load().items():
        answers = hasattr(__import__(api.module, fromlist=["authorized"]), "authorized")
        said = "no authorizer: all operations are authorized" in rows[key][2]
        assert answers == said, f"{api.name}: {rows[key][2]}"
        assert "no authorized operations" not in rows[key][2], api.name
