"""The rest of the package on a real worker: the transform in a pipeline, the REST extension, the command."""

import json

import pytest
from klamm_example.commands import app
from klamm_example.datagen import DatagenSourceConnector, make_order
from klamm_example.failed_tasks import FailedTasks
from klamm_example.hide import HideFields
from typer.testing import CliRunner

from klamm.testing import EmbeddedWorker, WorkerFailed
from klamm.testing.topics import TopicReader
from klamm_plugins.errors import DataError
from klamm_plugins.testing import sink_records

EXTENSION = f"{FailedTasks.__module__}.{FailedTasks.__name__}"


@pytest.fixture(scope="module")
def worker(klamm_bootstrap):
    config = {"rest.extension.classes": EXTENSION, "example.header": "X-Shop"}
    plugins = [DatagenSourceConnector, HideFields]
    with EmbeddedWorker(klamm_bootstrap, config=config, plugins=plugins) as started:
        yield started


def test_the_transform_hides_what_is_written(worker, klamm_topic, klamm_bootstrap):
    config = {
        "connector.class": "DatagenSource",
        "topic": klamm_topic,
        "count": "5",
        "rate": "0",
        "value.converter": "JsonConverter",
        "value.converter.schemas.enable": "false",
        "transforms": "hide",
        "transforms.hide.type": "HideFields",
        "transforms.hide.fields": "customer",
        "transforms.hide.keep": "2",
    }
    worker.create("orders", config)
    with TopicReader(klamm_bootstrap, klamm_topic) as reader:
        reader.wait_for(5)
    customers = [json.loads(m.value())["customer"] for m in reader.seen]
    expected = [make_order(0, 0, n)["customer"] for n in range(5)]
    assert customers == ["*" * (len(name) - 2) + name[-2:] for name in expected]
    worker.delete("orders")


def test_a_bad_value_is_a_data_error():
    hide = HideFields()
    hide.configure({"fields": ["customer"], "keep": 0})
    with pytest.raises(DataError, match="not str"):
        hide.apply(sink_records("text")[0])


def test_the_extension_says_what_has_failed(worker, klamm_topic):
    assert worker.request("GET", "/example/failed").body == {}
    config = {"connector.class": "DatagenSource", "topic": klamm_topic, "rate": "0", "transforms": "hide"}
    bad = {"transforms.hide.type": "HideFields", "transforms.hide.fields": "quantity"}
    worker.create("bad", config | bad)
    worker.wait(lambda: worker.states("bad")[1:] == ["FAILED"], "failure", "bad")
    assert worker.request("GET", "/example/failed").body == {"bad": [0]}
    assert worker.request("GET", "/example/nothing").status == 404
    worker.delete("bad")


def test_the_middleware_marks_every_answer(worker):
    assert worker.request("GET", "/connectors").headers["X-Shop"] == "klamm-example"


def test_a_bad_setting_keeps_the_worker_from_starting(klamm_bootstrap, tmp_path):
    config = {"rest.extension.classes": EXTENSION, "example.header": "not a header"}
    with pytest.raises(WorkerFailed, match=r"example\.header=not a header"):
        EmbeddedWorker(klamm_bootstrap, config=config, directory=tmp_path).start()


def test_the_command_prints_orders():
    done = CliRunner().invoke(app, ["orders", "2"])
    assert [json.loads(line)["id"] for line in done.stdout.splitlines()] == [0, 1]
