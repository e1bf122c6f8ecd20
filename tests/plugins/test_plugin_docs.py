"""The extension surface, its pages and its tests agree."""

import asyncio
import dataclasses
import inspect
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

import klamm.testing
from klamm.testing import conformance, fixtures
from klamm_base.errors import ConfigError
from klamm_plugins import connector, converter, hookspecs, mirror, rest_extension, testing, transform
from klamm_plugins.batch import JSON, TEXT, SinkBatch
from klamm_plugins.converters.json import JsonConverter
from klamm_plugins.records import TopicPartition

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/writing-plugins.md").read_text("utf-8")
TESTING = (ROOT / "docs/testing-plugins.md").read_text("utf-8")
HOOKS = [name for name, f in inspect.getmembers(hookspecs, inspect.isfunction) if hasattr(f, "klamm_spec")]
API = [
    (cls, name)
    for cls in (
        connector.SourceConnector,
        connector.SinkConnector,
        connector.SourceTask,
        connector.SinkTask,
        connector.DriverTask,
        connector.SourceTaskContext,
        connector.SinkTaskContext,
        connector.DriverTaskContext,
        connector.ConnectorContext,
        converter.Converter,
        converter.HeaderConverter,
        transform.Transformation,
        transform.Predicate,
        rest_extension.RestExtension,
        rest_extension.RestContext,
        rest_extension.ClusterState,
        mirror.TopicFilter,
        mirror.GroupFilter,
        mirror.ConfigPropertyFilter,
        mirror.ReplicationPolicy,
        mirror.ForwardingAdmin,
    )
    for name, _ in inspect.getmembers(cls, lambda m: inspect.isroutine(m) or isinstance(m, property))
    if not name.startswith("_")
]


def test_there_are_hooks():
    assert HOOKS == [
        "register_commands",
        "register_config_providers",
        "register_connectors",
        "register_converters",
        "register_mirror_plugins",
        "register_predicates",
        "register_rest_extensions",
        "register_transforms",
    ]


@pytest.mark.parametrize("hook", HOOKS)
def test_every_hook_is_documented_and_called(hook):
    assert inspect.getdoc(getattr(hookspecs, hook))
    assert f"`{hook}()`" in PAGE
    tests = "".join(
        p.read_text("utf-8")
        for folder in ("plugins", "connect", "cli", "mirror")  # where what they register is
        for p in (ROOT / "tests" / folder).glob("test_*.py")
        if p != Path(__file__)
    )
    assert hook in tests


@pytest.mark.parametrize(("cls", "name"), API, ids=lambda x: x if isinstance(x, str) else x.__name__)
def test_every_method_of_the_api_is_on_the_page(cls, name):
    assert f"`{name}" in PAGE, f"docs/writing-plugins.md does not mention {cls.__name__}.{name}"


@pytest.mark.parametrize(
    "suite",
    [testing.SourceConformance, testing.SinkConformance, conformance.SourceSuite, conformance.SinkSuite],
    ids=lambda suite: suite.__name__,
)
def test_the_conformance_suites_are_documented(suite):
    assert f"`{suite.__name__}`" in PAGE
    assert suite.__name__ in TESTING


def test_what_is_public_for_tests_is_documented():
    public = [name for name in klamm.testing.__all__ if name not in {"Answer", "BrokerFailed", "FakeEvent"}]
    found = [name for name, f in vars(fixtures).items() if type(f).__name__ == "FixtureFunctionDefinition"]
    fields = [
        f.name for case in (conformance.SourceCase, conformance.SinkCase) for f in dataclasses.fields(case)
    ]
    assert len(found) == 7
    missing = [n for n in (*public, *found, *fields) if n not in TESTING and n != "klamm_own_broker"]
    assert not missing


