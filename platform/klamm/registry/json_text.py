"""JSON as schemas hold it: without the numbers that Python knows, and JSON does not. Pure."""

from __future__ import annotations

import json
import math
from typing import Any


def loads(text: str) -> Any:
    """Reads JSON. Raises ValueError, also for NaN and for numbers beyond all limits, which could not be written again."""
    return json.loads(text, parse_constant=_refused, parse_float=_finite)


def _refused(word: str) -> float:
    raise ValueError(f"{word} is no number in JSON")


def _finite(word: str) -> float:
    found = float(word)
    return found if math.isfinite(found) else _refused(word)
