"""The folder with all that a safe system needs: authority, the server's certificate, and files for its users.

    ca.pem              what clients trust
    ca-key.pem          the authority's key: whoever has it can pretend to be the server
    server.pem          the servers' key and certificates: broker, REST, metrics
    admin.properties    how the administrator's clients log in; app.properties, connect.properties for the others
    rest.toml           users of REST, for rest.auth.file
    rest-proxy.properties   how the REST proxy logs in at the registry
    metrics.token       the token for the broker's metrics

Only its owner may enter the folder, and read what is secret. A file that is there is kept: a start that was killed goes on
where it was. The certificate is replaced when it ends soon, or when it is not for all hosts.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from klamm.security.authority import Signed, hosts_of, make_authority, make_server
from klamm_base.errors import KlammError
from klamm_base.files import PRIVATE_FILE, make_private_folder, write_atomically
from klamm_base.jaas import parse_jaas
from klamm_base.properties import load_properties

ADMIN: Final = "admin"
APP: Final = "app"
CONNECT: Final = "connect"
USERS: Final = (ADMIN, APP, CONNECT)
PROXY: Final = "rest-proxy"
"""The REST proxy's user at the registry. It registers and reads schemas, and may do nothing at other servers."""
MECHANISM: Final = "SCRAM-SHA-512"
LOCAL_HOSTS: Final = ("localhost", "127.0.0.1", "::1")
_AUTHORITY: Final = "Klamm's local authority"
_SECRET_BYTES: Final = 24
_PROXYS_SECTION: Final = re.compile(rf"^\[users\.{PROXY}\]\n(?:[^\[\n].*\n|\n)*", re.MULTILINE)
_APPLICATIONS: Final = """\
role = "viewer"
connectors = ["*"]
subjects = ["*"]
clusters = ["*"]
topics = ["*", "!__*", "!_schemas", "!connect-configs", "!connect-offsets", "!connect-status"]
groups = ["*", "!connect-cluster", "!schema-registry"]"""
"""The application's rights, which leave out at the REST proxy what it may not touch at the broker either (`klamm.security.grants.withheld`)."""
_APPLICATIONS_OLD: Final = re.compile(
    rf'(?<=^\[users\.{APP}\]\n)(password = ".*"\n)role = "viewer"\ngroups = \["\*"\]$', re.MULTILINE
)
"""Those of earlier versions, where nobody changed them."""
_UNSTORED: Final = "users.new"
"""The names of users whom no broker has got yet."""
_READABLE: Final = 0o644
_LOGIN: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"


