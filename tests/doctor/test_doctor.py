"""The doctor's findings, without servers."""

from __future__ import annotations

import json
import os
import tarfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from klamm.doctor import host, peers, settings
from klamm.doctor.archive import Archive
from klamm.doctor.finding import State
from klamm.doctor.settings import Configured
from klamm.doctor.units import secrets_in
from klamm.service.kinds import kind_of
from klamm.service.unit import Unit, quoted
from klamm_base.errors import KlammError
from klamm_base.redaction import Redactor

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


OF_SERVERS = {
    "console": "bootstrap.servers=127.0.0.1:9\n",
    "registry": "bootstrap.servers=127.0.0.1:9\nlisteners=http://127.0.0.1:8081\n",
    "lag": "bootstrap.servers=127.0.0.1:9\n",
    "rest": "bootstrap.servers=127.0.0.1:9\n",
}


@pytest.mark.parametrize("kind", sorted(OF_SERVERS))
def test_the_file_of_each_server_is_read(tmp_path: Path, kind: str) -> None:
    assert _states(settings.look(_file(tmp_path, kind, OF_SERVERS[kind]))) == [State.OK]


@pytest.mark.parametrize(
    ("kind", "bad"),
    [
        ("console", "console.read.only=perhaps"), ("registry", "schema.compatibility.level=most"),
        ("lag", "storage.intervals=few"), ("rest", "consumer.threads=0"),
    ],
)  # fmt: skip
def test_a_bad_file_of_each_server_is_told(tmp_path: Path, kind: str, bad: str) -> None:
    (found,) = settings.look(_file(tmp_path, kind, f"{OF_SERVERS[kind]}{bad}\n"))
    assert found.state is State.FAILED
    assert bad.partition("=")[0] in found.said


def test_a_service_of_a_kind_that_is_not_known_is_told(tmp_path: Path) -> None:
    (found,) = settings.look(_file(tmp_path, "weather", "a=b\n"))
    assert found.state is State.FAILED
    assert "'weather' is no service" in found.said


# ---- the archive

HOOK = "https://hooks.example.org/services/T024/B81/s3cr3tHook"
LAG = f"""bootstrap.servers=127.0.0.1:9
notifier.ops.class-name=http
notifier.ops.url-open={HOOK}
notifier.ops.authorization=Bearer b3arer-of-news
notifier.ops.extras.key=r0uting-k3y-of-it
notifier.ops.extras.severity=error
notifier.sh.class-name=command
notifier.sh.command-open=curl -H X-Key:c0mmand-k3y http://127.0.0.1
"""


def _archived(archive: Archive, path: Path) -> dict[str, str]:
    archive.write(path)
    with tarfile.open(path) as opened:
        return {each.name.partition("/")[2]: opened.extractfile(each).read().decode() for each in opened}  # type: ignore[union-attr]


def test_an_archive_hides_what_a_notifier_is_told(tmp_path: Path) -> None:
    archive = Archive([_file(tmp_path, "lag", LAG)])
    archive.add("log", f"an error at {HOOK}: 500; Bearer b3arer-of-news, r0uting-k3y-of-it")
    archive.add_usual([])
    texts = _archived(archive, tmp_path / "a.tar.gz")
    assert "an error at [hidden]: 500; [hidden], [hidden]" in texts["log"]
    shown = json.loads(texts["settings/0-lag-lag.properties.json"])["settings"]
    assert shown["notifier.ops.class-name"] == "http"
    assert shown["bootstrap.servers"] == "127.0.0.1:9"
    whole = "".join(texts.values())
    assert not [each for each in ("s3cr3tHook", "b3arer", "r0uting", "c0mmand-k3y") if each in whole]


def test_an_archive_hides_what_it_learns_later(tmp_path: Path) -> None:
    archive = Archive([])
    archive.add("cluster.json", "hunter2-secret")
    archive.hide(["hunter2-secret"])
    assert _archived(archive, tmp_path / "a.tar.gz")["cluster.json"] == "[hidden]"


@pytest.mark.parametrize(
    ("words", "secret"),
    [
        (("--password", "pa ss$w%rd"), "pa ss$w%rd"), (("--token=t0ken-x",), "t0ken-x"), (("--user", "kim:of-kim"), "of-kim"),
        (("--override", "ssl.key.password=of-key"), "of-key"), (('--override=sasl.jaas.config=p.L required password="qu\\ote";',), 'p.L required password="qu\\ote";'),
        (("--registry", "http://kim:of-web@h:1"), "of-web"), (("--api-key", "k-1234"), "k-1234"),
    ],
)  # fmt: skip
def test_secrets_behind_the_options_of_a_unit_are_found(words: tuple[str, ...], secret: str) -> None:
    unit = Unit(
        name="klamm-up", kind=kind_of("up"), program=Path("/k/klamm"), interpreter=Path("/k/python"),
        folder=Path("/d"), words=(*words, "--port", "9092"),
    )  # fmt: skip
    found = secrets_in(unit.text())
    assert secret in found
    assert not {"9092", "--port", "up", "/k/klamm"} & set(found)
    hidden = Redactor(found).redact(unit.text())
    assert secret not in hidden
    assert quoted(secret).strip('"') not in hidden
    assert "--port 9092" in hidden


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


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (1, "1 broker, 1 topic with 1 partition, 1 group"),
        (2, "2 brokers, 2 topics with 2 partitions, 2 groups"),
    ],
)
def test_a_cluster_is_described_in_good_english(number: int, said: str) -> None:
    topic = {"name": "orders", "partitions": 1, "without_leader": []}
    assert (
        peers.described(
            {"brokers": {n: {} for n in range(number)}, "topics": [topic] * number, "groups": [{}] * number}
        )
        == said
    )


@pytest.mark.parametrize(("days", "state"), [(-1, State.FAILED), (5, State.WARNING), (90, State.OK)])
def test_certificates(tmp_path: Path, days: int, state: State) -> None:
    from klamm.security.folder import LOCAL_HOSTS, SecurityFolder

    now = datetime.now(UTC)
    folder = SecurityFolder.open(tmp_path / "security", list(LOCAL_HOSTS), now)
    from cryptography import x509

    ends = x509.load_pem_x509_certificate(folder.authority.read_bytes()).not_valid_after_utc
    (found,) = peers.certificates([folder.authority], ends - timedelta(days=days, hours=-1))
    assert found.state is state
