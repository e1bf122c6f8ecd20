"""Fixtures of the fault tests."""

from support.broker import broker

__all__ = ["broker"]
