"""The folder of a safe system: what is made, kept, renewed, and who may read it."""

from __future__ import annotations

import contextlib
import datetime as dt
import re
import ssl
import stat
from pathlib import Path

import pytest

from klamm.connect.rest.access import REALM
from klamm.console.server import REALM as CONSOLE
from klamm.registry.config import REALM as REGISTRY
from klamm.restproxy.config import REALM as PROXY
from klamm.security.authority import Signed, hosts_of, make_authority, make_server
from klamm.security.folder import LOCAL_HOSTS, USERS, SecurityFolder, renew
from klamm.security.grants import withheld
from klamm.up.embedded import WORKER
from klamm.web.endpoint import Access
from klamm.web.passwords import verify
from klamm.web.users import read_users
from klamm_base.errors import ConfigError, KlammError
from klamm_base.properties import load_properties
from klamm_base.security import ClientSecurity
from klamm_base.tls import TlsSettings
from klamm_broker.log.log_dir import DirectoryLock
from klamm_broker.server.file_names import USERS as FILE_NAME
from klamm_broker.server.scram_users import ScramUsers
from klamm_kafka.wire.acls import ResourceType

NOW = dt.datetime(2026, 11, 24, tzinfo=dt.UTC)
SECRET = {
    "users.new",
    "ca-key.pem",
    "server.pem",
    "rest.toml",
    "metrics.token",
    "rest-proxy.properties",
    *(f"{user}.properties" for user in USERS),
}


def opened(path: Path, *hosts: str, now: dt.datetime = NOW) -> SecurityFolder:
    return SecurityFolder.open(path, [*hosts, *LOCAL_HOSTS], now)


def contents(path: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in path.iterdir()}


def test_secrets_are_readable_by_their_owner_only(tmp_path):
    opened(tmp_path / "s")
    assert stat.S_IMODE((tmp_path / "s").stat().st_mode) == 0o700
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in (tmp_path / "s").iterdir()}
    assert modes == dict.fromkeys(SECRET, 0o600) | {"ca.pem": 0o644}


def test_a_second_start_changes_nothing(tmp_path):
    first = opened(tmp_path)
    before = contents(tmp_path)
    second = opened(tmp_path)
    assert contents(tmp_path) == before
    assert second.passwords == first.passwords
    assert (first.made, second.made) == (frozenset(USERS), frozenset())


@pytest.mark.parametrize("lost", sorted(SECRET | {"ca.pem"}))
def test_a_lost_file_is_made_again_and_fits_the_others(tmp_path, lost):
    """Also what a killed first start leaves: it makes the files one by one."""
    opened(tmp_path)
    (tmp_path / lost).unlink()
    if lost == "ca-key.pem":  # what it signed goes on; nothing new can be signed
        assert opened(tmp_path).passwords
        with pytest.raises(KlammError, match=r"ca-key\.pem: No such file"):
            renew(tmp_path, [], NOW)
        return
    folder = opened(tmp_path)
    users = read_users(tmp_path / "rest.toml", REALM)
    for user in ("admin", "app"):
        assert verify(folder.passwords[user], users.by_name[user].stored)
    proxys_user_fits(tmp_path)
    shake_hands(tmp_path)


def proxys_user_fits(path: Path) -> None:
    """The REST proxy's file has the password of its user, who may register at the registry and do nothing at a worker."""
    name, _, password = load_properties(path / "rest-proxy.properties")["basic.auth.user.info"].partition(":")
    here, registry = (read_users(path / "rest.toml", realm).by_name[name] for realm in (REALM, REGISTRY))
    assert verify(password, registry.stored)
    assert registry.caller.may(Access.OPERATE, "orders-value")
    assert not registry.caller.may(Access.ADMINISTER, "orders-value")
    assert not here.caller.may(Access.VIEW, "orders")


def test_a_folder_of_an_earlier_version_gets_the_proxys_user_and_keeps_its_own(tmp_path):
    opened(tmp_path)
    (tmp_path / "rest-proxy.properties").unlink()
    file = tmp_path / "rest.toml"
    mine = (
        file.read_text().partition("[users.rest-proxy]")[0]
        + "[users.kim]\n"
        + file.read_text().split("\n", 1)[1].split("\n\n")[0]
    )
    file.write_text(mine + "\n")
    opened(tmp_path)
    assert set(read_users(file, REALM).by_name) == {"admin", "app", "kim", "rest-proxy"}
    proxys_user_fits(tmp_path)
    file.write_text(mine + "\n")  # the administrator takes the user away
    opened(tmp_path)
    assert set(read_users(file, REALM).by_name) == {"admin", "app", "kim"}


