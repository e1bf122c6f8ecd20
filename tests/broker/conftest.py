"""Fixtures of the broker's tests."""

from support.broker import broker

__all__ = ["broker"]
