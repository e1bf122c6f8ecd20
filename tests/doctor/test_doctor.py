"""The doctor's findings, without servers."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from klamm.doctor import host, peers, settings
from klamm.doctor.finding import State
from klamm.doctor.settings import Configured
from klamm_base.errors import KlammError

GIB = 1 << 30


def _states(findings: object) -> list[State]:
    return [each.state for each in findings]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("size", "free", "state"),
    [
        (100 * GIB, 50 * GIB, State.OK), (100 * GIB, 9 * GIB, State.WARNING), (100 * GIB, GIB, State.FAILED),
        (4 * GIB, GIB // 2, State.FAILED),
    ],
)  # fmt: skip
def test_room(size: int, free: int, state: State) -> None:
    assert host.room("disk", size, free, 1000, 900).state is state


def test_a_file_system_without_free_files_is_full() -> None:
    assert host.room("disk", 100 * GIB, 90 * GIB, 1000, 3).state is State.FAILED


MOUNTS = "/dev/a / ext4 rw 0 0\nserver:/x /data nfs4 rw 0 0\n/dev/b /data/fast\\040disk xfs rw 0 0\n"


@pytest.mark.parametrize(
    ("path", "kind"),
    [("/etc", "ext4"), ("/data/a", "nfs4"), ("/data/fast disk/b", "xfs"), ("/database", "ext4")],
)
def test_the_innermost_mount_counts(path: str, kind: str) -> None:
    assert host.file_system(Path(path), MOUNTS) == kind


def test_a_poor_file_system_is_told(tmp_path: Path) -> None:
    said = [f.said for f in host.disk(tmp_path, f"x / ext4 rw\nx {tmp_path} nfs rw\n")]
    assert any("lies on nfs" in each for each in said)


@pytest.mark.parametrize(
    ("hard", "state"), [(-1, State.OK), (1 << 20, State.OK), (20_000, State.WARNING), (1024, State.FAILED)]
)
def test_descriptors(hard: int, state: State) -> None:
    assert host.descriptors(hard).state is state


def test_a_file_from_the_future_says_that_the_clock_went_back(tmp_path: Path) -> None:
    file = tmp_path / "00000000000000000000.log"
    file.touch()
    os.utime(file, (2_000_000_000, 2_000_000_000))
    (found,) = host.clock([file, tmp_path / "gone.log"], now=1_999_990_000)
    assert found.state is State.FAILED
    assert "10,000 s in the future" in found.said


# ---- settings


def _file(tmp_path: Path, kind: str, text: str) -> Configured:
    path = tmp_path / f"{kind}.properties"
    path.write_text(text)
    path.chmod(0o600)
    return Configured(kind, path)


def test_a_good_file_is_good(tmp_path: Path) -> None:
    assert _states(settings.look(_file(tmp_path, "broker", f"log.dirs={tmp_path}\nnum.partitions=3\n"))) == [
        State.OK
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("message.max.bytes=200000000", "message.max.bytes=200000000 is more than socket.request.max.bytes"),
        ("log.retention.bytes=1000", "log.retention.bytes=1000 is less than log.segment.bytes"),
        ("log.retention.hours=1000", "offsets.retention.minutes=10080 is less than log.retention.hours=1000"),
        ("num.partitons=3", "num.partitons"),
    ],
)
def test_what_fights_or_is_unknown_is_told(tmp_path: Path, text: str, said: str) -> None:
    found = list(settings.look(_file(tmp_path, "broker", f"log.dirs={tmp_path}\n{text}\n")))
    assert any(said in each.said and each.state is State.WARNING for each in found), found


WORKER = (
    "bootstrap.servers=127.0.0.1:9\ngroup.id=g\nkey.converter=org.apache.kafka.connect.json.JsonConverter\n"
    "value.converter=org.apache.kafka.connect.json.JsonConverter\nconfig.storage.topic=c\n"
    "offset.storage.topic=o\nstatus.storage.topic=s\n"
)


def test_a_worker_that_would_lose_its_membership_is_told(tmp_path: Path) -> None:
    configured = _file(tmp_path, "connect", WORKER + "session.timeout.ms=9000\nheartbeat.interval.ms=8000\n")
    assert any("heartbeat.interval.ms=8000" in each.said for each in settings.look(configured))
    assert _states(settings.look(_file(tmp_path, "connect", WORKER))) == [State.OK]


def test_a_file_that_cannot_be_used_fails_and_tells_no_secret(tmp_path: Path) -> None:
    text = f"log.dirs={tmp_path}\nnum.partitions=many\nssl.keystore.password=hunter2-secret\n"
    (found,) = settings.look(_file(tmp_path, "broker", text))
    assert found.state is State.FAILED
    assert "num.partitions" in found.said
    assert "hunter2" not in found.said


def test_secrets_that_all_may_read_are_told(tmp_path: Path) -> None:
    configured = _file(tmp_path, "connect", WORKER + "ssl.keystore.password=hunter2-secret\n")
    configured.path.chmod(0o644)
    found = [each for each in settings.look(configured) if each.state is State.FAILED]
    assert "ssl.keystore.password" in found[0].said
    assert "hunter2" not in found[0].said


# ---- servers


def test_a_server_that_does_not_answer() -> None:
    def ask() -> str:
        raise KlammError("no broker can be reached")

    assert peers.reached("broker", "--bootstrap-server x", ask).state is State.FAILED
    assert peers.reached("broker", "--bootstrap-server x", lambda: "3 brokers").state is State.OK


def test_partitions_without_a_leader_fail() -> None:
    topic = {"name": "orders", "partitions": 2, "without_leader": [1]}
    with pytest.raises(KlammError, match="without a leader: orders"):
        peers.described({"brokers": {}, "topics": [topic], "groups": []})


@pytest.mark.parametrize(("days", "state"), [(-1, State.FAILED), (5, State.WARNING), (90, State.OK)])
def test_certificates(tmp_path: Path, days: int, state: State) -> None:
    from klamm.security.folder import LOCAL_HOSTS, SecurityFolder

    now = datetime.now(UTC)
    folder = SecurityFolder.open(tmp_path / "security", list(LOCAL_HOSTS), now)
    from cryptography import x509

    ends = x509.load_pem_x509_certificate(folder.authority.read_bytes()).not_valid_after_utc
    (found,) = peers.certificates([folder.authority], ends - timedelta(days=days, hours=-1))
    assert found.state is state
