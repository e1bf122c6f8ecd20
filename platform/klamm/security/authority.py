"""A certificate authority of one's own, and the certificates that it signs for servers. No I/O.

Keys are ECDSA on P-256: every client of Kafka's takes them, and a handshake costs a fraction of RSA's.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from klamm_base.errors import ConfigError

AUTHORITY_DAYS: Final = 3650
SERVER_DAYS: Final = 397  # browsers and Apple's TLS refuse certificates that live longer
RENEW_DAYS: Final = 30
_HOST: Final = re.compile(r"(\*\.)?[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*\.?")
_BACKDATED: Final = dt.timedelta(hours=1)  # for clients whose clocks are late


@dataclass(frozen=True, slots=True)
class Signed:
    """A private key and its certificate, both PEM."""

    key: bytes = field(repr=False)
    certificate: bytes

    def ends(self) -> dt.datetime:
        """Returns the last moment at which the certificate is valid."""
        return x509.load_pem_x509_certificate(self.certificate).not_valid_after_utc

    def usable(self) -> bool:
        """Tells whether both can be read and the key is the certificate's, as for an authority of `make_authority`."""
        try:
            key = serialization.load_pem_private_key(self.key, None)
            certificate = x509.load_pem_x509_certificate(self.certificate)
        except (ValueError, TypeError):  # TypeError: the key has a password
            return False
        return isinstance(key, ec.EllipticCurvePrivateKey) and key.public_key() == certificate.public_key()

    def is_due(self, now: dt.datetime) -> bool:
        """Tells whether the certificate should be replaced."""
        return self.ends() - now < dt.timedelta(days=RENEW_DAYS)


def make_authority(name: str, now: dt.datetime) -> Signed:
    """Returns a new authority, which signs certificates of servers and clients, and no other authorities."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _named(name)
    builder = (
        _builder(subject, subject, key, now, AUTHORITY_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    return _signed(key, builder.sign(key, hashes.SHA256()))


def make_server(authority: Signed, hosts: Sequence[str], now: dt.datetime) -> Signed:
    """Returns a certificate for a server with these names and addresses. Raises ConfigError for an impossible one."""
    issuer = x509.load_pem_x509_certificate(authority.certificate)
    issuer_key = serialization.load_pem_private_key(authority.key, None)
    assert isinstance(issuer_key, ec.EllipticCurvePrivateKey), "make_authority made it"
    key = ec.generate_private_key(ec.SECP256R1())
    names = x509.SubjectAlternativeName([_alternative(host) for host in hosts])
    builder = (
        _builder(_named(hosts[0]), issuer.subject, key, now, SERVER_DAYS)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(names, critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False
        )
    )
    return _signed(key, builder.sign(issuer_key, hashes.SHA256()))


def hosts_of(certificate: bytes) -> list[str]:
    """Returns the names and addresses that a certificate is for."""
    found = x509.load_pem_x509_certificate(certificate).extensions
    names = found.get_extension_for_class(x509.SubjectAlternativeName).value
    return [str(name.value) for name in names]


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host.strip("[]")))
    except ValueError:
        pass
    try:
        name = host.encode("idna").decode()
    except UnicodeError:
        name = ""
    if not _HOST.fullmatch(name):
        raise ConfigError(f"--host {host!r} is neither a host's name nor an address")
    return x509.DNSName(name)


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])  # X.520's limit


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, now: dt.datetime, days: int
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATED)
        .not_valid_after(now + dt.timedelta(days=days))
    )


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        key_cert_sign=signs,
        crl_sign=signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _signed(key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> Signed:
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return Signed(pem, certificate.public_bytes(serialization.Encoding.PEM))
