"""`GET /metrics` of a mirror: one endpoint for all flows of a file, each of which is a process.

A flow serves its own metrics on a Unix socket that only this user reaches. The supervisor asks all
flows at each scrape and merges their answers into one text, in which every sample of a flow's process
has the label `flow`. A flow that does not answer has `klamm_mirror_flow_up` 0 and no other samples.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from klamm.mirror.asking import ask
from klamm.web.process_metrics import process_families
from klamm_base.metrics_server import MetricsServer
from klamm_base.metrics_text import Family, Sample, escape, lines

log = logging.getLogger(__name__)

ANSWER_S: Final = 3.0
"""The time limit of a flow's answer: less than the 5 s that Prometheus may wait for ours."""
STARTED_S: Final = time.time()

_ABOUT, _TYPE = "# HELP ", "# TYPE "


class FlowsMetrics(MetricsServer):
    """The endpoint of all flows; `sockets` gives their sockets of now by name, `own` are this process's families."""

    def __init__(
        self, sockets: Callable[[], Mapping[str, Path]], own: Callable[[], Iterator[Family]]
    ) -> None:
        super().__init__(own)
        self._sockets = sockets

    async def text(self) -> Iterator[str]:
        """Returns the present metrics: asks each flow."""
        sockets = self._sockets()
        answers = await asyncio.gather(*(ask(path, "/metrics", ANSWER_S) for path in sockets.values()))
        found = dict(zip(sockets, answers, strict=True))
        up = [Sample({"flow": flow}, int(answer is not None)) for flow, answer in found.items()]
        said = "1: the flow's process answers. 0: it waits for its cluster to start, has ended, or hangs."
        own = [*self._families(), Family("klamm_mirror_flow_up", "gauge", said, up)]
        there = {flow: answer for flow, answer in found.items() if answer is not None}
        return merged(lines(own), there)


def own_families() -> Iterator[Family]:
    """Yields the metrics of the supervisor's process."""
    return process_families(STARTED_S)


def merged(own: Iterable[str], flows: Mapping[str, str]) -> Iterator[str]:
    """Merges texts into one, with everything of one name together, as Prometheus wants it. The texts are
    Klamm's own (`lines`).
    """
    heads: dict[str, str] = {}
    samples: dict[str, list[str]] = {}
    _take("".join(own), None, heads, samples)
    for flow, text in flows.items():
        _take(text, flow, heads, samples)
    for name, head in heads.items():
        yield head
        yield from samples[name]


def _take(text: str, flow: str | None, heads: dict[str, str], samples: dict[str, list[str]]) -> None:
    """Add a text's families; a sample goes with the family whose head stands before it."""
    label = None if flow is None else f'flow="{escape(flow)}"'
    about, family = "", list[str]()
    for line in text.split("\n")[
        :-1
    ]:  # not splitlines: names of groups may hold what that takes for a line's end
        if line.startswith(_ABOUT):
            about = line + "\n"
        elif line.startswith(_TYPE):
            name = line[len(_TYPE) :].partition(" ")[0]
            heads.setdefault(name, f"{about}{line}\n")
            family = samples.setdefault(name, [])
        else:
            family.append(f"{line if label is None else _labelled(line, label)}\n")


def _labelled(line: str, label: str) -> str:
    """Returns a sample with one more label, in front of its own."""
    name, brace, rest = line.partition("{")
    if brace:
        return f"{name}{{{label},{rest}"
    name, _, value = line.partition(" ")
    return f"{name}{{{label}}} {value}"
