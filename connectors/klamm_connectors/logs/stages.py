"""Events to record values: what an input's configuration asks for, in order, a block at a time. Pure.

An input that asks for nothing (`format = "raw"`) costs nothing here.
"""

from __future__ import annotations

from typing import Any

from klamm_connectors.logs.blocks import Envelope
from klamm_connectors.logs.config_inputs import Input
from klamm_connectors.logs.events import Events, Records


class Stages:
    """The stages of one input."""

    def __init__(self, envelope: Envelope | None) -> None:
        self._envelope = envelope

    @classmethod
    def for_input(cls, config: Input, *, host: str, agent_id: str) -> Stages:
        """`host` and `agent_id` are what documents say of where they come from."""
        if config.format != "json":
            return cls(None)
        fields: dict[str, Any] = config.fields
        return cls(Envelope(host=host, agent_id=agent_id, fields=fields, encoding="utf-8"))

    @property
    def needs_offsets(self) -> bool:
        """Whether events must know where they begin."""
        return self._envelope is not None

    def run(self, events: Events) -> Records:
        """Record values of a block."""
        values = events.values
        if self._envelope is not None:
            values = self._envelope.wrap(values, events.offsets, events.path, events.at)
        return Records(values, sum(map(len, values)))
