"""The broker under test as the cycles see it: Klamm's, or Apache Kafka's for the proof that the check is fair."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import psutil
from support.connect_worker import free_port

from klamm.testing import BrokerFailed, EmbeddedBroker


class Server(Protocol):
    """A broker with one data directory and one address over all its lives."""

    @property
    def bootstrap(self) -> str: ...
    @property
    def log_text(self) -> str: ...
    @property
    def directories(self) -> list[str]:
        """Its log directories."""

    def start(self) -> object: ...
    def kill(self) -> None: ...
    def terminate(self, give_up_s: float | None = None) -> None:
        """SIGTERM; with `give_up_s` SIGKILL that much later, in the middle of its end."""

    def killed_while_starting(self, after_s: float) -> None:
        """Start it and kill it that much later; it may have come up by then."""

    def pause(self, seconds: float) -> None:
        """SIGSTOP and SIGCONT."""

    def kill_child(self, choice: float) -> bool:
        """Kill one of its child processes; whether there was one."""


class KlammServer:
    """Klamm's broker."""

    def __init__(self, work: Path, config: Mapping[str, str]) -> None:
        settings = {key: value.replace("{work}", str(work)) for key, value in config.items()}
        self.broker = EmbeddedBroker(work / "data", port=free_port(), config=settings)

    @property
    def bootstrap(self) -> str:
        return self.broker.bootstrap

    @property
    def log_text(self) -> str:
        return self.broker.log_text

    @property
    def directories(self) -> list[str]:
        return self.broker.config.get("log.dirs", str(self.broker.data_dir)).split(",")

    def start(self) -> None:
        self.broker.start()

    def kill(self) -> None:
        self.broker.kill()

    def terminate(self, give_up_s: float | None = None) -> None:
        if give_up_s is None:
            code = self.broker.stop()
            if code != 0:
                raise BrokerFailed(f"exit code {code} after SIGTERM")
            return
        timer = threading.Timer(give_up_s, _signal, (self.broker.pid, signal.SIGKILL))
        os.kill(self.broker.pid, signal.SIGTERM)
        timer.start()
        timer.join()
        self.broker.kill()

    def killed_while_starting(self, after_s: float) -> None:
        timer = threading.Timer(after_s, self._kill_now)
        timer.start()
        with contextlib.suppress(BrokerFailed):
            self.broker.start()
        timer.join()
        self.broker.kill()

    def _kill_now(self) -> None:
        with contextlib.suppress(AssertionError):
            _signal(self.broker.pid, signal.SIGKILL)

    def pause(self, seconds: float) -> None:
        _pause(self.broker.pid, seconds)

    def kill_child(self, choice: float) -> bool:
        children = psutil.Process(self.broker.pid).children(recursive=True)
        if children:
            _signal(children[int(choice * len(children))].pid, signal.SIGKILL)
        return bool(children)


class KafkaServer:
    """Apache Kafka. Raises SystemExit when it dies by itself."""

    def __init__(self, work: Path, config: Mapping[str, str]) -> None:
        from support.kafka_broker import KafkaBroker

        self.kafka = KafkaBroker(work, config)

    @property
    def bootstrap(self) -> str:
        return self.kafka.address

    @property
    def log_text(self) -> str:
        return self.kafka.log

    @property
    def directories(self) -> list[str]:
        return [str(self.kafka.data)]

    def start(self) -> None:
        self.kafka.start()

    def kill(self) -> None:
        self.kafka.kill()

    def terminate(self, give_up_s: float | None = None) -> None:
        process = self._process()
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(60 if give_up_s is None else give_up_s)
        self.kafka.kill()

    def killed_while_starting(self, after_s: float) -> None:
        timer = threading.Timer(after_s * 10, lambda: self._process().kill())  # Java takes its time
        timer.start()
        with contextlib.suppress(SystemExit, TimeoutError):
            self.kafka.start()
        timer.join()
        self.kafka.kill()

    def pause(self, seconds: float) -> None:
        _pause(self._process().pid, seconds)

    def kill_child(self, choice: float) -> bool:
        return False

    def _process(self) -> subprocess.Popen[bytes]:
        assert self.kafka.process is not None
        return self.kafka.process


def _pause(pid: int, seconds: float) -> None:
    timer = threading.Timer(seconds, _signal, (pid, signal.SIGCONT))
    _signal(pid, signal.SIGSTOP)
    timer.start()
    timer.join()


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
