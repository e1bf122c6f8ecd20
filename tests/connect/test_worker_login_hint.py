"""A worker that waits for its broker says where the password is that it logs in with."""

from __future__ import annotations

import pytest

from klamm.connect.worker import login_hint


@pytest.mark.parametrize("protocol", ["SASL_SSL", "sasl_plaintext"])
def test_a_worker_that_logs_in_names_the_file(protocol):
    assert "security/connect.properties" in login_hint({"security.protocol": protocol})


@pytest.mark.parametrize("client", [{}, {"security.protocol": "SSL"}])
def test_a_worker_without_a_login_says_nothing_of_it(client):
    assert login_hint(client) == ""
