"""The console's assets: vendored with version and licence, and pages that obey the policy of content."""

from __future__ import annotations

import re
from pathlib import Path

from klamm.console.app import ROUTES
from klamm.console.guard import POLICY
from klamm.console.view import environment

FOLDER = Path(__file__).parents[2] / "platform/klamm/console"
DECISION = Path(__file__).parents[2] / "docs/decisions/078-console-assets.md"


def test_vendored_assets_have_a_version_and_a_licence_and_are_listed():
    text = DECISION.read_text()
    names = {p.name for p in (FOLDER / "static/vendor").iterdir()}
    assert names == {
        f for f in re.findall(r"`([\w.-]+)`", text) if f.endswith((".js", ".css", "LICENSE.txt"))
    }
    for name in names - {n for n in names if n.endswith("LICENSE.txt")}:
        assert re.search(r"-\d+\.\d+\.\d+\.min\.", name)
        assert f"{name.partition('-')[0]}-LICENSE.txt" in names


def test_templates_have_no_inline_code_and_nothing_from_elsewhere():
    assert "unsafe" not in POLICY
    for path in (FOLDER / "templates").iterdir():
        text = path.read_text()
        assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son\w+=|javascript:|hx-on", text), (
            path.name
        )
        assert not re.search(r"(?:src|href|action)=[\"']?(?:https?:)?//", text), path.name
        assert "|safe" not in text, path.name
        environment().get_template(path.name)


def test_every_form_carries_the_token():
    for path in (FOLDER / "templates").iterdir():
        text = path.read_text()
        for form in re.findall(r'<form[^>]*method="post".*?</form>', text, re.DOTALL):
            assert "csrf(token)" in form, path.name


def test_whatever_changes_is_a_post_with_a_right():
    for route in ROUTES:
        assert route.method == "POST" or not route.changes
        if route.changes:
            assert route.access is not None, route.path
