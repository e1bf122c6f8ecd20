"""Tokens for OAUTHBEARER from a file: one that is no good is told before a client waits for it."""

from __future__ import annotations

import time

import pytest

from klamm_base.clientconfig import translate
from klamm_base.errors import ConfigError
from klamm_base.oauth import LOOK_AGAIN_S, unsecured_token

MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"


def settings(path):
    return translate(
        {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.token.endpoint.url": path.as_uri(),
            "sasl.jaas.config": f"{MODULE} required;",
        },
        "consumer",
    ).config


def test_a_token_is_handed_over_with_its_end(tmp_path):
    path = tmp_path / "token"
    token = unsecured_token("ann", int(time.time()), 600)
    path.write_text(token + "\n")
    said, end, _, _ = settings(path)["oauth_cb"]("")
    assert said == token
    assert end == pytest.approx(time.time() + 600, abs=5)


def test_a_token_that_does_not_say_its_end_is_read_again_soon(tmp_path):
    path = tmp_path / "token"
    path.write_text("opaque")
    said, end, _, _ = settings(path)["oauth_cb"]("")
    assert said == "opaque"
    assert end == pytest.approx(time.time() + LOOK_AGAIN_S, abs=5)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (unsecured_token("ann", 1_700_000_000, 60), "the token in {} has expired at 2023-11-14T22:14:20Z; put a new one into it"),
        ("\n", "{} is empty; put a token into it"),
        (None, "{} cannot be read: No such file or directory"),
    ],
    ids=["expired", "empty", "missing"],
)  # fmt: skip
def test_a_file_without_a_good_token_is_an_error_of_the_settings(tmp_path, text, said):
    path = tmp_path / "token"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ConfigError) as e:
        settings(path)
    assert str(e.value) == f"sasl.oauthbearer.token.endpoint.url: {said.format(path)}"
    assert e.value.key == "sasl.oauthbearer.token.endpoint.url"
