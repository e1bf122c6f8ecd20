"""The object `host` of documents: `host.name` alone, or ECS's `host.*` as Beats have it (`[agent] host_metadata = true`).

The agent reads it once at the start, and at a reload; it asks nothing over the network.
"""

from __future__ import annotations

import fcntl
import ipaddress
import platform
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

_SIOCGIFADDR: Final = 0x8915
_NET: Final = Path("/sys/class/net")
_IPV6: Final = Path("/proc/net/if_inet6")
_ARCHITECTURES: Final = {"amd64": "x86_64", "arm64": "aarch64"}


def host_fields(*, full: bool) -> dict[str, Any]:
    """Returns the object `host` of documents."""
    name = socket.gethostname()
    if not full:
        return {"name": name}
    machine = platform.machine().lower()
    found: dict[str, Any] = {
        "name": name,
        "hostname": name,
        "architecture": _ARCHITECTURES.get(machine, machine),
        "os": _system(),
    }
    if machine_id := _text("/etc/machine-id"):
        found["id"] = machine_id
    if addresses := sorted({*_ipv4(), *_ipv6()}):
        found["ip"] = addresses
    if macs := sorted(_macs()):
        found["mac"] = macs
    if time.tzname[0]:
        found["timezone"] = time.strftime("%z")
    return found


def _system() -> dict[str, Any]:
    kernel = {"type": platform.system().lower(), "kernel": platform.release()}
    try:
        release = platform.freedesktop_os_release()
    except OSError:
        return kernel | {"name": platform.system()}
    full = {
        "name": release.get("NAME", ""),
        "version": release.get("VERSION_ID", ""),
        "codename": release.get("VERSION_CODENAME", ""),
        "platform": release.get("ID", ""),
        "family": release.get("ID_LIKE", release.get("ID", "")).partition(" ")[0],
        "full": release.get("PRETTY_NAME", ""),
    }
    return kernel | {k: v for k, v in full.items() if v}


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return ""  # not every host has one


def _ipv4() -> Iterator[str]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        for _, name in socket.if_nameindex():
            try:
                answer = fcntl.ioctl(asked, _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
            except OSError:
                continue  # an interface without an address
            address = ipaddress.IPv4Address(answer[20:24])
            if not address.is_loopback:
                yield str(address)


def _ipv6() -> Iterator[str]:
    for line in _text(str(_IPV6)).splitlines():
        address = ipaddress.IPv6Address(bytes.fromhex(line.split()[0]))
        if not address.is_loopback:
            yield str(address)


def _macs() -> Iterator[str]:
    """Yields hardware addresses as ECS writes them: in capitals, with dashes (RFC 7042)."""
    for interface in _NET.iterdir() if _NET.is_dir() else ():
        mac = _text(str(interface / "address"))
        if mac and mac.strip("0:"):
            yield mac.upper().replace(":", "-")
