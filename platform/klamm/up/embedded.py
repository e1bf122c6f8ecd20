"""The settings of an embedded broker and worker, and the lock on their data directory."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from klamm.up.extras import EXTRAS, Extra
from klamm.up.ports import HOST
from klamm.up.supervisor import ChildSpec
from klamm_base.errors import KlammError
from klamm_base.files import PRIVATE_FILE, make_private_folder, write_atomically
from klamm_base.properties import load_properties

if TYPE_CHECKING:
    from klamm.security.folder import SecurityFolder

# One machine, one broker: nothing to wait for, nothing to replicate.
BROKER: Final = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.replication.factor": "1",
}
WORKER: Final = {
    "group.id": "connect-cluster",
    "key.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "config.storage.topic": "connect-configs",
    "offset.storage.topic": "connect-offsets",
    "status.storage.topic": "connect-status",
    "config.storage.replication.factor": "1",
    "offset.storage.replication.factor": "1",
    "status.storage.replication.factor": "1",
    # A crash repeats uncommitted records only; a commit a second costs nothing on one machine.
    "offset.flush.interval.ms": "1000",
}


def children(
    data_dir: Path,
    broker_port: int,
    rest_port: int,
    metrics_port: int,
    *,
    secure: SecurityFolder | None = None,
    companions: Mapping[Extra, int] | None = None,
) -> list[ChildSpec]:
    """Return the broker, the worker, and further servers by their ports, in this order. With `secure`, all have TLS and logins.

    Writes their settings beside the data, where users read and reuse them.

    Gives addresses and directories as overrides, too: a KLAMM_LISTENERS in the environment, which beats a file, must
    not move a server away from the address that `klamm up` prints.
    """
    listener, scheme = ("SASL_SSL", "https") if secure else ("PLAINTEXT", "http")
    broker = {
        "listeners": f"{listener}://{HOST}:{broker_port}",
        "klamm.metrics.host": HOST,
        "klamm.metrics.port": str(metrics_port),
        "log.dirs": str((data_dir / "broker").absolute()),
    }
    worker = {
        "bootstrap.servers": f"{HOST}:{broker_port}",
        "listeners": f"{scheme}://{HOST}:{rest_port}",
    }
    once_ready = None
    login: Mapping[str, str] = {}
    if secure is not None:
        from klamm.security.folder import ADMIN, CONNECT
        from klamm.security.grants import grant_first

        broker |= secure.broker(listener)
        worker |= secure.worker()
        login = load_properties(secure.client_file(CONNECT))  # a secret: in the file alone
        once_ready = partial(grant_first, f"{HOST}:{broker_port}", secure.client_file(ADMIN), WORKER)
    broker_file = _write(data_dir / "broker.properties", BROKER | broker)
    worker_file = _write(data_dir / "connect.properties", {**WORKER, **worker, **login})
    for extra in EXTRAS:
        if extra not in (companions or {}):  # `klamm doctor` must not look for a server of an earlier start
            _file_of(data_dir, extra).unlink(missing_ok=True)
    addresses = {"rest": worker["listeners"]}
    addresses |= {extra.name: f"{scheme}://{HOST}:{port}" for extra, port in (companions or {}).items()}
    return [
        ChildSpec("broker", ("broker", "start", str(broker_file), *_overrides(broker)), once_ready),
        ChildSpec("worker", ("connect", "distributed", str(worker_file), *_overrides(worker))),
        *(
            _companion(data_dir, f"{HOST}:{broker_port}", extra, addresses, secure)
            for extra in companions or {}
        ),
    ]


def _companion(
    data_dir: Path, bootstrap: str, extra: Extra, addresses: Mapping[str, str], secure: SecurityFolder | None
) -> ChildSpec:
    """Returns a further server. It logs in at the broker as the administrator."""
    settings = {"bootstrap.servers": bootstrap, "listeners": addresses[extra.name]}
    for what, server in extra.uses.items():
        if server in addresses:
            settings[f"{what}.url"] = addresses[server]
            settings |= {extra.trust.format(what): str(secure.authority)} if secure else {}
    login: Mapping[str, str] = {}
    if secure is not None:
        from klamm.security.folder import ADMIN

        settings |= secure.worker()
        login = load_properties(secure.client_file(ADMIN))
        if extra.has_login:
            login = {**login, **load_properties(secure.client_file(extra.name))}
    own = {key: value.format(data_dir=data_dir.absolute()) for key, value in extra.settings.items()}
    file = _write(_file_of(data_dir, extra), {**own, **settings, **login})
    return ChildSpec(extra.name, (*extra.command, str(file), *_overrides(settings)))


def _file_of(data_dir: Path, extra: Extra) -> Path:
    return data_dir / f"{extra.name}.properties"


def _overrides(settings: dict[str, str]) -> list[str]:
    return [word for key, value in settings.items() for word in ("--override", f"{key}={value}")]


def _write(path: Path, settings: dict[str, str]) -> Path:
    """Write the settings of this run and return the path. Each start writes them anew because ports may differ."""
    text = "# Written by `klamm up` at every start: changes made here do not last.\n"
    text += "".join(f"{k}={v}\n" for k, v in settings.items())
    write_atomically(path, text.encode(), sync=False)
    return path


@contextmanager
def locked(data_dir: Path) -> Iterator[None]:
    """Hold the data directory. Raises KlammError when another `klamm up` has it."""
    try:
        make_private_folder(data_dir)
        fd = os.open(data_dir / "up.lock", os.O_RDWR | os.O_CREAT, PRIVATE_FILE)
    except FileExistsError:
        raise KlammError(f"--data-dir {data_dir} is a file: give a directory") from None
    except OSError as e:
        raise KlammError(f"--data-dir {data_dir}: {e.strerror}") from None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        holder = os.read(fd, 32).decode(errors="replace").strip() or "unknown"
        os.close(fd)
        raise KlammError(
            f"--data-dir {data_dir} is in use by another klamm up (pid {holder}): stop it or give another directory"
        ) from None
    try:
        os.ftruncate(fd, 0)
        os.write(fd, f"{os.getpid()}\n".encode())
        yield
    finally:
        os.close(fd)  # gives the lock up; the file stays, as removing it would race with the next holder
