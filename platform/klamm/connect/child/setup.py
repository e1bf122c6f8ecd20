"""Helpers of all hosts: worker settings that a task reads, secrets to hide in traces, and stopping a plugin."""

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
# The margin above task.memory.max.bytes: thread stacks that are reserved but not used, and memory that is
# freed again between two checks of the supervisor, which enforces the limit.
_MEMORY_SLACK: Final = 512 << 20
_hidden: Final = Redactor()  # one for all: tasks that share a process come and go


def stop_plugin(stop: Callable[[], None]) -> None:
    """Calls a plugin's `stop`. Its error is only logged, so that it does not hide an earlier error, which is
    the cause.
    """
    try:
        stop()
    except Exception:
        log.exception("stop() raised")


def limit_memory(limit_bytes: int) -> None:
    """Makes an allocation far beyond the limit (0: none) fail here with MemoryError.

    Otherwise it could use up the machine's memory before the supervisor's next check. Systems without such a
    limit do without.
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
    """Returns a duration of TASK_WORKER_CONFIG in seconds."""
    return float(TASK_WORKER_CONFIG.parse(worker)[name]) / 1000


def keep_secret(control: Control, secrets: Sequence[str]) -> None:
    """Hides these values from now on in this child's log and in what the worker logs of its output."""
    _hidden.add(secrets)
    guard_logging(_hidden)
    control.notify("secrets", values=list(secrets))


def secret_values(plugin: type[Plugin] | None, *configs: Mapping[str, str]) -> list[str]:
    """Returns the values to hide: those of keys that the plugin defines as passwords or that are named like
    passwords.
    """
    typed = {key.name for key in plugin.config() if key.type is Type.PASSWORD} if plugin else set()
    return [value for config in configs for value in redaction.secret_values(config, typed)]
