"""docs/differences.md says of every API what the registry says."""

from __future__ import annotations

import ast
import re
import runpy
import sys
from pathlib import Path

from klamm_broker.api import registry
from klamm_kafka.wire.api_keys import ApiKey, message_types

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "differences.md"
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


def test_each_api_declares_the_rights_that_it_asks_for():
    """`needs=` in its registration line; `()` for an API that everybody may use."""
    undeclared = [api.name for api in registry.load().values() if api.needs is None]
    assert not undeclared, (
        f"{undeclared}: say with needs= in @handles what Kafka asks for (docs/internals/broker.md, Rights)"
    )


def test_no_handler_asks_for_a_right_that_it_does_not_declare():
    """Its module names an operation only if `needs` has it."""
    for api in registry.load().values():
        tree = ast.parse(Path(sys.modules[api.module].__file__).read_text("utf-8"))
        used = {
            node.attr
            for node in ast.walk(tree)
            if isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id == "AclOperation"
        }
        declared = {need.operation.name for need in api.needs or ()}
        assert used <= declared, f"{api.name}: {used - declared}"


def test_the_page_about_security_has_the_declared_rights():
    made = runpy.run_path(str(ROOT / "docs/reference/make_rights.py"))
    page = (ROOT / "docs/security.md").read_text("utf-8")
    assert page == made["page"](page), "./dev docs makes it"