@dataclass(frozen=True, slots=True)
class SecurityFolder:
    """The paths in the folder, and the passwords of its users."""

    path: Path
    passwords: Mapping[str, str] = field(repr=False)
    made: frozenset[str]
    """Users whose file was made just now: their passwords are new."""
    token: str = field(repr=False)

    @classmethod
    def open(cls, path: Path, hosts: Sequence[str], now: dt.datetime) -> SecurityFolder:
        """Makes what is missing, and replaces a certificate that is due. Raises KlammError."""
        try:
            make_private_folder(path)
            _certificates(path, hosts, now)
            made = frozenset(user for user in USERS if not (path / f"{user}.properties").exists())
            if made:  # before their files: a start that is killed between them goes on here
                _note_unstored(path, made)
            passwords = {user: _client_file(path, user) for user in USERS}
            token = _token(path / "metrics.token")
            _rest_users(path, passwords, made)
        except OSError as e:
            raise KlammError(f"{e.filename or path}: {e.strerror or e}") from None
        return cls(path, passwords, made, token)

    @property
    def authority(self) -> Path:
        return (self.path / "ca.pem").absolute()

    @property
    def server(self) -> Path:
        return (self.path / "server.pem").absolute()

    def client_file(self, user: str) -> Path:
        """Returns the file with which a user's clients log in."""
        return (self.path / f"{user}.properties").absolute()

    def store_users(self, log_directory: Path) -> None:
        """Gives users whose files are new to a broker that does not run; a broker without any users gets all.

        Others keep their password there, or stay removed. Raises KlammError, also when a broker has the directory.
        """
        from klamm.security.first_users import has_users, new_credential, store
        from klamm_broker.log.log_dir import DirectoryLock
        from klamm_broker.security.sasl.credentials import Mechanism

        unstored = self.path / _UNSTORED
        try:
            make_private_folder(log_directory)
            lock = DirectoryLock(log_directory)
            try:
                noted = unstored.read_text(encoding="utf-8").split() if unstored.exists() else []
                new = [user for user in USERS if user in noted] if has_users(log_directory) else USERS
                if new:
                    made = {user: new_credential(Mechanism.SHA512, self.passwords[user]) for user in new}
                    store(log_directory, {user: {Mechanism.SHA512: each} for user, each in made.items()})
            finally:
                lock.release()
            unstored.unlink(missing_ok=True)
        except OSError as e:
            raise KlammError(f"{e.filename or log_directory}: {e.strerror or e}") from None

    def write_server(self, host: str, port: int, log_directory: Path) -> Path:
        """Writes server.properties for a broker on all addresses, unless it is there. Returns its path. Raises KlammError."""
        path = self.path / "server.properties"
        if path.exists():
            return path
        settings = {
            "listeners": f"SASL_SSL://:{port}",
            "advertised.listeners": f"SASL_SSL://{host}:{port}",
            "log.dirs": str(log_directory.absolute()),
            **self.broker("SASL_SSL"),
        }
        _write(path, "".join(f"{name}={value}\n" for name, value in settings.items()))
        return path

    def broker(self, listener: str) -> dict[str, str]:
        """Returns a broker's properties for a SASL_SSL listener: logins, TLS and permissions. None of them is secret."""
        return {
            "sasl.enabled.mechanisms": MECHANISM,
            "ssl.keystore.location": str(self.server),
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": f"User:{ADMIN}",
            "inter.broker.listener.name": listener,
            "klamm.metrics.listener.name": listener,
            "klamm.metrics.tokens.sha256": hashlib.sha256(self.token.encode()).hexdigest(),
        }

    def worker(self) -> dict[str, str]:
        """Returns a Connect worker's properties for its REST. Its login at the broker is in `client_file(CONNECT)`."""
        return {
            "listeners.https.ssl.keystore.location": str(self.server),
            "listeners.https.ssl.truststore.location": str(self.authority),
            "rest.auth.file": str((self.path / "rest.toml").absolute()),
        }


def renew(path: Path, hosts: Sequence[str], now: dt.datetime) -> Signed:
    """Replaces the server's certificate by one for these hosts (none: those of the old one). Raises KlammError."""
    try:
        authority = _authority(path)
        wanted = hosts or _server(path)[1]
        return _sign_server(path, authority, wanted, now)
    except OSError as e:
        raise KlammError(
            f"{e.filename or path}: {e.strerror or e}; `klamm security init` makes the folder"
        ) from None


def _note_unstored(path: Path, users: frozenset[str]) -> None:
    file = path / _UNSTORED
    noted = set(file.read_text(encoding="utf-8").split()) if file.exists() else set()
    _write(file, "".join(f"{user}\n" for user in sorted(noted | users)))


def _certificates(path: Path, hosts: Sequence[str], now: dt.datetime) -> None:
    if not (path / "ca.pem").exists():
        authority = make_authority(_AUTHORITY, now)
        _write(path / "ca-key.pem", authority.key.decode())
        (path / "server.pem").unlink(missing_ok=True)  # another authority signed it
        write_atomically(path / "ca.pem", authority.certificate, mode=_READABLE)
    if not (path / "server.pem").exists():
        _sign_server(path, _authority(path), hosts, now)
        return
    server, its_hosts = _server(path)
    if set(hosts) - set(its_hosts) or server.is_due(now):
        _sign_server(path, _authority(path), list(dict.fromkeys([*its_hosts, *hosts])), now)


def _server(path: Path) -> tuple[Signed, list[str]]:
    """Returns the servers' certificate, without the key, and its hosts. Raises KlammError."""
    file = path / "server.pem"
    text = file.read_bytes()
    try:
        return Signed(b"", text), hosts_of(text)
    except ValueError:
        raise KlammError(
            f"{file}: has no certificate that can be read; remove the file for a new one"
        ) from None


