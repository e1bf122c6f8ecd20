"""Checks whether this worker can reach its broker, and its group can reach this worker. Says what is wrong
in sentences.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

from klamm.web.listeners import is_loopback

WHAT_TO_SET = "set listeners (such as http://0.0.0.0:8083) and rest.advertised.host.name so that the other workers reach this worker"


def unreachable(url: str, servers: Sequence[str]) -> str | None:
    """Returns what is wrong with a url on loopback while the brokers are elsewhere: other workers cannot reach
    it.
    """
    host = urlsplit(url).hostname or ""
    if not is_loopback(host) or all(is_loopback(server.rpartition(":")[0]) for server in servers):
        return None
    return (
        f"this worker advertises {url} to its group, a loopback address; workers on other machines of the group cannot "
        f"forward requests to it: {WHAT_TO_SET}"
    )


def shared(url: str, group: str, members: Mapping[str, str]) -> str | None:
    """Returns what is wrong when several members of the group have this url."""
    same = sorted(member for member, each in members.items() if each == url)
    if len(same) < 2:
        return None
    return (
        f"{len(same)} members of group {group} advertise the same address {url}: {', '.join(same)}. Requests cannot be "
        f"forwarded between them: {WHAT_TO_SET}"
    )


async def unresolved(servers: Sequence[str]) -> list[str]:
    """Returns a sentence for each host of these HOST:PORT that has no address."""
    loop = asyncio.get_running_loop()
    found = []
    for host in dict.fromkeys(server.rpartition(":")[0] for server in servers):
        try:
            await loop.getaddrinfo(host.strip("[]"), None, type=socket.SOCK_STREAM)
        except OSError as e:  # of which gaierror is one
            found.append(f"the host name {host} cannot be resolved ({e.strerror or e})")
        except UnicodeError as e:
            found.append(f"{host} is no host name ({e})")
    return found
