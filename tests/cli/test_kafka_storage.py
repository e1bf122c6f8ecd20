"""`klamm kafka-storage`: directories of a broker that does not run, and the users who may log in first."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path

import pytest
from support.secure_broker import LoginClient, SecureBroker

from klamm.kafka_tools.run import main
from klamm_broker.log import log_dir
from klamm_broker.server.scram_users import ScramUsers

ID = "MC1T8y50R2ylvAKBLoMQUQ"


@pytest.fixture
def properties(tmp_path: Path) -> Path:
    path = tmp_path / "server.properties"
    path.write_text(f"log.dirs={tmp_path / 'data'},{tmp_path / 'more'}\nnode.id=7\n")
    return path


def format_(properties: Path, *more: str) -> int:
    return main("kafka-storage", ["format", "--config", str(properties), "--cluster-id", ID, *more])


def test_a_random_id_is_one(capsys):
    assert main("kafka-storage", ["random-uuid"]) == 0
    assert len(base64.urlsafe_b64decode(capsys.readouterr().out.strip() + "==")) == 16


def test_new_directories_get_the_id_once(properties, tmp_path, capsys):
    assert format_(properties) == 0
    assert capsys.readouterr().out == f"Formatting {tmp_path / 'data'}.\nFormatting {tmp_path / 'more'}.\n"
    metas = [log_dir.read_meta(tmp_path / name) for name in ("data", "more")]
    assert [(m.cluster_id, m.node_id) for m in metas if m] == [(ID, 7)] * 2
    assert format_(properties) == 1
    assert "is already formatted. Use --ignore-formatted" in capsys.readouterr().err
    assert format_(properties, "--ignore-formatted") == 0


@pytest.mark.parametrize(
    ("scram", "why"),
    [
        ("alice:secret", "must look like"),
        ("SCRAM-SHA-1=[name=a,password=secret]", "there are SCRAM-SHA-256, SCRAM-SHA-512"),
        ("SCRAM-SHA-256=[password=secret]", "must supply 'name'"),
        ("SCRAM-SHA-256=[name=a]", "one of 'password' or 'saltedpassword'"),
        ("SCRAM-SHA-256=[name=a,saltedpassword=c2VjcmV0]", "'salt' with 'saltedpassword'"),
        ("SCRAM-SHA-256=[name=a,saltedpassword=secret!,salt=AAAA]", "is not base64"),
        ("SCRAM-SHA-256=[name=a,password=secret,iterations=10]", "4096 to 16384, not 10"),
        ("SCRAM-SHA-256=[name=a,password=12,secret]", "A password with a comma"),
    ],
)
def test_a_wrong_user_is_refused_before_anything_is_made(properties, tmp_path, capsys, scram, why):
    assert format_(properties, "--add-scram", scram) == 1
    said = capsys.readouterr().err
    assert why in said
    assert "secret" not in said.replace(scram, "")
    assert not (tmp_path / "data").exists()


def test_users_are_not_added_to_a_directory_that_is_formatted(properties, capsys):
    assert format_(properties) == 0
    assert format_(properties, "--ignore-formatted", "--add-scram", "SCRAM-SHA-256=[name=a,password=b]") == 1
    assert "--add-scram is for new ones" in capsys.readouterr().err


def test_a_salted_password_is_that_of_its_password(properties, tmp_path):
    salt = b"0123456789abcdef"
    salted = hashlib.pbkdf2_hmac("sha256", b"pw", salt, 8192)
    texts = [base64.b64encode(b).decode() for b in (salt, salted)]
    options = f"name=a,iterations=8192,salt={texts[0]},saltedpassword={texts[1]}"
    assert format_(properties, "--add-scram", f"SCRAM-SHA-256=[{options}]") == 0
    users = ScramUsers.load(tmp_path / "data" / "klamm-users.json").users
    again = properties.with_name("again.properties")
    again.write_text(f"log.dirs={tmp_path / 'again'}\n")
    assert format_(again, "--add-scram", f"SCRAM-SHA-256=[name=a,iterations=8192,salt={texts[0]},password=pw]") == 0  # fmt: skip
    assert ScramUsers.load(tmp_path / "again" / "klamm-users.json").users == users


def test_the_first_user_logs_in_to_a_broker_without_another_listener(processes, properties, tmp_path):
    users = ("--add-scram", "SCRAM-SHA-256=[name=admin,password=first-secret]", "-S", "SCRAM-SHA-512=[name=admin,password=first-secret]")  # fmt: skip
    properties.write_text(f"log.dirs={tmp_path / 'data'}\nnode.id=1\n")
    assert format_(properties, *users) == 0
    with SecureBroker(tmp_path) as broker:
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
            with LoginClient(broker.sasl_port) as client:
                assert client.scram("admin", "first-secret", mechanism=mechanism).error_code == 0
