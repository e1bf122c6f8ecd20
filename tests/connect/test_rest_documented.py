"""Every key that a connector may have, and every worker property of REST, says what it is for; REST's page names them."""

from __future__ import annotations

from pathlib import Path

from klamm.connect.events import KINDS
from klamm.connect.rest.app import ENDPOINTS_OF_WORKERS
from klamm.connect.settings.rest import rest_config
from klamm.connect.validation.definitions import SINK, SOURCE
from klamm.web.endpoint import Access
from klamm.web.roles import Role

PAGE = (Path(__file__).parents[2] / "docs/rest.md").read_text()
# Kafka's, which its documentation tells of.
KAFKAS = {"listeners", "rest.advertised.host.name", "rest.advertised.port", "rest.advertised.listener"}


def test_rest_every_connector_key_says_what_it_is_for() -> None:
    for definition in (SOURCE, SINK):
        for key in definition:
            assert key.documentation.endswith("."), key.name


def test_rest_every_setting_is_on_its_page() -> None:
    for key in rest_config():
        assert key.documentation.endswith("."), key.name
        assert key.name in KAFKAS or key.name in PAGE or key.name.startswith("klamm.metrics."), key.name


def test_rest_every_event_and_role_is_on_its_page() -> None:
    assert [kind for kind in KINDS if f"`{kind}`" not in PAGE] == []
    assert [role.name for role in Role if f"`{role.name.lower()}`" not in PAGE] == []


def test_rest_every_handler_says_what_it_does() -> None:
    for endpoint in ENDPOINTS_OF_WORKERS:
        summary = (endpoint.handler.__doc__ or "").strip().splitlines()
        assert summary, endpoint
        assert summary[0][-1] in ".:;,", (endpoint.path, summary[0])
    open_ones = {e.path for e in ENDPOINTS_OF_WORKERS if e.access is Access.OPEN}
    assert open_ones == {"/health"}