def test_at_the_proxy_an_application_has_no_topic_that_the_broker_withholds(tmp_path):
    """The worker's topics hold its connectors' passwords. A folder of an earlier version is mended where nobody changed it."""
    opened(tmp_path)
    file = tmp_path / "rest.toml"
    now = file.read_text()
    old = re.sub(r'(?<=role = "viewer"\n)(?:.*\n)*?groups = .*', 'groups = ["*"]', now)
    assert read_users(file, PROXY).by_name["app"].caller.may(Access.VIEW, "orders")
    topics, groups = [], []
    for each in withheld(WORKER):
        {ResourceType.TOPIC: topics, ResourceType.GROUP: groups}.get(each.resource, []).append(
            f"{each.name}x" if each.prefixed else each.name
        )
    assert {"connect-configs", "_schemas", "__x"} < set(topics)
    for text in (now, old):
        file.write_text(text)
        opened(tmp_path)
        assert file.read_text() == now
        app = read_users(file, PROXY).by_name["app"].caller
        assert not [name for name in topics if app.may(Access.VIEW, name)]
        assert not [name for name in groups if app.may_use_group(name)]
        assert app.may_use_group("readers")
        assert not app.may(Access.VIEW, None)
        for realm in (REALM, REGISTRY, CONSOLE):
            assert read_users(file, realm).by_name["app"].caller.may(Access.VIEW, None), realm
    mine = old.replace('groups = ["*"]', 'groups = ["a"]')
    file.write_text(mine)
    opened(tmp_path)
    assert file.read_text() == mine


def shake_hands(path: Path) -> None:
    """A client with the folder's own file accepts the server's certificate."""
    security = ClientSecurity.from_properties(load_properties(path / "app.properties"))
    assert security.tls is not None
    server_in, server_out, client_in, client_out = (ssl.MemoryBIO() for _ in range(4))
    identity = TlsSettings.from_properties({"ssl.keystore.location": str(path / "server.pem")})
    server = identity.server_context().wrap_bio(server_in, server_out, server_side=True)
    client = security.tls.client_context().wrap_bio(client_in, client_out, server_hostname="127.0.0.1")
    for side, taken, given in ((client, client_out, server_in), (server, server_out, client_in)) * 2:
        with contextlib.suppress(ssl.SSLWantReadError):
            side.do_handshake()
        given.write(taken.read())
    assert client.version() == "TLSv1.3"


def test_certificates_of_today_are_taken(tmp_path):
    opened(tmp_path, now=dt.datetime.now(dt.UTC))
    shake_hands(tmp_path)


def test_the_certificate_is_replaced_when_it_ends_soon_or_a_host_is_missing(tmp_path):
    opened(tmp_path)
    first = (tmp_path / "server.pem").read_bytes()
    opened(tmp_path, now=NOW + dt.timedelta(days=360))
    assert (tmp_path / "server.pem").read_bytes() == first
    opened(tmp_path, now=NOW + dt.timedelta(days=370))
    second = (tmp_path / "server.pem").read_bytes()
    assert second != first
    opened(tmp_path, "kafka.example.org", now=NOW + dt.timedelta(days=370))
    assert hosts_of((tmp_path / "server.pem").read_bytes()) == [*LOCAL_HOSTS, "kafka.example.org"]


def test_renew_keeps_the_hosts_or_takes_others(tmp_path):
    opened(tmp_path, "a.example.org")
    signed = renew(tmp_path, [], NOW + dt.timedelta(days=100))
    assert signed.ends().date() == dt.date(2028, 4, 4)
    assert hosts_of(signed.certificate) == ["a.example.org", *LOCAL_HOSTS]
    assert hosts_of(renew(tmp_path, ["10.0.0.1"], NOW).certificate) == ["10.0.0.1"]


@pytest.mark.parametrize("host", ["", "a b", "a..b", "é\0", "x" * 64, "10.0.0.1:9092"])
def test_an_impossible_host_is_named(host):
    with pytest.raises(ConfigError, match=r"--host .* is neither a host's name nor an address"):
        make_server(make_authority("a", NOW), [host], NOW)


def test_names_and_addresses_of_all_kinds():
    hosts = ["kafka.example.org", "*.example.org", "10.0.0.1", "[::1]", "bücher.example", "host_1"]
    made = make_server(make_authority("a", NOW), hosts, NOW)
    assert hosts_of(made.certificate) == [
        "kafka.example.org", "*.example.org", "10.0.0.1", "::1", "xn--bcher-kva.example", "host_1",
    ]  # fmt: skip


