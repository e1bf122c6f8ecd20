"""The errors between this client and a broker, apart from error codes inside answers."""

from __future__ import annotations

from klamm_base.errors import KlammError


class ClientError(KlammError):
    """The root of the client's errors. `retriable`: the same attempt, perhaps on a new connection, may succeed."""

    retriable = False


class ConnectionLost(ClientError):
    """There is no connection, or it ended before the answer came."""

    retriable = True


class AnotherCluster(ConnectionLost):
    """Only brokers of another cluster can be reached, or of one that they do not name (`cluster_id` is None). The right one may answer later."""

    def __init__(self, what: str, cluster_id: str | None) -> None:
        super().__init__(what)
        self.cluster_id = cluster_id


class RequestTimedOut(ClientError):
    """No answer came in time. The connection is closed: a later answer would belong to nobody."""

    retriable = True


class AuthenticationFailed(ClientError):
    """The broker refuses our identity, or we refuse the broker's (TLS). Trying again does not help."""


class UnsupportedApi(ClientError):
    """The broker does not serve this API, or no version of it that we speak."""


class BrokerError(ClientError):
    """An error code in an answer of which the caller wanted a result."""

    def __init__(self, code: int, name: str, what: str, *, retriable: bool) -> None:
        super().__init__(f"{what}: {name} ({code})")
        self.code = code
        self.name = name
        self.retriable = retriable


class TransactionFailed(ClientError):
    """The open transaction cannot be committed. The producer may begin anew, from what was committed before."""


class ProducerFenced(ClientError):
    """Another producer has taken over the transactional id."""
