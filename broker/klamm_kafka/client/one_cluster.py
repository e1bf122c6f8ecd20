"""The one cluster that a client stays with: brokers of another one are not talked to.

An address may get another owner while a broker is away: an address of a pod or a port that is given out anew, a name that is moved. Whoever goes on to
send there writes to a cluster that nobody reads, and has it acknowledged. Brokers name their cluster in Metadata (API key 3, from version 2 on).
"""

from __future__ import annotations

from collections.abc import Callable

from klamm_kafka.client.connection import Connection
from klamm_kafka.client.errors import AnotherCluster
from klamm_kafka.wire.messages.metadata import MetadataRequest, MetadataResponse


class OneCluster:
    """Checks each new connection before it is used. `cluster_id`: the cluster to stay with; None takes the first that a broker names.

    `strict=False` only takes note of the cluster. `learned` is called when a broker has named the right one.
    """

    def __init__(
        self,
        cluster_id: str | None = None,
        *,
        strict: bool = True,
        learned: Callable[[], None] = lambda: None,
    ) -> None:
        self.found: str | None = None
        """The cluster of the last broker that was taken; None until then, and with brokers that do not name theirs."""
        self._wanted, self._strict, self._learned = cluster_id, strict, learned

    @property
    def cluster_id(self) -> str | None:
        """The cluster to stay with; None while any will do."""
        return self._wanted or (self.found if self._strict else None)

    async def check(self, connection: Connection, where: str) -> None:
        """Asks a broker for its cluster. Raises AnotherCluster, and what `Connection.request` raises."""
        answer: MetadataResponse = await connection.request(MetadataRequest(topics=[]))
        told, wanted = answer.cluster_id or None, self.cluster_id
        if wanted not in {None, told}:
            of = f"is of cluster {told}, not of" if told else "does not say that it is of cluster"
            raise AnotherCluster(f"{where}: its broker {of} {wanted}", told)
        self.found = told
        self._learned()

    def heard(self, answer: MetadataResponse) -> None:
        """Takes in the name of a cluster that had none yet when the connections to it were checked."""
        if self.found is None and answer.cluster_id:
            self.found = answer.cluster_id
            self._learned()
