"""The file of delegation tokens: what it costs, what it bears, and how many tokens there can be."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from klamm_broker.log.errors import DirectoryError
from klamm_broker.security.principal import KafkaPrincipal
from klamm_broker.security.tokens import RENEWERS_MAX, TokenRefused, TokenRules
from klamm_broker.server import token_file
from klamm_broker.server.token_file import TokenFile
from klamm_kafka.wire.errors import ErrorCode

DAY_MS = 86_400_000
RULES = TokenRules(max_ms=7 * DAY_MS, renew_ms=DAY_MS, per_owner=50, all=80)
ANN, BOB, EVE = (KafkaPrincipal("User", name) for name in ("ann", "bob", "eve"))


def opened(path: Path, rules: TokenRules = RULES) -> TokenFile:
    return TokenFile(path / "klamm-tokens.json", "secret", rules)


def made(tokens: TokenFile, name: str, *, owner=ANN, renewers=(), lifetime_ms=0, now_ms=0):
    token = tokens.create(
        name, owner, requester=owner, renewers=renewers, lifetime_ms=lifetime_ms, now_ms=now_ms
    )
    tokens.store(token)
    return token


def opened_beside(path: Path) -> TokenFile:
    """Returns what a start would read now, without a change of the file."""
    (path / "other").mkdir(exist_ok=True)
    (path / "other" / "klamm-tokens.json").write_text(text(path))
    return opened(path / "other")


def text(path: Path) -> str:
    return (path / "klamm-tokens.json").read_text()


def test_a_change_adds_a_line_however_many_tokens_there_are(tmp_path, monkeypatch):
    tokens = opened(tmp_path, RULES._replace(per_owner=10_000))
    made(tokens, "first")
    monkeypatch.setattr(token_file, "write_and_take", None)  # nothing writes the file again
    before = text(tmp_path)
    for i in range(79):
        made(tokens, f"t{i}")
    after = text(tmp_path)
    assert after.startswith(before)
    assert after.count("\n") == 1 + 80
    monkeypatch.undo()
    assert dict(opened(tmp_path).known) == dict(tokens.known)


def test_changes_outlive_a_restart(tmp_path):
    tokens = opened(tmp_path)
    kept, gone, over = (
        made(tokens, "kept", renewers=(BOB,)),
        made(tokens, "gone"),
        made(tokens, "over", lifetime_ms=5),
    )
    renewed = tokens.renew(tokens.password("kept"), BOB, 0, 1_000)
    tokens.store(renewed)
    tokens.remove(gone)
    tokens.sweep(over.expires_ms + 1)
    assert dict(tokens.known) == dict(opened(tmp_path).known) == {"kept": renewed}
    assert kept.expires_ms < renewed.expires_ms
    with pytest.raises(TokenRefused):
        tokens.renew(tokens.password("gone"), ANN, 0, 1_000)
    assert (tmp_path / "klamm-tokens.json").stat().st_mode & 0o777 == 0o600


def test_the_first_version_is_read_and_replaced(tmp_path):
    entry = {"id": "a", "owner": "User:ann", "requester": "User:ann", "renewers": ["User:bob"], "issuedMs": 1, "expiresMs": 2, "maxMs": 3}  # fmt: skip
    (tmp_path / "klamm-tokens.json").write_text(
        json.dumps({"version": 1, "tokens": [entry]}, indent=1) + "\n"
    )
    tokens = opened(tmp_path)
    assert tokens.known["a"].renewers == (BOB,)
    assert text(tmp_path).startswith('{"version": 2}\n')
    assert dict(opened(tmp_path).known) == dict(tokens.known)


def test_a_torn_last_line_does_not_count(tmp_path):
    made(opened(tmp_path), "a")
    with (tmp_path / "klamm-tokens.json").open("a") as file:
        file.write('{"id": "b", "own')
    tokens = opened(tmp_path)
    made(tokens, "c")
    assert set(opened(tmp_path).known) == {"a", "c"}


@pytest.mark.parametrize("line", ["nonsense", '{"id": "b"}', "[]", '{"removed": []}', "1"])
def test_a_bad_line_is_an_error_with_the_file(tmp_path, line):
    made(opened(tmp_path), "a")
    with (tmp_path / "klamm-tokens.json").open("a") as file:
        file.write(line + "\n")
    with pytest.raises(DirectoryError, match=r"klamm-tokens\.json"):
        opened(tmp_path)


@pytest.mark.parametrize("document", ['{"version": 3}\n', '{"version": 1}\n', "", "{}", "\xff"])
def test_a_file_of_another_kind_is_an_error(tmp_path, document):
    (tmp_path / "klamm-tokens.json").write_text(document, encoding="latin-1")
    with pytest.raises(DirectoryError, match=r"klamm-tokens\.json"):
        opened(tmp_path)


def test_a_change_that_fails_leaves_nothing(tmp_path, monkeypatch):
    tokens = opened(tmp_path)
    made(tokens, "a")

    def half(fd: int, data: bytes) -> None:
        os.write(fd, data[:-5])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(token_file, "write_all", half)
    with pytest.raises(OSError, match="No space"):
        made(tokens, "b")
    assert set(tokens.known) == {"a"} == set(opened_beside(tmp_path).known)
    monkeypatch.undo()
    made(tokens, "c")
    assert set(opened(tmp_path).known) == {"a", "c"}


def test_the_file_is_copied_in_steps_and_stays_small(tmp_path, monkeypatch):
    monkeypatch.setattr(token_file, "SPARE_LINES", 30)
    monkeypatch.setattr(token_file, "COPIED", 4)
    tokens = opened(tmp_path)
    for i in range(20):
        made(tokens, f"t{i}")
    longest = 0
    for i in range(400):
        name = f"t{i % 20}"
        if i % 7 == 3 and name in tokens.known:
            tokens.remove(tokens.known[name])
        elif name in tokens.known:
            tokens.store(tokens.renew(tokens.password(name), ANN, 0, i))
        else:
            made(tokens, name, now_ms=i)
        longest = max(longest, text(tmp_path).count("\n"))
        if i % 10 == 0:  # also in the midst of a copy
            assert dict(opened_beside(tmp_path).known) == dict(tokens.known)
    assert longest <= 2 * 20 + 30 + 1 + 10
    assert dict(opened(tmp_path).known) == dict(tokens.known)


def test_a_copy_that_fails_hinders_no_change(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(token_file, "SPARE_LINES", 5)
    tokens = opened(tmp_path)
    made(tokens, "a")
    (tmp_path / "klamm-tokens.json.copy.tmp").mkdir()
    for i in range(10):
        tokens.store(tokens.renew(tokens.password("a"), ANN, 0, i))
    assert "could not be made smaller" in caplog.text
    assert dict(opened(tmp_path).known) == dict(tokens.known)


def test_renewers_are_told_once_and_bounded(tmp_path):
    tokens = opened(tmp_path)
    assert made(tokens, "a", renewers=(BOB, EVE) * 5_000).renewers == (BOB, EVE)
    many = tuple(KafkaPrincipal("User", f"u{i}") for i in range(RENEWERS_MAX + 1))
    made(tokens, "b", renewers=many[1:])
    for renewers in (many, (KafkaPrincipal("User", "x" * 20_000),)):
        with pytest.raises(TokenRefused, match="at most") as refused:
            made(tokens, "c", renewers=renewers)
        assert refused.value.code == ErrorCode.INVALID_REQUEST
    assert set(tokens.known) == {"a", "b"}


def test_a_renewer_without_a_name_does_not_hinder_the_next_start(tmp_path):
    tokens = opened(tmp_path)
    made(tokens, "a", renewers=(KafkaPrincipal("User", ""), KafkaPrincipal("User", "a:b\n")))
    made(tokens, "b", owner=KafkaPrincipal("", "x"))
    assert dict(opened(tmp_path).known) == dict(tokens.known)


def test_tokens_are_bounded_for_an_owner_and_in_all(tmp_path):
    tokens = opened(tmp_path)
    for i in range(50):
        made(tokens, f"a{i}")
    with pytest.raises(TokenRefused, match="User:ann has 50 tokens") as refused:
        made(tokens, "b")
    assert refused.value.code == ErrorCode.POLICY_VIOLATION
    for i in range(30):
        made(tokens, f"b{i}", owner=BOB)
    with pytest.raises(TokenRefused, match="there are 80 tokens") as refused:
        made(tokens, "e", owner=EVE)
    assert refused.value.code == ErrorCode.POLICY_VIOLATION
    tokens.remove(tokens.known["a0"])
    tokens = opened(tmp_path)
    made(tokens, "a0")


def test_tokens_that_end_together_are_forgotten_in_parts(tmp_path, monkeypatch):
    monkeypatch.setattr(token_file, "SWEPT", 20)
    tokens = opened(tmp_path)
    last = [made(tokens, f"t{n}") for n in range(50)][-1]
    more = []
    for left in (30, 10, 0):
        more.append(tokens.sweep(last.expires_ms + 1))
        assert len(tokens.known) == left
    assert more == [True, True, False]
