"""A task of the MySQL source on one database of a server, driven by hand."""

import itertools
import time

from klamm_connectors.mysql.connector import MySqlSourceConnector
from klamm_plugins.errors import RetriableError
from klamm_plugins.testing import MemorySourceContext

SERVER_IDS = itertools.count(7000)


class Source:
    """A task on one database of the server, with its context. A setting of None leaves a default of here out."""

    def __init__(self, server, database, committed=None, **more):
        self.props = {
            "name": database,
            "database.hostname": "127.0.0.1",
            "database.port": str(server.port),
            "database.user": "root",
            "database.server.id": str(next(SERVER_IDS)),
            "topic.prefix": "p",
            "database.include.list": database,
            "poll.interval.ms": "50",
        } | {k.replace("__", "."): v for k, v in more.items()}
        self.props = {key: value for key, value in self.props.items() if value is not None}
        self.context = MemorySourceContext(self.props)
        if committed is not None:
            self.context.commit(committed)
        self.task = MySqlSourceConnector.task_class()()
        self.task.initialize(self.context)
        self.task.start(self.props)

    def read(self, count, timeout_s=60):
        found, end = [], time.monotonic() + timeout_s
        while len(found) < count:
            assert time.monotonic() < end, f"{len(found)} of {count} records"
            try:
                found += self.task.poll() or []
            except RetriableError:
                time.sleep(0.05)
        assert len(found) == count, [r.value for r in found[count:]]
        return found
