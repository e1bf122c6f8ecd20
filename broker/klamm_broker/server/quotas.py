"""The client quotas of this broker: `klamm-quotas.json` in the first log directory, and what clients have used of them.

A change is on the disk when `replace` returns, and holds from the next request on; a method that raises has changed
nothing, except with NotSynced. Event loop's thread only.
"""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from klamm_base.files import write_and_take
from klamm_broker.log.errors import DirectoryError
from klamm_broker.quota.limits import IP, Entity, QuotaKey
from klamm_broker.quota.meters import Quota
from klamm_broker.server.client_quotas import Quotas
from klamm_broker.server.connection_limits import windows_of
from klamm_broker.server.encoded import EncodedEntries, document
from klamm_broker.server.quota_keys import BURST

if TYPE_CHECKING:
    from klamm_broker.server.config import BrokerConfig

FILE_NAME: Final = "klamm-quotas.json"
VERSION: Final = 1


class ClientQuotas:
    """All quotas by entity, and the four kinds that requests are measured by.

    `active` is True while any user or client has a quota: nobody is measured before.
    """

    def __init__(self, path: Path, config: BrokerConfig) -> None:
        """Read the file; without a file there are no quotas. Raises DirectoryError."""
        self._path = path
        self.windows = windows_of(config, "quota")
        burst_s = config[BURST]
        self.produce = Quota(QuotaKey.PRODUCE, self.windows, burst_s=burst_s)
        self.fetch = Quota(QuotaKey.FETCH, self.windows, burst_s=burst_s)
        self.request = Quota(QuotaKey.REQUEST, self.windows, max_throttle_ms=self.windows.max_throttle_ms)
        changes = windows_of(config, "controller.quota")
        self.mutation = Quota(QuotaKey.MUTATION, changes, burst_s=changes.seconds)
        self.kinds = (self.produce, self.fetch, self.request, self.mutation)
        self.active = False
        self.changes: list[Callable[[], None]] = []
        self.all, self._addresses = _read(path)
        self._encoded: EncodedEntries[Entity, tuple[Mapping[str, float], str | None]] = EncodedEntries(
            _line, lambda value: (dict(value[0]), value[1])
        )
        self._apply()

    def replace(self, quotas: Quotas, addresses: Mapping[str, str]) -> None:
        """Replace all quotas. `addresses` has what new names of hosts were found to be. Raises OSError."""
        known = {**self._addresses, **addresses}
        lines = self._encoded.lines({
            entity: (values, _address(entity, known)) for entity, values in quotas.items()
        })  # fmt: skip

        def take() -> None:
            self.all, self._addresses = {entity: dict(values) for entity, values in quotas.items()}, known
            self._apply()

        content = document({"version": VERSION}, "quotas", "[\n" + ",\n".join(lines) + "\n]")
        write_and_take(self._path, content, take)

    def ip_rates(self) -> tuple[dict[str, float], float | None]:
        """Returns the connections per second that addresses may make, and what all others may."""
        rates: dict[str, float] = {}
        default = None
        for entity, values in self.all.items():
            parts = dict(entity)
            if IP not in parts or QuotaKey.CONNECTION not in values:
                continue
            name, value = parts[IP], values[QuotaKey.CONNECTION]
            if name is None:
                default = value
            else:
                rates[_normal(self._addresses.get(name, name))] = value
        return rates, default

    def forget_idle(self, now_ms: int) -> None:
        """Forget what those have used who were not there for an hour."""
        for kind in self.kinds:
            kind.forget_idle(now_ms)

    def _apply(self) -> None:
        for kind in self.kinds:
            kind.take(self.all)
        self.active = any(self.kinds)
        for changed in self.changes:
            changed()


def _normal(address: str) -> str:
    """Returns an address as sockets tell it."""
    try:
        return str(ipaddress.ip_address(address))
    except ValueError:
        return address


def _address(entity: Entity, addresses: Mapping[str, str]) -> str | None:
    """Returns what the name of a host was found to be."""
    name = next((name for kind, name in entity if kind == IP), None)
    return None if name is None else addresses.get(name)


def _line(entity: Entity, value: tuple[Mapping[str, float], str | None]) -> str:
    values, address = value
    entry: dict[str, Any] = {"entity": dict(entity), "values": dict(values)}
    return json.dumps(entry if address is None else {**entry, "address": address})


def _read(path: Path) -> tuple[dict[Entity, dict[str, float]], dict[str, str]]:
    """Returns the quotas and the addresses of hosts that the file has."""
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}, {}
    except (ValueError, RecursionError) as e:
        raise DirectoryError(f"{path}: not JSON: {e}. Restore it from a backup") from e
    if not isinstance(told, dict) or told.get("version") != VERSION:
        raise DirectoryError(f"{path}: no document of version {VERSION}")
    quotas: dict[Entity, dict[str, float]] = {}
    addresses: dict[str, str] = {}
    try:
        for entry in told["quotas"]:
            parts = {str(k): None if n is None else str(n) for k, n in entry["entity"].items()}
            quotas[tuple(sorted(parts.items()))] = {str(k): float(v) for k, v in entry["values"].items()}
            if "address" in entry:
                addresses[str(parts[IP])] = str(entry["address"])
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as e:
        raise DirectoryError(f"{path}: missing or bad value: {e!r}. Restore it from a backup") from e
    return quotas, addresses
