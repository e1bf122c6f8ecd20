"""The TLS settings of each listener, made from its properties and stores, and made anew when a store's file changes.

At the start stores are read on the spot, later in a process of its own (`tls_stores.py`): `reading` comes before a change.
A connection keeps the settings of its handshake. New ones take the newest that could be read: a bad file is told in
the log, and the settings before it stay.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from klamm_base.errors import ConfigError
from klamm_base.keystores import Names
from klamm_base.tls import TlsSettings
from klamm_broker.security.principal_rules import KEY as RULES
from klamm_broker.security.principal_rules import PrincipalRules
from klamm_broker.server.tls_keys import ALLOW_DN_CHANGES, ALLOW_SAN_CHANGES
from klamm_broker.server.tls_stores import read_apart

if TYPE_CHECKING:
    from klamm_broker.log.steps import Steps
    from klamm_broker.server.config import BrokerConfig
    from klamm_broker.server.listener_config import Listener

log = logging.getLogger(__name__)

ReadSettings = Callable[[Mapping[str, str]], TlsSettings]
LOOK_S: Final = 5.0
"""The interval between two looks at the files of stores."""
_DAY_S: Final = 86_400.0
_SOON: Final = dt.timedelta(days=14)
CLIENT_AUTH: Final = "ssl.client.auth"
_TRIED_MAX: Final = 8
"""Setups that were read for changes which may come: each is taken at once, or its change is refused."""
_FILES: Final = ("ssl.keystore.location", "ssl.truststore.location")

Stamp = tuple[tuple[str, int, int, int], ...]
"""The state of the files by which a change is noticed: path, time of change, size, inode."""


@dataclass(frozen=True, slots=True)
class TlsSetup:
    """The needs of a handshake: OpenSSL's context, the end of its certificate, and the rules that name a client by its certificate.

    There are no rules where a login names the client.
    """

    context: ssl.SSLContext
    rules: PrincipalRules | None
    ends: dt.datetime
    """The last moment of the listener's certificate."""
    names: Names
    """Whom the listener's certificate is for."""


@dataclass(slots=True)
class _Kept:
    props: Mapping[str, str]
    stamp: Stamp
    setup: TlsSetup


_Tried = tuple[str, frozenset[tuple[str, str]]]
"""A listener and its properties."""


