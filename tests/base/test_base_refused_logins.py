"""Refused logins: one line, then a count, and never the secret."""

from __future__ import annotations

import pytest

from klamm_base.refused_logins import AGAIN_S, KNOWN_MAX, RefusedLogins, refusal

CONFIG = {"sasl.mechanism": "PLAIN", "sasl.username": "worker", "sasl.password": "geheim"}
SAID = "Authentication failed: Invalid username or password"


def message(ms: int = 101, where: str = "127.0.0.1:9093") -> str:
    return f"sasl_ssl://{where}/bootstrap: SASL authentication error: {SAID} (after {ms}ms in state AUTH_REQ)"


@pytest.mark.parametrize(
    ("text", "where"),
    [
        (message(), "127.0.0.1:9093"),
        (message(where="[::1]:9093"), "[::1]:9093"),
        (f"[thrd:sasl_plaintext://b.example:1/1]: {message(where='b.example:1')}", "b.example:1"),
        (f"b:1: SASL authentication error: {SAID}", "b:1"),
        (message().removesuffix(")") + ", 4 identical error(s) suppressed)", "127.0.0.1:9093"),
    ],
)
def test_a_refusal_names_address_mechanism_user_and_the_brokers_words(text, where):
    check = "check name and password in sasl.jaas.config"
    assert refusal(text, CONFIG) == f"{where}: PLAIN as 'worker': {SAID}; {check}"
    assert refusal(text, {}) == f"{where}: {SAID}; {check}"


def test_a_refused_token_has_no_name():
    assert refusal(message(), {"sasl.mechanism": "OAUTHBEARER"}) == (
        f"127.0.0.1:9093: OAUTHBEARER: {SAID}; check the token and the broker's rules for it"
    )


def test_other_messages_are_left_alone(caplog):
    logins = RefusedLogins()
    assert not logins.take("127.0.0.1:9093/bootstrap: Connect to ipv4#127.0.0.1:9093 failed", CONFIG)
    assert not caplog.records


def test_one_line_and_then_one_every_ten_minutes_with_the_count(caplog):
    now_s = 0.0
    logins = RefusedLogins(lambda: now_s)
    for i in range(2000):
        now_s = i * 0.5
        assert logins.take(message(100 + i % 7), CONFIG)
    first, second = (record.getMessage() for record in caplog.records)
    assert first.startswith(
        "the login is refused, and tried again until it is right: 127.0.0.1:9093: PLAIN as 'worker'"
    )
    assert second.startswith(f"the login is still refused, {int(AGAIN_S * 2)} times since the last line: ")
    assert "geheim" not in caplog.text
    logins.take(message(), CONFIG | {"sasl.username": "other"})
    assert "as 'other'" in caplog.records[-1].getMessage()
    assert logins.count == 2001


def test_that_all_brokers_are_down_says_nothing_new_after_a_refusal():
    now_s = 0.0
    logins = RefusedLogins(lambda: now_s)
    assert not logins.take("1/1 brokers are down", CONFIG)
    logins.take(message(), CONFIG)
    assert logins.take("1/1 brokers are down", CONFIG)
    assert not logins.take("1/1 brokers are down", CONFIG | {"sasl.username": "other"})
    now_s = 60.0
    assert not logins.take("1/1 brokers are down", CONFIG)


def test_what_is_remembered_has_a_bound():
    logins = RefusedLogins()
    for port in range(1, KNOWN_MAX + 50):
        logins.take(message(where=f"h:{port}"), CONFIG)
    assert len(logins._logins) == KNOWN_MAX
