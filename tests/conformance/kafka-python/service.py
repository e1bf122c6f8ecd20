"""The module that kafka-python's fixtures import to start brokers; copied into its tests, which run against a running broker."""


class ExternalService:
    def __init__(self, host, port):
        self.host, self.port = host, port


class SpawnedService:
    def __init__(self, *args, **kwargs):
        raise RuntimeError("these tests start no broker")