class TlsContexts:
    """The setups of all TLS listeners, by name. Event loop's thread only."""

    def __init__(self) -> None:
        self._kept: dict[str, _Kept] = {}
        self._tried: dict[_Tried, tuple[Stamp, TlsSetup | ConfigError]] = {}
        self._judged_s = -_DAY_S

    def __contains__(self, listener: str) -> bool:
        return listener in self._kept

    def __getitem__(self, listener: str) -> TlsSetup:
        return self._kept[listener].setup

    def take(self, config: BrokerConfig) -> None:
        """Make the setups of a configuration's TLS listeners, those that differ. Raises ConfigError, and has changed nothing."""
        kept: dict[str, _Kept] = {}
        for listener in config.listeners:
            if listener.protocol.tls:
                props = tls_properties(config, listener)
                before = self._kept.get(listener.name)
                if before is not None and before.props == props:
                    kept[listener.name] = before
                else:
                    stamp, setup = self._made(listener.name, props)
                    if before is not None:
                        _require_same_names(listener.name, before.setup.names, setup.names, props)
                    kept[listener.name] = _Kept(props, stamp, setup)
        self._kept = kept
        self._tried = {}

    def check(self, config: BrokerConfig) -> None:
        """Raises ConfigError unless every TLS listener of a configuration can be served. Changes nothing."""
        trial = TlsContexts()
        trial._kept, trial._tried = self._kept, self._tried
        trial.take(config)

    def reading(self, config: BrokerConfig) -> Steps[None]:
        """Read the stores that a configuration asks for anew, in steps of a job each, for the `check` and `take` that follow."""
        for listener in config.listeners:
            if not listener.protocol.tls:
                continue
            name, props = listener.name, tls_properties(config, listener)
            before = self._kept.get(name)
            if before is not None and before.props == props:
                continue
            found: list[TlsSetup | ConfigError] = []
            stamp = _stamp(props)
            yield partial(_try, name, props, found)
            while len(self._tried) >= _TRIED_MAX:
                del self._tried[next(iter(self._tried))]
            self._tried[name, frozenset(props.items())] = stamp, found[0]

    def _made(self, name: str, props: Mapping[str, str]) -> tuple[Stamp, TlsSetup]:
        tried = self._tried.get((name, frozenset(props.items())))
        if tried is None:
            return _stamp(props), make(name, props)
        stamp, made = tried
        if isinstance(made, ConfigError):
            raise made
        return stamp, made

    def look(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin to renew the setups whose files have changed. They are read in a thread. Tell once a day which end soon."""
        if loop.time() - self._judged_s >= _DAY_S:
            self._judged_s = loop.time()
            for name, kept in self._kept.items():
                _judge(name, kept.setup, dt.datetime.now(dt.UTC))
        for name, kept in self._kept.items():
            stamp = _stamp(kept.props)
            if stamp != kept.stamp:
                kept.stamp = stamp  # also of a bad file: it is told once
                job = loop.run_in_executor(None, make, name, kept.props, read_apart)
                job.add_done_callback(partial(self._renewed, name, kept))

    @staticmethod
    def _renewed(name: str, kept: _Kept, done: asyncio.Future[TlsSetup]) -> None:
        try:
            setup = done.result()
            _require_same_names(name, kept.setup.names, setup.names, kept.props)
        except ConfigError as e:
            log.error("listener %s keeps its certificate: %s", name, e)  # noqa: TRY400 - it says all
            return
        kept.setup = setup
        log.info("listener %s has read its key store and trust store again", name)
        _judge(name, kept.setup, dt.datetime.now(dt.UTC))


def _judge(name: str, setup: TlsSetup, now: dt.datetime) -> None:
    """Tell in the log of a certificate that has ended, or ends soon."""
    if setup.ends <= now:
        log.error("listener %s: its certificate has ended on %s: clients refuse it", name, setup.ends.date())
    elif setup.ends - now < _SOON:
        log.warning("listener %s: its certificate ends on %s", name, setup.ends.date())


def _require_same_names(listener: str, old: Names, new: Names, props: Mapping[str, str]) -> None:
    """Raises ConfigError where a new key store would make another server of a listener (KIP-978): its clients would refuse it."""

    def allowed(key: str) -> bool:
        return props.get(key, "").strip().lower() == "true"

    if not allowed(ALLOW_DN_CHANGES) and new.subject.casefold() != old.subject.casefold():
        why = f"{new.subject} is the new certificate's name, not {old.subject}; {ALLOW_DN_CHANGES}=true allows it"
    elif not allowed(ALLOW_SAN_CHANGES) and (gone := old.alternatives - new.alternatives):
        why = f"the new certificate is not for {', '.join(sorted(gone))}; {ALLOW_SAN_CHANGES}=true allows it"
    else:
        return
    raise ConfigError(f"listener {listener}: {why}", key="ssl.keystore.location")


def tls_properties(config: BrokerConfig, listener: Listener) -> dict[str, str]:
    """Returns a listener's properties of TLS, as texts.

    Where clients log in, only the listener's own `ssl.client.auth` counts (KIP-684), and there are no rules.
    """
    found = {k: text for k, text in config.of_listener(listener.name).items() if k.startswith("ssl.")}
    if listener.protocol.sasl:
        own = config.override(listener.name, CLIENT_AUTH)
        found[CLIENT_AUTH] = "none" if own is None else own
        found[RULES] = ""
    else:
        found.setdefault(RULES, "DEFAULT")
    return found


def _try(listener: str, props: Mapping[str, str], found: list[TlsSetup | ConfigError]) -> None:
    try:
        found.append(make(listener, props, read_apart))
    except ConfigError as e:
        found.append(e)


def make(
    listener: str, props: Mapping[str, str], read: ReadSettings = TlsSettings.from_properties
) -> TlsSetup:
    """Returns the setup from a listener's properties. Raises ConfigError naming the listener and the property."""
    try:
        rules = PrincipalRules(props[RULES]) if props[RULES] else None
        tls = read(props)
        context = tls.server_context()
        assert tls.identity is not None, "server_context() asks for it"
        return TlsSetup(context, rules, tls.identity.ends(), tls.identity.names())
    except ConfigError as e:
        raise ConfigError(f"listener {listener}: {e}", key=e.key) from None


def _stamp(props: Mapping[str, str]) -> Stamp:
    found = []
    for name in _FILES:
        path = props.get(name)
        if path:
            try:
                stat = Path(path).stat()
            except OSError:
                found.append((path, 0, 0, 0))
            else:
                found.append((path, stat.st_mtime_ns, stat.st_size, stat.st_ino))
    return tuple(found)