@pytest.mark.usefixtures("processes")
def test_the_reference_page_is_what_the_definitions_say():
    made = subprocess.run(
        [sys.executable, "-m", "klamm_plugins.reference"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    page = (ROOT / "docs/reference/connectors.md").read_text("utf-8")
    assert made.stdout == page, "run: ./dev docs"


BLOCKS = [b.split("```")[0] for page in (PAGE, TESTING) for b in page.split("```python\n")[1:]]


def test_python_on_the_page_is_python():
    assert BLOCKS
    for block in BLOCKS:
        compile(block, "docs/writing-plugins.md", "exec")


def test_the_sink_on_the_page_writes_the_same_of_records_and_columns(tmp_path):
    found = {}
    exec(next(b for b in BLOCKS if "class LinesSinkTask" in b), found)
    converter = JsonConverter()
    converter.configure({"schemas.enable": "false"}, is_key=False)
    _, raw = converter.raw_values("t", [b'{"a":1}', b"5"], (JSON, TEXT))
    written = []
    for values in (raw, raw.decode(raw.data)):
        task = found["LinesSinkTask"]()
        task.start({"file": str(tmp_path / str(len(written)))})
        batch = SinkBatch(TopicPartition("t", 0), [1, 2], values)
        task.put_batches([batch])
        task.put(list(batch))
        task.stop()
        written.append((tmp_path / str(len(written))).read_bytes())
    assert written == [b'{"a":1}\n5\n' * 2] * 2


def test_the_source_on_the_page_conforms(tmp_path):
    found = {}
    exec(next(b for b in BLOCKS if "class CountSourceTask" in b), found)

    class Suite(testing.SourceConformance):
        connector = found["CountSourceConnector"]

        def props(self, tmp_path):
            return {"topic": "t"}

        def produce(self, tmp_path, count):
            """Does nothing: the source counts by itself."""

    run_suite(Suite(), tmp_path)


def test_the_driver_on_the_page_copies_pauses_and_goes_on(tmp_path):
    found = {}
    exec(next(b for b in BLOCKS if "class CopyTask" in b), found)
    here, there = tmp_path / "from", tmp_path / "to"
    here.write_text("a\nb\n")
    props = {"from": str(here), "to": str(there)}

    class Suite(testing.ConnectorConformance):
        connector = found["CopySourceConnector"]

        def props(self, tmp_path):
            return props

    context = testing.MemoryDriverContext(props)
    for text in ("a\nb\n", "a\nb\nc\n"):
        here.write_text(text)
        task = found["CopyTask"]()
        task.initialize(context)
        task.start(props)
        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(task.run)
            try:
                testing.wait_for(lambda text=text: there.read_text() == text, "copy", 60)
                context.pause()
                testing.wait_for(context.is_paused.is_set, "pause", 60)
                context.resume()
            finally:
                context.stop()
            running.result(60)
        task.stop()
        context.stopping.clear()
    assert context.offset({"file": str(here)}) == {"position": 6}
    assert context.said[-1]["details"] == {"at": 6}


class OneFailed:
    """A group with one connector that works and one that does not."""

    def connectors(self):
        return ["good", "bad"]

    async def status(self, name):
        return {"tasks": [{"id": 0, "state": "FAILED" if name == "bad" else "RUNNING"}]}


class Context:
    def __init__(self):
        self.cluster, self.apps, self.middlewares = OneFailed(), {}, []

    def add_app(self, prefix, app, *, access="any"):
        self.apps[prefix, access] = app

    def add_middleware(self, middleware):
        self.middlewares.append(middleware)


def test_the_rest_extension_on_the_page_works():
    found = {}
    exec(next(b for b in BLOCKS if "class Alerts" in b), found)
    extension, context = found["Alerts"](), Context()
    with pytest.raises(ConfigError, match="give low or high"):
        extension.configure({})
    extension.configure({"rest.extension.alerts.level": "high"})
    extension.register(context)
    assert list(context.apps) == [("alerts", "view")]
    (guard,) = context.middlewares

    def ask(method, path):
        return asyncio.run(guard(make_mocked_request(method, path), extension.failed))

    assert ask("GET", "/alerts/failed").text == '{"level": "high", "connectors": ["bad"]}'
    with pytest.raises(web.HTTPForbidden):
        ask("DELETE", "/connectors/x")


def test_the_command_on_the_page_is_one():
    found = {}
    exec(next(b for b in BLOCKS if "register_commands" in b), found)
    (command,) = found["register_commands"]()
    assert (command.name, command.target) == ("tickets", "acme_klamm.commands:app")


def run_suite(suite, tmp_path):
    for name, check in inspect.getmembers(suite, inspect.ismethod):
        if name.startswith("test_"):
            check(**({"tmp_path": tmp_path} if "tmp_path" in inspect.signature(check).parameters else {}))
