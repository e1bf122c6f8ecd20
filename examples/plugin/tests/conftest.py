"""Klamm's fixtures: a broker and a worker, started when the first test wants them."""

pytest_plugins = ["klamm.testing.fixtures"]
