"""A broker for the tests of the worker."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(scope="session")
def bootstrap() -> str:
    """Where a broker is."""
    return os.environ["KLAMM_TEST_BOOTSTRAP"]
