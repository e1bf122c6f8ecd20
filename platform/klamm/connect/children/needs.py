"""The things that a child will import, told to its fork server before the fork."""

from __future__ import annotations

from klamm.connect.children.channel import Message

Needs = tuple[tuple[tuple[str, str], ...], str]
"""Entry points (name, module), and the value of `connector.class`."""


def needs_of(order: Message) -> Needs:
    """Returns what a child with this first message imports."""
    spec = order["spec"]
    config = spec.get("connector_config") or spec.get("config") or {}
    return tuple((name, module) for name, module in order["entry_points"]), config.get("connector.class", "")
