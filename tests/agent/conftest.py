from __future__ import annotations

from support.broker import broker

__all__ = ["broker"]
