"""Signatures of requests between workers: made as Java makes them, refused for a reason."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.connect.config import WorkerConfig
from klamm.connect.errors import BadRequest, Forbidden, RequestError, Starting
from klamm.connect.herding.session_keys import ALGORITHM_HEADER, SIGNATURE_HEADER, SessionKeys
from klamm.connect.settings.mac_algorithms import ALGORITHMS
from klamm.connect.topics.config_topic import ConfigState, SessionKey, session_key_record
from klamm_base.errors import ConfigError

PROPERTIES = {
    "bootstrap.servers": "127.0.0.1:9092", "group.id": "g", "key.converter": "x", "value.converter": "x",
    "config.storage.topic": "c", "offset.storage.topic": "o", "status.storage.topic": "s",
}  # fmt: skip


def keys(**more: str) -> SessionKeys:
    given = {name.replace("_", "."): value for name, value in more.items()}
    return SessionKeys(WorkerConfig.from_properties(PROPERTIES | given).values)


KEY = SessionKey(key=bytes(range(32)), algorithm="HmacSHA256", created_ms=1_000)


def test_herd_signature_is_javas() -> None:
    """Mac.getInstance("HmacSHA256") with this key over this body."""
    headers = keys().sign(KEY, b'[{"task":"0"}]')
    assert headers == {
        "X-Connect-Authorization": "S+ZhiOwq9yTIKp7DBVvDzy3FikBaFjKMTodU+yRHL5Y=",
        "X-Connect-Request-Signature-Algorithm": "HmacSHA256",
    }


@given(st.binary(max_size=100), st.sampled_from(sorted(ALGORITHMS)))
def test_herd_signature_is_accepted_by_whoever_has_the_key(body: bytes, algorithm: str) -> None:
    mine = keys(inter_worker_signature_algorithm=algorithm, inter_worker_verification_algorithms=algorithm)
    mine.verify(KEY, mine.sign(KEY, body), body)
    with pytest.raises(Forbidden):
        mine.verify(KEY, mine.sign(KEY, body), body + b"x")
    with pytest.raises(Forbidden):
        mine.verify(mine.new(0), mine.sign(KEY, body), body)


@pytest.mark.parametrize(
    ("key", "change", "error", "why"),
    [
        (KEY, {SIGNATURE_HEADER: None}, BadRequest, "missing required signature"),
        (KEY, {ALGORITHM_HEADER: None}, BadRequest, "missing required signature"),
        (KEY, {ALGORITHM_HEADER: "Rot13"}, BadRequest, "Rot13 MAC is not available"),
        (KEY, {ALGORITHM_HEADER: "HmacSHA1"}, BadRequest, "does not support the 'HmacSHA1' key"),
        (KEY, {SIGNATURE_HEADER: "?"}, BadRequest, "not base64"),
        (KEY, {SIGNATURE_HEADER: base64.b64encode(b"x").decode()}, Forbidden, "invalid signature"),
        (None, {}, Starting, "has not been able to read a session key"),
    ],
)
def test_herd_signature_is_refused_in_kafkas_words(
    key: SessionKey | None, change: dict[str, str | None], error: type[RequestError], why: str
) -> None:
    mine = keys()
    headers = {k: v for k, v in {**mine.sign(KEY, b"x"), **change}.items() if v is not None}
    with pytest.raises(error, match=why):
        mine.verify(key, headers, b"x")


def test_herd_key_is_made_anew_when_it_is_old_or_of_another_kind() -> None:
    mine = keys(inter_worker_key_ttl_ms="500")
    assert mine.renewal_ms(None, 0) == 0
    assert mine.renewal_ms(KEY, 1_100) == 400
    assert mine.renewal_ms(KEY, 9_000) == 0
    assert keys(inter_worker_key_ttl_ms="0").renewal_ms(KEY, 9_000_000) is None
    assert keys(inter_worker_key_size="512").renewal_ms(KEY, 1_000) == 0
    assert keys(inter_worker_key_generation_algorithm="HmacSHA512").renewal_ms(KEY, 1_000) == 0
    assert len(keys(inter_worker_key_size="512").new(0).key) == 64


def test_herd_key_crosses_the_topic_and_stays_out_of_logs() -> None:
    state = ConfigState()
    state.apply(*session_key_record(KEY))
    assert state.session_key == KEY
    assert "key=" not in repr(KEY)


def test_herd_algorithm_that_a_worker_signs_with_is_one_that_it_accepts() -> None:
    with pytest.raises(ConfigError, match="HmacSHA512 is not among"):
        keys(inter_worker_signature_algorithm="HmacSHA512")


def test_herd_algorithm_that_there_is_not_is_named() -> None:
    with pytest.raises(ConfigError, match=r"inter\.worker\.signature\.algorithm"):
        keys(inter_worker_signature_algorithm="Rot13")
