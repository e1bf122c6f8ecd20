"""The broker as the handlers in `api` see it: its storage, its identity and configuration, and its services.

`Broker` makes the services and opens them. Event loop's thread only.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from klamm_broker.log.config import LogConfig
from klamm_broker.server.cluster_config import ResourceType
from klamm_broker.server.features import SHARE
from klamm_broker.server.metrics import IdleMeter
from klamm_broker.server.storage import Storage

if TYPE_CHECKING:
    from klamm_base.first_use import FirstUse
    from klamm_broker.log.steps import Steps
    from klamm_broker.security.sasl.credentials import Mechanism
    from klamm_broker.security.sasl.scram import Account
    from klamm_broker.server.acl_file import StoredAuthorizer
    from klamm_broker.server.audit import Denials
    from klamm_broker.server.cleaner import LogCleaner
    from klamm_broker.server.client_telemetry import ClientTelemetry
    from klamm_broker.server.cluster_config import ClusterConfig
    from klamm_broker.server.config import BrokerConfig
    from klamm_broker.server.groups import GroupShell
    from klamm_broker.server.listener_config import Listener
    from klamm_broker.server.quotas import ClientQuotas
    from klamm_broker.server.replica_mover import ReplicaMover
    from klamm_broker.server.scram_users import ScramUsers
    from klamm_broker.server.share_groups import ShareServing
    from klamm_broker.server.share_states import ShareStateShell
    from klamm_broker.server.token_file import TokenFile
    from klamm_broker.server.topic_changes import TopicChanges
    from klamm_broker.server.transactions import TransactionShell


class BrokerState(Storage):
    """The state of one node.

    `listeners` are the addresses that clients are told, by listener name; the server sets them once the ports are known.
    `config_readers` read the files that `config_checks` look at, beside the event loop. `config_checks` raise ConfigError for a
    configuration that cannot be; `config_changes` are called once there is another.
    """

    topic_changes: TopicChanges
    cleaner: LogCleaner
    mover: ReplicaMover
    groups: GroupShell
    shares_served: FirstUse[ShareServing]
    share_states_kept: FirstUse[ShareStateShell]
    transactions: TransactionShell
    cluster_config: ClusterConfig
    users_kept: FirstUse[ScramUsers]
    tokens_kept: FirstUse[TokenFile]
    quotas: ClientQuotas
    telemetry_taken: FirstUse[ClientTelemetry]
    authorizer: StoredAuthorizer | None = None
    denials: Denials | None = None
    """The refusals of the authorizer; None without one."""

    def __init__(self, config: BrokerConfig, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(config, loop)
        self.node_id = config.node_id
        self.listeners: dict[str, Listener] = {}
        self.config_readers: list[Callable[[BrokerConfig], Steps[None]]] = []
        self.config_checks: list[Callable[[BrokerConfig], None]] = []
        self.config_changes: list[Callable[[], None]] = []
        self.started_s = time.time()
        self.idle = IdleMeter()

    @property
    def shares(self) -> ShareServing:
        """The share partitions that are served; made at the first use, as `share_states`."""
        return self.shares_served()

    @property
    def share_states(self) -> ShareStateShell:
        """The share coordinator."""
        return self.share_states_kept()

    @property
    def scram_users(self) -> ScramUsers:
        """The users with SCRAM credentials; made at the first use, as `tokens`."""
        return self.users_kept()

    @property
    def tokens(self) -> TokenFile:
        """The delegation tokens."""
        return self.tokens_kept()

    @property
    def telemetry(self) -> ClientTelemetry:
        """The metrics that clients push; made at the first use."""
        return self.telemetry_taken()

    @property
    def cluster_id(self) -> str:
        return self.logs.cluster_id

    def mono_ms(self) -> int:
        """Returns the time by a clock that never jumps, for deadlines."""
        return int(self.loop.time() * 1000)

    @property
    def serves_share_groups(self) -> bool:
        """True if the level of `share.version` permits share groups."""
        return self.cluster_config.features.get(SHARE, 0) > 0

    # ---- users

    def account(self, mechanism: Mechanism, name: str, token: bool) -> Account:
        """Returns the account of a user name, or of a delegation token's id. There is one for each name."""
        users = self.scram_users
        return (
            self.tokens.account(mechanism, name, users.decoys(mechanism))
            if token
            else users.account(mechanism, name)
        )

    # ---- configuration

    def apply_dynamic_config(self) -> None:
        """Apply the stored properties of all brokers and of this one. If it raises ConfigError, nothing has changed."""
        stored = self.cluster_config
        config = self.config.with_dynamic(
            defaults=stored.get(ResourceType.BROKER, ""),
            own=stored.get(ResourceType.BROKER, str(self.node_id)),
        )
        for check in self.config_checks:
            check(config)
        self.logs.set_defaults(
            config.topic_defaults, producer_id_expiration_ms=config["producer.id.expiration.ms"]
        )
        self.config = config
        for changed in self.config_changes:
            changed()

    def reading_dynamic_config(self, name: str, configs: Mapping[str, str]) -> Steps[None]:
        """Read, beside the event loop, the files that `check_dynamic_config` looks at. Raises ConfigError."""
        changed = self._with_dynamic(name, configs)
        for read in self.config_readers:
            yield from read(changed)

    def _with_dynamic(self, name: str, configs: Mapping[str, str]) -> BrokerConfig:
        config = self.config
        return config.with_dynamic(
            defaults=config.dynamic_defaults if name else configs, own=configs if name else config.dynamic
        )

    def check_dynamic_config(self, name: str, configs: Mapping[str, str]) -> None:
        """Raise ConfigError if the broker cannot run with these, for all brokers (`name` is empty) or for this one."""
        changed = self._with_dynamic(name, configs)
        LogConfig.from_topic({}, changed.topic_defaults)
        for check in self.config_checks:
            check(changed)

    def log_config(self, overrides: Mapping[str, str]) -> LogConfig:
        """Returns the configuration of a topic with these own properties. Raises ConfigError."""
        return LogConfig.from_topic(overrides, self.config.topic_defaults)