def test_a_folder_that_moved_trusts_the_authority_that_moved_with_it(tmp_path):
    before = opened(tmp_path / "a").passwords
    (tmp_path / "a").rename(tmp_path / "b")
    assert opened(tmp_path / "b").passwords == before
    props = load_properties(tmp_path / "b/app.properties")
    assert props["ssl.truststore.location"] == str(tmp_path / "b/ca.pem")


def test_a_client_file_without_a_password_is_named(tmp_path):
    opened(tmp_path)
    file = tmp_path / "app.properties"
    file.write_text('sasl.jaas.config=a.b.ScramLoginModule required username="app";\n')
    with pytest.raises(KlammError, match=r"app\.properties: sasl\.jaas\.config has no password"):
        opened(tmp_path)


def test_a_password_that_was_changed_at_the_broker_stays(tmp_path):
    folder = opened(tmp_path / "s")
    folder.store_users(tmp_path / "data")
    stored = ScramUsers.load(tmp_path / "data" / FILE_NAME).users
    assert set(stored) == set(USERS)
    opened(tmp_path / "s").store_users(tmp_path / "data")
    assert ScramUsers.load(tmp_path / "data" / FILE_NAME).users == stored


def test_a_removed_user_stays_removed_until_its_file_is_removed_too(tmp_path):
    folder = opened(tmp_path / "s")
    folder.store_users(tmp_path / "data")
    users = ScramUsers.load(tmp_path / "data" / FILE_NAME)
    users.replace({name: held for name, held in users.users.items() if name != "app"})
    opened(tmp_path / "s").store_users(tmp_path / "data")
    assert "app" not in ScramUsers.load(tmp_path / "data" / FILE_NAME).users
    (tmp_path / "s/app.properties").unlink()
    opened(tmp_path / "s")  # killed before it gave the user to the broker
    opened(tmp_path / "s").store_users(tmp_path / "data")
    assert "app" in ScramUsers.load(tmp_path / "data" / FILE_NAME).users


def test_a_broker_whose_data_is_lost_gets_all_users(tmp_path):
    opened(tmp_path / "s").store_users(tmp_path / "data")
    opened(tmp_path / "s").store_users(tmp_path / "other")
    assert set(ScramUsers.load(tmp_path / "other" / FILE_NAME).users) == set(USERS)


def test_a_broker_that_runs_is_not_given_users(tmp_path):
    (tmp_path / "data").mkdir()
    lock = DirectoryLock(tmp_path / "data")
    try:
        with pytest.raises(KlammError, match="data"):
            opened(tmp_path / "s").store_users(tmp_path / "data")
        assert not (tmp_path / "data" / FILE_NAME).exists()
    finally:
        lock.release()


def test_no_secret_is_in_what_is_shown_or_given_as_an_argument(tmp_path):
    folder = opened(tmp_path)
    given = folder.broker("SASL_SSL") | folder.worker()
    shown = repr(given) + repr(Signed(b"PRIVATE", b""))
    for secret in (*folder.passwords.values(), folder.token, "PRIVATE"):
        assert secret not in shown
        assert secret not in repr(folder)


@pytest.mark.parametrize("text", ["", "\n"])
def test_an_empty_token_would_let_in_everybody_and_is_refused(tmp_path, text):
    opened(tmp_path)
    (tmp_path / "metrics.token").write_text(text)
    with pytest.raises(KlammError, match=r"metrics\.token: has no token; remove the file for a new one"):
        opened(tmp_path)


def test_a_broken_certificate_or_key_is_named(tmp_path):
    opened(tmp_path)
    key, other = (tmp_path / "ca-key.pem").read_bytes(), make_authority("another", NOW)
    for broken in (b"", b"no key", other.key):
        (tmp_path / "ca-key.pem").write_bytes(broken)
        opened(tmp_path)  # a start that signs nothing does not need it
        with pytest.raises(KlammError, match=r"ca-key\.pem: is not the key of "):
            renew(tmp_path, [], NOW)
    (tmp_path / "ca-key.pem").write_bytes(key)
    (tmp_path / "server.pem").write_text("-----BEGIN CERTIFICATE-----\n")
    for use in (lambda: opened(tmp_path), lambda: renew(tmp_path, [], NOW)):
        with pytest.raises(KlammError, match=r"server\.pem: has no certificate that can be read"):
            use()
