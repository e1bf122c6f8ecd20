"""The access check of a worker: by `rest.auth.file`, or by Kafka's extension for basic auth. Workers sign their requests."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from aiohttp import web

from klamm.connect.config import WorkerConfig
from klamm.connect.rest.jaas_login import jaas_file, login_of
from klamm.connect.rest.keys import SERVICE
from klamm.connect.settings.rest import is_basic_auth
from klamm.web.authentication import Authenticator, UsersFile
from klamm.web.roles import Realm
from klamm_base.errors import ConfigError

REALM: Final = Realm(title="Kafka Connect", server="worker", thing="connector")
UNSIGNED: Final = (
    "This worker's group uses an older protocol, in which workers do not sign their requests; with rest.auth.file these "
    "are refused until every worker has connect.protocol=sessioned"
)


def authenticator(config: WorkerConfig) -> Authenticator | None:
    """Returns the configured check of credentials; None: requests need no credentials. Raises ConfigError."""
    path, kafkas = config["rest.auth.file"], has_basic_auth(config)
    if path and kafkas:
        raise ConfigError(
            "rest.auth.file and BasicAuthSecurityRestExtension in rest.extension.classes are both set; "
            "set only one of them",
            key="rest.auth.file",
        )
    if path:
        return UsersFile(Path(path), REALM)
    if kafkas:
        return login_of(jaas_file(config["rest.auth.jaas.file"]))
    return None


def has_basic_auth(config: WorkerConfig) -> bool:
    """Tells whether Kafka's extension for basic auth is configured."""
    return any(is_basic_auth(name) for name in config["rest.extension.classes"])


def unsigned(request: web.Request) -> str | None:
    """Returns why a worker's request is refused. In a group of an older protocol workers do not sign, so anybody's requests
    would pass.
    """
    return None if request.app[SERVICE].runtime.cluster.demands_signatures else UNSIGNED
