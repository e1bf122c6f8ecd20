"""The audit log of the console: a JSON line for each change, at the logger `klamm.audit`, as the broker writes one."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any

log = logging.getLogger("klamm.audit")


def audit(address: str | None, user: str | None, what: str, facts: Mapping[str, Any]) -> None:
    """Writes who did what to what. `facts` hold no values that may be secret."""
    line = {"service": "console", "event": what, "user": user, "client": address, **facts}
    log.info("%s", json.dumps(line, ensure_ascii=False, default=str))