def _authority(path: Path) -> Signed:
    """Returns the authority. Raises KlammError."""
    authority = Signed((path / "ca-key.pem").read_bytes(), (path / "ca.pem").read_bytes())
    if not authority.usable():
        raise KlammError(
            f"{path / 'ca-key.pem'}: is not the key of {path / 'ca.pem'}; restore both from a backup, or remove both: "
            "clients must then trust the new ca.pem"
        )
    return authority


def _sign_server(path: Path, authority: Signed, hosts: Sequence[str], now: dt.datetime) -> Signed:
    signed = make_server(authority, hosts, now)
    text = signed.key + signed.certificate + authority.certificate
    write_atomically(path / "server.pem", text, mode=PRIVATE_FILE)
    return signed


def _client_file(path: Path, user: str) -> str:
    """Returns the password of a client's file, which is made where it is not. A folder that moved gets its paths right.

    Raises ConfigError, which names the file.
    """
    file, trusted = path / f"{user}.properties", str((path / "ca.pem").absolute())
    if not file.exists():
        _write(file, _client_text(user, secrets.token_urlsafe(_SECRET_BYTES), trusted))
    found = load_properties(file)
    password = parse_jaas(found.get("sasl.jaas.config", ""), f"{file}: sasl.jaas.config").options.get(
        "password"
    )
    if not password:
        raise KlammError(f"{file}: sasl.jaas.config has no password; remove the file for a new one")
    if not Path(found.get("ssl.truststore.location", "")).exists():
        _write(file, _client_text(user, password, trusted))
    return password


def _client_text(user: str, password: str, trusted: str) -> str:
    return (
        f"# How clients of the user {user} reach the brokers; Java's names. Keep it secret: it has the password.\n"
        "security.protocol=SASL_SSL\n"
        f"sasl.mechanism={MECHANISM}\n"
        f'sasl.jaas.config={_LOGIN} required username="{user}" password="{password}";\n'
        f"ssl.truststore.location={trusted}\n"
        "ssl.truststore.type=PEM\n"
    )


def _token(path: Path) -> str:
    """Returns the token for the metrics, a new one where there is none. Raises KlammError: an empty one would let in everybody."""
    if not path.exists():
        _write(path, secrets.token_urlsafe(_SECRET_BYTES) + "\n")
    token = path.read_text(encoding="utf-8").strip()
    if not token:
        raise KlammError(f"{path}: has no token; remove the file for a new one")
    return token


def _rest_users(path: Path, passwords: Mapping[str, str], made: frozenset[str]) -> None:
    """Writes the users of REST: the administrator's and the application's passwords are those at the broker.

    A folder of an earlier version gets the proxy's user added, and the application's rights as they are now. The users come before the proxy's file: a start that is killed
    between them gives the proxy another password.
    """
    file, proxy = path / "rest.toml", path / f"{PROXY}.properties"
    all_new = not file.exists() or bool(made & {ADMIN, APP})
    if not all_new:
        text = file.read_text(encoding="utf-8")
        narrowed = _APPLICATIONS_OLD.sub(rf"\g<1>{_APPLICATIONS}", text)
        if narrowed != text:
            _write(file, narrowed)
        if proxy.exists():
            return
    info = load_properties(proxy).get("basic.auth.user.info", "") if proxy.exists() else ""
    password = info.partition(":")[2] or secrets.token_urlsafe(_SECRET_BYTES)
    own = _rest_user(PROXY, password, 'role = "operator"\nsubjects = ["*"]')
    if all_new:
        rights = {ADMIN: 'role = "admin"', APP: _APPLICATIONS}
        text = "".join(_rest_user(user, passwords[user], right) for user, right in rights.items()) + own
    else:
        kept = _PROXYS_SECTION.sub("", file.read_text(encoding="utf-8"))
        text = f"{kept.rstrip()}\n\n{own}"
    _write(file, text.rstrip("\n") + "\n")
    if not info:
        comment = "# The REST proxy's login at the schema registry. Keep it secret: it has the password.\n"
        login = f"basic.auth.credentials.source=USER_INFO\nbasic.auth.user.info={PROXY}:{password}\n"
        _write(proxy, comment + login)


def _rest_user(user: str, password: str, rights: str) -> str:
    from klamm.web.passwords import hash_password

    return f'[users.{user}]\npassword = "{hash_password(password)}"\n{rights}\n\n'


def _write(path: Path, text: str) -> None:
    write_atomically(path, text.encode(), mode=PRIVATE_FILE)
