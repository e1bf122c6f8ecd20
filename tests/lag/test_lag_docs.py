"""The page of lag names every property, path, metric and name of a template."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from klamm.lag import keys, settings, texts
from klamm.lag.burrow import ENDPOINTS
from klamm_base.errors import ConfigError
from klamm_base.properties import Properties

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/lag.md").read_text()


@pytest.mark.parametrize(
    ("prefix", "definition"),
    [
        ("", keys.server_config()),
        ("cluster.NAME.", keys.cluster_config()),
        ("notifier.NAME.", keys.notifier_config()),
    ],
    ids=["server", "cluster", "notifier"],
)
def test_every_property_is_documented(prefix, definition):
    for key in definition:
        row = next((line for line in PAGE.splitlines() if line.startswith(f"| `{prefix}{key.name}` |")), "")
        assert key.documentation in row, f"{prefix}{key.name}"


def test_every_metric_and_name_is_documented():
    source = (ROOT / "platform/klamm/lag/metrics.py").read_text()
    for name in [*re.findall(r'"((?:burrow_kafka|klamm_lag)_[a-z_]+)"', source), *texts.NAMES]:
        assert f"`{name}`" in PAGE, name


def test_every_path_is_documented():
    for endpoint in ENDPOINTS:
        last = endpoint.path.rstrip("/").rsplit("/", 1)[-1]
        if not last.startswith("{"):
            assert last in PAGE, endpoint.path
        assert endpoint.handler.__doc__, endpoint.path


@pytest.mark.parametrize(
    ("props", "words"),
    [
        ({"notifier.x.class-name": "pigeon"}, "notifier.x.class-name"),
        ({"notifier.x.class-name": "http"}, "notifier.x.url-open"),
        ({"notifier.x.class-name": "email", "notifier.x.server": "h"}, "notifier.x.from"),
        ({"storage.intervals": "1"}, "storage.intervals"),
        ({"storage.group-denylist": "("}, "not a regular expression"),
        ({"cluster.a.offset-refresh": "1"}, "cluster.a.bootstrap.servers"),
        ({"cluster.a.bootstrap.servers": "h:1", "cluster.a.security.protocol": "SSLX"}, "cluster.a: security.protocol=SSLX"),
    ],
)  # fmt: skip
def test_a_bad_setting_is_named(props, words):
    with pytest.raises(ConfigError, match=re.escape(words)):
        settings.parse(Properties(props))


def test_unknown_keys_are_found():
    props = Properties(
        {
            "storage.intervalls": "3", "notifier.a.urlopen": "x", "notifier.a.extras.k": "v", "listeners": "http://:1",
            "cluster.a.sasl.mechanism": "PLAIN", "sasl.mechanism": "PLAIN",
        }
    )  # fmt: skip
    from klamm.lag.server import http_config

    assert settings.unknown(props, http_config()) == ["storage.intervalls", "notifier.a.urlopen"]


def test_without_a_name_there_is_one_cluster():
    (found,) = settings.parse(Properties({"bootstrap.servers": "h:9"})).clusters
    assert (found.name, found.bootstrap) == ("local", "h:9")


@pytest.mark.parametrize(
    ("text", "words"),
    [("${nobody}", "there is no ${nobody}"), ("$5", "write $$"), ("${extras_key}", "extras_key")],
)
def test_a_bad_template_is_refused(text, words):
    with pytest.raises(ConfigError, match=re.escape(words)):
        texts.check_template(text, "file", {})
