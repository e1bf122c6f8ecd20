"""`klamm up --secure`: who has its files may do what the docs say, and nobody else anything."""

from __future__ import annotations

import re
import ssl
import urllib.request
from pathlib import Path

import pytest
from support.broker import wait_until
from support.klamm import Server, klamm, up_words

pytestmark = pytest.mark.usefixtures("processes")


class Secure(Server):
    """The system on free ports, and commands as one of its users."""

    def __init__(self, data_dir: Path, *more: str) -> None:
        super().__init__(*up_words(data_dir), *more)
        self.folder = data_dir / "security"

    def as_user(self, user: str | None, *args: str, stdin: str = "", rest: str = "admin"):
        env = {"KLAMM_BOOTSTRAP_SERVER": self.ready["broker"], "KLAMM_REST_URL": self.ready["rest"]}
        if user is not None:
            env |= {"KLAMM_COMMAND_CONFIG": str(self.folder / f"{user}.properties")}
            env |= {"KLAMM_REST_CACERT": str(self.folder / "ca.pem"), "KLAMM_REST_USER": rest}
            env |= {"KLAMM_REST_PASSWORD": self.password(rest)}
        return klamm(*args, stdin=stdin, **env)

    def password(self, user: str) -> str:
        found = re.search(r'password="([^"]+)"', (self.folder / f"{user}.properties").read_text())
        assert found
        return found[1]

    def scrape(self, token: str) -> int:
        context = ssl.create_default_context(cafile=self.folder / "ca.pem")
        request = urllib.request.Request(self.ready["metrics"], headers={"Authorization": f"Bearer {token}"})
        with urllib.request.urlopen(request, context=context, timeout=30) as answer:
            return int(answer.status)


def test_users_get_in_and_strangers_do_not(tmp_path):
    with Secure(tmp_path / "data", "--secure") as up:
        assert up.process.stdout is not None
        lines = [up.process.stdout.readline().split()[:2] for _ in range(3)]
        assert lines == [
            ["client", f"bootstrap.servers={up.ready['broker']}"],
            ["client", f"login={up.folder / 'app.properties'}"],
            ["client", f"authority={up.folder / 'ca.pem'}"],
        ]
        assert up.as_user("app", "produce", "t", "hello").returncode == 0
        assert up.as_user("app", "consume", "t", "--from-beginning", "-e").stdout == "hello\n"
        for state in ("connect-configs", "_schemas", "__consumer_offsets"):
            assert up.as_user("app", "produce", state, "x").returncode == 1
        assert up.as_user("app", "topic", "list").stdout.split()[3:] == ["t", "1", "1"]
        denied = up.as_user("app", "topic", "delete", "t")
        assert (denied.returncode, denied.stdout) == (1, "")
        assert "authorization failed" in denied.stderr
        assert up.as_user(None, "topic", "list").returncode == 1
        assert up.as_user("admin", "user", "add", "eve", stdin="a password\n").returncode == 0
        assert "eve" in up.as_user("admin", "user", "list").stdout
        assert up.as_user("app", "user", "list").returncode == 1
        assert up.scrape((up.folder / "metrics.token").read_text().strip()) == 200
        with pytest.raises(urllib.error.HTTPError, match="401"):
            up.scrape("x")
        copied_through_connectors(up, tmp_path)
        secrets = [up.password(user) for user in ("admin", "app", "connect")]
        secrets += [(up.folder / "metrics.token").read_text().strip(), "a password"]
        denials = [line for line in up.errors if '"event": "denied"' in line]
    assert {re.search(r'"principal": "([^"]+)"', line)[1] for line in denials} == {"User:app"}  # type: ignore[index]
    assert not [line for line in up.errors if any(secret in line for secret in secrets)]


def copied_through_connectors(up: Secure, tmp_path: Path) -> None:
    """The worker, with its own user's rights, runs a source and a sink."""
    source, target = tmp_path / "in.txt", tmp_path / "out.txt"
    source.write_text("".join(f"line {n}\n" for n in range(100)))
    for name, kind, file, topic in (("src", "Source", source, "topic"), ("snk", "Sink", target, "topics")):
        settings = (f"connector.class=FileStream{kind}", f"file={file}", f"{topic}=lines")
        words = [word for setting in settings for word in ("-c", setting)]
        made = up.as_user("app", "connector", "create", name, *words, rest="app")
        assert made.returncode == 1  # a viewer
        assert up.as_user("admin", "connector", "create", name, *words).returncode == 0
    wait_until(lambda: target.exists() and target.read_text() == source.read_text(), "all lines")


def test_what_was_secure_stays_so(tmp_path):
    with Secure(tmp_path / "data", "--secure") as up:
        assert up.as_user("app", "produce", "t", "kept").returncode == 0
        changed = up.as_user("admin", "user", "passwd", "app", stdin="another\n")
        assert changed.returncode == 0
        assert up.as_user("admin", "user", "add", "bea", stdin="password of bea\n").returncode == 0
        assert up.as_user("admin", "user", "remove", "app").returncode == 0
    with Secure(tmp_path / "data") as up:
        assert up.ready["rest"].startswith("https://")
        refused = up.as_user("app", "topic", "list")  # it is removed
        assert refused.returncode == 1
        assert "Authentication failed" in refused.stderr
        assert f"(settings of {up.folder / 'app.properties'})" in refused.stderr
        assert "bea" in up.as_user("admin", "user", "list").stdout
        assert "t" in up.as_user("admin", "topic", "list").stdout.split()
    with Secure(tmp_path / "data", "--no-secure") as up:
        assert up.as_user(None, "consume", "t", "--from-beginning", "-e").stdout == "kept\n"
    assert any("everybody on this machine can read it now" in line for line in up.errors)


def test_a_server_is_prepared_started_and_renewed(tmp_path):
    folder, data = tmp_path / "security", tmp_path / "data"
    made = klamm(
        "security", "init", str(folder), "--host", "localhost", "--port", "19093", "--log-dir", str(data)
    )
    assert made.returncode == 0, made.stderr
    assert f"start the broker:  klamm broker start {folder / 'server.properties'}" in made.stdout
    words = (
        "--override",
        "listeners=SASL_SSL://127.0.0.1:0",
        "--override",
        "advertised.listeners=SASL_SSL://127.0.0.1:0",
    )
    with Server("broker", "start", str(folder / "server.properties"), *words) as broker:
        place = ("-b", broker.ready["broker"], "--command-config", str(folder / "admin.properties"))
        assert klamm("topic", "create", "t", *place).returncode == 0
        app = (*place[:3], str(folder / "app.properties"))
        assert klamm("produce", "t", "x", *app).returncode == 1  # permissions are the administrator's to give
    renewed = klamm("security", "renew", str(folder), "--host", "kafka.example.org")
    assert re.fullmatch(r"valid until \d{4}-\d\d-\d\d for kafka\.example\.org\n", renewed.stdout)
    nowhere = klamm("security", "renew", str(tmp_path / "none"))
    assert (nowhere.returncode, nowhere.stdout) == (1, "")
    assert "`klamm security init` makes the folder" in nowhere.stderr
