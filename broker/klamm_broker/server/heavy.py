"""Large requests: decoded, handled and answered in slices, one request of all clients at a time.

A request of some hundred kilobytes takes the event loop tens of milliseconds. The connection is held until its handler
has been called, so that no later request overtakes it. Event loop's thread only.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, TypeVar

from klamm_broker.server.slices import LONG_SLICE_S, lane_of
from klamm_kafka.wire.errors import ProtocolError

if TYPE_CHECKING:
    from klamm_broker.server.connection import Slot

log = logging.getLogger(__name__)

LARGE_BYTES: Final = 16 * 1024
"""A request from this size on is large: some 500 partitions, which take a millisecond or two."""
_R = TypeVar("_R")


def run(slot: Slot, what: str, steps: Generator[Any, None, _R], then: Callable[[_R], None]) -> None:
    """Do the steps of a parked request in slices, then call `then` with their result.

    They end without it when the connection is gone, and close it when they fail.
    """
    lane = lane_of(slot.connection.loop)

    def go_on() -> None:
        if slot.closed:
            steps.close()
            return
        if slot.charge is not None:
            slot.charge.go_on()
        try:
            finished, result = _slice(steps)
            if finished:
                then(result)
            else:
                lane.next(go_on)
        except ProtocolError as e:
            slot.fail(f"{what}: {e}")
        except Exception as e:  # a defect of ours: the peer must not wait for an answer that will not come
            log.exception("%s failed", what)
            slot.fail(f"{what} failed here: {e!r}")
        finally:
            if slot.charge is not None:
                slot.charge.pause()

    lane.next(go_on)


def _slice(steps: Generator[Any, None, _R]) -> tuple[bool, Any]:
    """Work until the slice's time is up. Returns whether all is done, and the result."""
    end = perf_counter() + LONG_SLICE_S
    try:
        next(steps)
        while perf_counter() < end:
            next(steps)
    except StopIteration as finished:
        return True, finished.value
    return False, None
