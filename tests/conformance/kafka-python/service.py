"""What kafka-python's fixtures import to start brokers; copied into its tests, which run against one that runs already."""


class ExternalService:
    def __init__(self, host, port):
        self.host, self.port = host, port


class SpawnedService:
    def __init__(self, *args, **kwargs):
        raise RuntimeError("these tests start no broker")
