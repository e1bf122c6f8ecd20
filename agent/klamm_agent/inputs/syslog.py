"""`type = "syslog"`: messages from the network or a local socket as events.

A message cannot be read again. When the agent is killed, received messages that are neither acknowledged nor in the spool are gone,
as with every receiver of syslog. `lost` tells of known losses.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Final

from klamm_agent.config.readers import SyslogSettings, tls_context
from klamm_agent.events import Dropped, Events
from klamm_agent.syslog.listener import Limits, Listener
from klamm_agent.syslog.messages import Parser
from klamm_base.errors import ConfigError

_BLOCK: Final = 5000  # messages of one block


class SyslogReader:
    """A reader of syslog, which listens from construction on. Without `parse` messages stay as they came. Raises ConfigError."""

    path = "syslog"

    def __init__(self, settings: SyslogSettings, *, parse: bool) -> None:
        try:
            tls = tls_context(settings)
        except OSError as e:
            raise ConfigError(f"tls_certificate {settings.tls_certificate} cannot be used: {e}") from e
        self._listener = Listener(
            settings.listen,
            framing=settings.framing,
            limits=Limits(
                message_bytes=settings.max_message_bytes,
                connections=settings.max_connections,
                idle=settings.idle_timeout,
                queue_bytes=settings.queue_bytes,
            ),
            tls=tls,
            buffer=settings.receive_buffer_bytes,
        )
        self._parser = Parser(settings.zone) if parse else None
        self._given = 0
        self._drops: dict[str, int] = {}

    def poll(self, now: float) -> list[tuple[Events, Hashable]]:
        """Returns about a block of messages, grouped by the address that they came to."""
        found: dict[str, tuple[list[bytes], list[str], float]] = {}
        count = 0
        while count < _BLOCK and (received := self._listener.take()) is not None:
            messages, peers, _ = found.setdefault(received.path, ([], [], received.at))
            messages += received.messages
            peers += received.peers
            count += len(received.messages)
        result: list[tuple[Events, Hashable]] = []
        for path, (messages, peers, at) in found.items():
            events = Events(messages, path, at)
            if self._parser is not None:
                events.values, events.times, events.fields = self._parser.parse(messages, peers, at)
            self._given += len(messages)
            result.append((events, self._given))
        return result

    def acknowledged(self, position: Hashable) -> None:
        """Does nothing: syslog has no acknowledgements."""

    def place(self, position: Hashable) -> Any:
        return None

    def checkpoint(self) -> Any:
        return None

    def finish(self) -> None:
        """Takes no more; `poll` gives what had arrived."""
        self._listener.stop()

    def lost(self) -> list[tuple[str, Dropped]]:
        """Returns the datagrams that the kernel dropped since the last call, by address."""
        found = []
        for address, count in self._listener.drops().items():
            before = self._drops.get(address, 0)
            if count > before:
                reason = (
                    "the receive buffer was full (receive_buffer_bytes): datagrams were dropped by the kernel"
                )
                found.append((f"syslog://{address}", Dropped(reason, count - before, before, count)))
                self._drops[address] = count
        return found

    def status(self) -> dict[str, Any]:
        of = self._listener
        return {
            "listen": of.bound, "connections": of.connections, "messages": of.messages, "bytes": of.bytes,
            "datagrams_dropped": sum(self._drops.values()), "connections_refused": of.refused,
            "connections_failed": of.failed, "framing_errors": of.errors, "split_messages": of.splits,
            "unparsed": 0 if self._parser is None else self._parser.unparsed,
        }  # fmt: skip

    def close(self) -> None:
        self._listener.stop()
