"""The servers that can be installed as a service, and what each needs of the system. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from klamm_base.errors import ConfigError
from klamm_base.properties import suggestion


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A server. `command` are the words behind `klamm`; the configuration's path follows them.

    `reload`: SIGHUP makes it read again what can change while it runs. `jit`: a JVM may run in it, which writes machine code.
    `reads_logs`: it reads files of other services. `own_tmp`: its /tmp may be its own; a mirror's commands meet it there.
    """

    name: str
    title: str
    command: tuple[str, ...]
    config_needed: bool = True
    takes_config: bool = True
    reload: bool = False
    jit: bool = False
    reads_logs: bool = False
    own_tmp: bool = True


KINDS: Final = {
    kind.name: kind
    for kind in (
        Kind(name="up", title="Broker and Connect worker", command=("up",), takes_config=False, config_needed=False, jit=True),
        Kind(name="broker", title="Broker", command=("broker", "start"), config_needed=False),
        Kind(name="connect", title="Connect worker", command=("connect", "distributed"), jit=True),
        Kind(name="mirror", title="Mirror", command=("mirror", "start"), reload=True, own_tmp=False),
        Kind(name="agent", title="Log agent", command=("agent", "start"), reload=True, reads_logs=True),
        Kind(name="console", title="Console", command=("console", "start"), config_needed=False, reload=True),
        Kind(name="registry", title="Schema registry", command=("registry", "start"), reload=True),
        Kind(name="lag", title="Watch of lag", command=("lag", "start"), config_needed=False, reload=True),
        Kind(name="rest", title="REST proxy", command=("rest", "start"), reload=True),
    )
}  # fmt: skip


def kind_of(name: str) -> Kind:
    """Returns a kind. Raises ConfigError for an unknown one."""
    if name not in KINDS:
        raise ConfigError(f"{name!r} is no service{suggestion(name, KINDS)}; there are {', '.join(KINDS)}")
    return KINDS[name]
