"""The flows that `klamm mirror start` watches over, as its file has them now. Its servers look here at each request."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path

from klamm.mirror.places import Place, holder, keeping, place_of
from klamm_mirror.settings.mm2_config import Flow


class Watched:
    """The flows by name, with their places. `close` gives the places up."""

    def __init__(self, path: Path, flows: Iterable[Flow]) -> None:
        self.path = path
        self.flows: dict[str, Flow] = {}
        self._places: dict[str, Place] = {}
        self._stack = ExitStack()
        self.become(flows)

    def become(self, flows: Iterable[Flow]) -> None:
        """Takes the flows of a changed file. Raises KlammError."""
        self.flows = {flow.name: flow for flow in flows}
        for name in self.flows.keys() - self._places.keys():
            place = place_of(self.path, name)
            self._stack.enter_context(keeping([place]))
            self._places[name] = place

    def place(self, flow: str) -> Place:
        """Returns the place of a flow, also of one that was removed."""
        return self._places[flow]

    @property
    def sockets(self) -> dict[str, Path]:
        """The sockets of the flows, which tell status and metrics."""
        return {name: self._places[name].socket for name in self.flows}

    def owner(self) -> int | None:
        """Returns a process that runs one of the flows; None: nobody does."""
        return next(
            (pid for name in self.flows if (pid := holder(self._places[name].lock)) is not None), None
        )

    def close(self) -> None:
        self._stack.close()
