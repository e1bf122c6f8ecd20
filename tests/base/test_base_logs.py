"""Log lines: those of the audit log go to a file of their own, all others to standard error."""

from __future__ import annotations

import json
import logging
import stat

import pytest

from klamm_base import logs
from klamm_base.errors import ConfigError


@pytest.fixture(autouse=True)
def as_before():
    root, audit = logging.getLogger(), logging.getLogger(logs.AUDIT)
    kept = root.handlers[:], root.level, audit.handlers[:], audit.propagate
    yield
    for handler in audit.handlers:
        handler.close()
    root.handlers[:], root.level, audit.handlers[:], audit.propagate = kept


def test_the_audit_log_goes_to_its_file_alone_and_to_a_new_one_after_a_rename(tmp_path, monkeypatch, capsys):
    file = tmp_path / "audit.jsonl"
    monkeypatch.setenv(logs.AUDIT_FILE, str(file))
    logs.configure()
    logging.getLogger(logs.AUDIT).info(
        json.dumps({"event": "login", "principal": "User:ü"}, ensure_ascii=False)
    )
    file.rename(tmp_path / "audit.jsonl.1")
    logging.getLogger(logs.AUDIT).info('{"event": "denied"}')
    logging.getLogger("klamm.other").info("a line")
    first = json.loads((tmp_path / "audit.jsonl.1").read_text(encoding="utf-8"))
    assert first.pop("time").endswith("Z")
    assert first == {"event": "login", "principal": "User:ü"}
    assert json.loads(file.read_text())["event"] == "denied"
    assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()} == {0o600}
    assert capsys.readouterr().err.endswith("INFO    klamm.other: a line\n")


def test_a_file_that_cannot_be_written_is_an_error_at_the_start(tmp_path, monkeypatch):
    monkeypatch.setenv(logs.AUDIT_FILE, str(tmp_path / "no" / "audit"))
    with pytest.raises(ConfigError, match=r"KLAMM_AUDIT_LOG=.*cannot be written: No such file or directory"):
        logs.configure()
