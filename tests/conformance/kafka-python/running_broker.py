"""A plugin of pytest for kafka-python's tests of SASL and TLS: the broker that they would start is one that runs.

`KLAMM_SSL` and `KLAMM_SASL_PLAINTEXT` are addresses, `KLAMM_USER` and `KLAMM_PASSWORD` a user of all mechanisms, `KLAMM_CA`
is a folder with the authority's certificate in `ca-cert`.
"""

import os

from kafka import KafkaAdminClient
from test.integration.fixtures import KafkaFixture


class RunningBroker(KafkaFixture):
    broker_user = os.environ["KLAMM_USER"]
    broker_password = os.environ["KLAMM_PASSWORD"]

    def start(self):
        """Nothing is to be started."""

    def close(self):
        """Whoever started the broker stops it."""

    def get_topic_names(self):
        """Asks as Apache's tool does, which these tests do not have."""
        with KafkaAdminClient(**self._enrich_client_params({})) as admin:
            return admin.list_topics()


def instance(cls, broker_id, transport="PLAINTEXT", sasl_mechanism=None, partitions=4, **_):
    host, _, port = os.environ[f"KLAMM_{transport}"].rpartition(":")
    fixture = RunningBroker(
        host,
        int(port),
        broker_id,
        external=True,
        transport=transport,
        sasl_mechanism=sasl_mechanism,
        partitions=partitions,
    )
    fixture.child.dump_logs = lambda: None
    fixture.ssl_dir = os.environ["KLAMM_CA"]
    return fixture


KafkaFixture.instance = classmethod(instance)
