"""What the hosts share: worker settings that a task reads, secrets to hide in traces, and stopping a plugin."""

from __future__ import annotations

import contextlib
import logging
import resource
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from klamm.connect.child.control import Control
from klamm_base import redaction
from klamm_base.configdef import ConfigDef, Type, between
from klamm_base.redaction import Redactor, guard_logging
from klamm_plugins.connector import Plugin

log = logging.getLogger(__name__)

# The worker validates its own properties; here they are only read. The defaults are Kafka's.
TASK_WORKER_CONFIG: Final = (
    ConfigDef()
    .define("offset.flush.interval.ms", Type.LONG, 60_000, validator=between(1))
    .define("offset.flush.timeout.ms", Type.LONG, 5_000, validator=between(1))
)
# What memory that is asked for at once may exceed task.memory.max.bytes by: stacks of threads that are reserved, not
# used, and what comes and goes between two looks of the supervisor, which is who enforces the limit.
_MEMORY_SLACK: Final = 512 << 20


def stop_plugin(stop: Callable[[], None]) -> None:
    """Call a plugin's `stop`. What it raises is logged and hides nothing: the error before it is the cause."""
    try:
        stop()
    except Exception:
        log.exception("stop() raised")


def limit_memory(limit_bytes: int) -> None:
    """Have an allocation far beyond the limit (0: none) fail here with MemoryError, instead of the machine's memory
    being gone before the supervisor looks. Systems without such a limit go without.
    """
    if not limit_bytes:
        return
    with contextlib.suppress(OSError, ValueError):
        status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
        (now_kib,) = (line.split()[1] for line in status.splitlines() if line.startswith("VmData:"))
        most = int(now_kib) * 1024 + 2 * limit_bytes + _MEMORY_SLACK
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        if hard == resource.RLIM_INFINITY or most < hard:
            resource.setrlimit(resource.RLIMIT_DATA, (most, hard))


def seconds(worker: Mapping[str, str], name: str) -> float:
    """A duration of TASK_WORKER_CONFIG."""
    return float(TASK_WORKER_CONFIG.parse(worker)[name]) / 1000


def keep_secret(control: Control, secrets: Sequence[str]) -> None:
    """From now on neither this child's log nor what the worker writes of its output shows these values."""
    guard_logging(Redactor(secrets))
    control.notify("secrets", values=list(secrets))


def secret_values(plugin: type[Plugin] | None, *configs: Mapping[str, str]) -> list[str]:
    """Values that must not show: of keys that the plugin defines as passwords or whose names say so."""
    typed = {key.name for key in plugin.config() if key.type is Type.PASSWORD} if plugin else set()
    return [value for config in configs for value in redaction.secret_values(config, typed)]
