"""The extension surface, its pages and its tests agree."""

import inspect
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from klamm_plugins import connector, converter, hookspecs, testing, transform

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/writing-plugins.md").read_text("utf-8")
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
    )
    for name, _ in inspect.getmembers(cls, lambda m: inspect.isroutine(m) or isinstance(m, property))
    if not name.startswith("_")
]


def test_there_are_hooks():
    assert HOOKS == [
        "register_config_providers",
        "register_connectors",
        "register_converters",
        "register_predicates",
        "register_transforms",
    ]


@pytest.mark.parametrize("hook", HOOKS)
def test_every_hook_is_documented_and_called(hook):
    assert inspect.getdoc(getattr(hookspecs, hook))
    assert f"`{hook}()`" in PAGE
    tests = "".join(
        p.read_text("utf-8") for p in Path(__file__).parent.glob("test_plugin_*.py") if p != Path(__file__)
    )
    assert hook in tests


@pytest.mark.parametrize(("cls", "name"), API, ids=lambda x: x if isinstance(x, str) else x.__name__)
def test_every_method_of_the_api_is_on_the_page(cls, name):
    assert f"`{name}" in PAGE, f"docs/writing-plugins.md does not mention {cls.__name__}.{name}"


@pytest.mark.parametrize(
    "suite", [testing.SourceConformance, testing.SinkConformance], ids=lambda suite: suite.__name__
)
def test_the_conformance_suites_are_documented(suite):
    assert f"`{suite.__name__}`" in PAGE


def test_the_reference_page_is_what_the_definitions_say():
    made = subprocess.run(
        [sys.executable, "-m", "klamm_plugins.reference"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    page = (ROOT / "docs/reference/connectors.md").read_text("utf-8")
    assert made.stdout == page, "run: python -m klamm_plugins.reference >docs/reference/connectors.md"


BLOCKS = [b.split("```")[0] for b in PAGE.split("```python\n")[1:]]


def test_python_on_the_page_is_python():
    assert BLOCKS
    for block in BLOCKS:
        compile(block, "docs/writing-plugins.md", "exec")


def test_the_source_on_the_page_conforms(tmp_path):
    found = {}
    exec(next(b for b in BLOCKS if "class CountSourceTask" in b), found)

    class Suite(testing.SourceConformance):
        connector = found["CountSourceConnector"]

        def props(self, tmp_path):
            return {"topic": "t"}

        def produce(self, tmp_path, count):
            """It counts by itself."""

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
        running = threading.Thread(target=task.run)
        running.start()
        testing.wait_for(lambda text=text: there.read_text() == text, "copy")
        context.pause()
        testing.wait_for(context.is_paused.is_set, "pause")
        context.resume()
        context.stop()
        running.join(10)
        assert not running.is_alive()
        task.stop()
        context.stopping.clear()
    assert context.offset({"file": str(here)}) == {"position": 6}
    assert context.said[-1]["details"] == {"at": 6}


def run_suite(suite, tmp_path):
    for name, check in inspect.getmembers(suite, inspect.ismethod):
        if name.startswith("test_"):
            check(**({"tmp_path": tmp_path} if "tmp_path" in inspect.signature(check).parameters else {}))
