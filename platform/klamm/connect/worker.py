"""The worker process: REST from the first moment, then the broker, the topics, the group, and the connectors.

`klamm connect distributed worker.properties` ends up in `main`. Once everything runs, `ready rest=URL` goes to
standard output. SIGTERM and SIGINT drain: tasks stop and commit their offsets, the last statuses are written.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from klamm.connect.broker_outages import OUTAGES
from klamm.connect.children.interface import Callbacks, Children, MakeChildren
from klamm.connect.children.server_process import ServerProcess
from klamm.connect.children.supervisor import Supervisor
from klamm.connect.config import WorkerConfig
from klamm.connect.group.membership import GroupMembership
from klamm.connect.herding.addresses import unreachable, unresolved
from klamm.connect.herding.task_configs import now_ms
from klamm.connect.runtime import Runtime
from klamm.connect.service.connectors import ConnectService
from klamm.connect.settings.override_policy import warn_of_worker
from klamm.connect.settings.plugins import not_writable
from klamm.connect.settings.restart_policy import RestartPolicy
from klamm.connect.topics.storage import Storage
from klamm.web import process
from klamm_base.clientconfig import translate, warn_once
from klamm_base.errors import ConfigError
from klamm_base.redaction import guard_logging
from klamm_base.refused_logins import LOGINS
from klamm_base.security import ClientSecurity
from klamm_base.service_manager import say_ready
from klamm_kafka.client import Cluster

if TYPE_CHECKING:
    from klamm.connect.rest.server import RestServer

log = logging.getLogger(__name__)

BROKER_ASK_S: Final = 2.0
BROKER_RETRY_S: Final = 0.5


def make_supervisor(
    config: WorkerConfig,
    callbacks: Callbacks,
    *,
    preload: Sequence[str] = (),
    first: ServerProcess | None = None,
) -> Children:
    """Returns the real supervisor. Tells `broker_outages` the brokers, as the output of children may leave them out.

    `preload` are modules that most children need, `first` a fork server that waits already.
    """
    OUTAGES.expect(",".join(config["bootstrap.servers"]))
    return Supervisor(
        on_event=callbacks.on_event,
        on_progress=callbacks.on_progress,
        on_task_configs_changed=callbacks.on_task_configs_changed,
        read_offsets=callbacks.read_offsets,
        policy=RestartPolicy.from_props(config.raw),
        clock=now_ms,
        graceful_s=config["task.shutdown.graceful.timeout.ms"] / 1000,
        requests=callbacks.requests,
        secrets=config.secrets,
        environment_of=callbacks.environment_of,
        preload=preload,
        first=first,
    )


def client_settings(config: WorkerConfig) -> dict[str, Any]:
    """Returns librdkafka's settings for the worker's own clients, and logs which settings of the file have no
    effect. Raises ConfigError that names the line.
    """
    try:
        client = translate(config.client, "admin", lenient=True)
        warn_once(client.ignored)
        warn_of_worker(config.raw)
    except ConfigError as e:
        raise ConfigError(str(e), key=e.key, source=config.source(e.key or "")) from None
    return client.config


class Worker:
    """A distributed worker. `start` returns when it serves; `wait` when it cannot go on; `stop` drains."""

    def __init__(self, config: WorkerConfig, *, make_children: MakeChildren = make_supervisor) -> None:
        self.config = config
        self._make_children = make_children
        guard_logging(config.secrets.redactor)
        self._client: dict[str, Any] = client_settings(config)
        self._rest: RestServer | None = None
        self._membership: GroupMembership | None = None
        self.runtime: Runtime | None = None
        self.url = ""
        self.printed_url = ""

    async def start(self) -> None:
        """Bind REST, wait for the broker, read the topics, join the group, run what should run."""
        service = await self._serve()
        if why := unreachable(self.url, self.config["bootstrap.servers"]):
            log.warning("%s", why)
        runtime = service.runtime
        await runtime.start()
        self._membership = GroupMembership(
            self.config,
            url=self.url,
            listener=runtime.group_adapter,
            # The address alone is not enough: on loopback, the default, two hosts have the same.
            instance_id=f"{socket.gethostname()}/{runtime.worker_id}",
            make_cluster=self._make_cluster,
        )
        runtime.cluster.group = self._membership
        await self._membership.start()
        service.ready = True

    async def _serve(self, storage: Storage | None = None) -> ConnectService:
        """Serve REST from the first moment, then wait for the broker."""
        from klamm.connect.rest.server import RestServer  # takes its time: the mirror's workers do without

        rest = self._rest = RestServer(self.config)
        rest.bind()
        self.url = str(rest.advertised)
        self.printed_url = str(rest.printed)
        worker_id = f"{rest.advertised.host}:{rest.advertised.port}"
        if why := not_writable(self.config.values):
            log.warning("%s", why)
        runtime = self.runtime = Runtime(
            self.config,
            client=self._client,
            worker_id=worker_id,
            make_children=self._make_children,
            url=self.url,
            storage=storage,
        )
        service = ConnectService(runtime)
        await rest.start(service)
        service.cluster_id = await self._wait_for_broker(runtime.admin)
        runtime.plugin_admin.belongs_to(service.cluster_id, runtime.config["config.storage.topic"])
        return service

    def _make_cluster(self, client_id: str) -> Cluster:
        return Cluster(
            ",".join(self.config["bootstrap.servers"]),
            client_id=client_id,
            security=ClientSecurity.from_properties(self.config.client),
        )

    async def wait(self) -> None:
        """Wait until the worker may no longer be a member of its group; raises the reason."""
        assert self._membership is not None, "started"
        await self._membership.lost()

    async def stop(self) -> None:
        """Drain: no new requests, tasks stopped and committed, statuses written, group left. Others go on at once."""
        if self.runtime is not None:
            self.runtime.events.close()  # streams end, so that REST can
        if self._rest is not None:
            await self._rest.stop()
        if self._membership is not None:
            await self._membership.leave("the worker is stopped")
        if self.runtime is not None:
            await self.runtime.stop()
        self.config.secrets.close()

    async def _wait_for_broker(self, admin: AdminClient) -> str:
        """Returns the cluster's id, as soon as the broker answers."""
        servers = ",".join(self.config["bootstrap.servers"])
        said: tuple[Any, ...] = ()
        while True:
            try:
                future = admin.describe_cluster(request_timeout=BROKER_ASK_S)
                cluster = await asyncio.wrap_future(future)
            except KafkaException as e:
                before = LOGINS.count
                admin.poll(0)  # logs what the brokers said
                refused = LOGINS.count > before
                names = await unresolved(self.config["bootstrap.servers"])
                if said != (why := (refused or e.args[0].code(), *names)):
                    said = why
                    reason = "it refuses the login" if refused else e.args[0].str()
                    log.warning(
                        "waiting for the broker at %s: %s%s", servers, reason, login_hint(self.config.client)
                    )
                    if names:
                        log.warning("bootstrap.servers=%s: %s; trying again", servers, "; ".join(names))
                await asyncio.sleep(BROKER_RETRY_S)
            else:
                log.info("broker at %s, cluster %s", servers, cluster.cluster_id)
                return str(cluster.cluster_id)


def login_hint(client: Mapping[str, str]) -> str:
    """Returns where the password is that a worker logs in with; empty if it does not log in."""
    if not client.get("security.protocol", "").upper().startswith("SASL"):
        return ""
    return (
        "; it logs in by the sasl.* settings of the worker's file: is the password still right? "
        "(`klamm up --secure` takes them from security/connect.properties)"
    )


async def run(config: WorkerConfig, *, ready: Callable[[str], None] = say_ready) -> None:
    """Run a worker until SIGTERM or SIGINT. Raises what made it stop by itself."""
    worker = Worker(config)
    await process.serve(worker, lambda: ready(f"ready rest={worker.printed_url}"))


def main(config: WorkerConfig) -> int:
    """Run a worker; returns 0 after a drain, 1 when it could not start or go on, 2 for an unusable
    configuration.
    """
    return process.main(run(config))
