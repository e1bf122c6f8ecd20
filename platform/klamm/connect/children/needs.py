"""The things that a child will import, told to its fork server before the fork."""

from __future__ import annotations

from typing import Final

from klamm.connect.children.channel import Message

Needs = tuple[tuple[tuple[str, str], ...], str, tuple[str, ...]]
"""Entry points (name, module), the value of `connector.class`, and those of the converters."""

_CONVERTERS: Final = ("key.converter", "value.converter", "header.converter")


def needs_of(order: Message) -> Needs:
    """Returns what a child with this first message imports: a connector, a task, or a call about a configuration."""
    spec = order.get("spec") or order["params"]
    worker = spec.get("worker", {})
    config = spec.get("connector_config") or spec.get("config") or {}
    converters = dict.fromkeys(config.get(key) or worker.get(key) or "" for key in _CONVERTERS)
    entry_points = tuple((name, module) for name, module in order["entry_points"])
    return entry_points, config.get("connector.class", ""), tuple(name for name in converters if name)
