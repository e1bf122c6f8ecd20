"""Names of TLS clients: the subject as Java prints it, and the rules that make a principal's name of it."""

from __future__ import annotations

import contextlib
import datetime as dt
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st

from klamm_base.errors import ConfigError
from klamm_broker.security.distinguished_name import BadCertificate, subject_of
from klamm_broker.security.principal_rules import NoRule, PrincipalRules

NAMES = Path(__file__).resolve().parent.parent / "fixtures/names"
KEY = ec.generate_private_key(ec.SECP256R1())
DN = "CN=duke,OU=JavaSoft,O=Sun Microsystems,C=US"


def der(subject: x509.Name) -> bytes:
    now = dt.datetime.now(dt.UTC)
    builder = (
        x509.CertificateBuilder().subject_name(subject).issuer_name(subject).public_key(KEY.public_key())
    )
    builder = builder.serial_number(x509.random_serial_number())
    builder = builder.not_valid_before(now).not_valid_after(now + dt.timedelta(days=1))
    return builder.sign(KEY, hashes.SHA256()).public_bytes(serialization.Encoding.DER)


CERTIFICATE = der(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "x")]))


def test_subjects_are_printed_as_java_prints_them():
    # subjects.txt is what Java 17's getSubjectX500Principal().getName() said of subjects.pem
    wanted = (NAMES / "subjects.txt").read_text(encoding="utf-8").removesuffix("\n").split("\n")
    certificates = x509.load_pem_x509_certificates((NAMES / "subjects.pem").read_bytes())
    assert [subject_of(c.public_bytes(serialization.Encoding.DER)) for c in certificates] == wanted


@given(st.lists(st.text(st.characters(codec="utf-8"), min_size=1, max_size=20), min_size=1, max_size=4))
def test_a_printed_subject_can_be_read_back(units):
    subject = x509.Name([x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, unit) for unit in units])
    text = subject_of(der(subject))
    parts, part, chars = [], "", iter(text)
    for char in chars:
        if char == "\\":
            escaped = next(chars)
            part += "\0" if escaped == "0" and next(chars) == "0" else escaped
        elif char == ",":
            parts.append(part)
            part = ""
        else:
            part += char
    assert [p.removeprefix("OU=") for p in (*parts, part)] == units[::-1]


@given(st.data())
def test_bytes_that_are_no_certificate_are_refused_or_read(data):
    whole = bytearray(CERTIFICATE)
    for _ in range(data.draw(st.integers(0, 5))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(whole[: data.draw(st.integers(0, len(whole)))])
    with contextlib.suppress(BadCertificate):  # any other error is a defect
        subject_of(cut)


# The cases of Kafka's SslPrincipalMapperTest, and some more.
@pytest.mark.parametrize(
    ("rules", "name", "wanted"),
    [
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/", "CN=duke,OU=ServiceUsers,O=Org,C=US", "duke"),
        ("RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L", "CN=Duke,OU=Sme,O=O,L=Fy,ST=P,C=US", "duke@sme"),
        ("RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/U", DN, "DUKE"),
        ("RULE:^cn=(.*?),ou=(.*?)$/$1/, DEFAULT", DN, DN),
        ("DEFAULT", DN, DN),
        ("", DN, DN),
        ("RULE:^CN=(.*?),.*$/CN=$1\\/x/,DEFAULT", DN, "CN=duke/x"),
        ("RULE:^CN=([^,]+),.*$/$1-$2/", DN, "duke-$2"),
        (r"RULE:.*/\$1/", "CN=a", "$1$1"),
    ],
)  # fmt: skip
def test_rules(rules, name, wanted):
    assert PrincipalRules(rules).name_of(name) == wanted


@pytest.mark.parametrize(
    "rules",
    ["default", "DEFAUL", "DEFAULT/L", "RULE:CN=(.*?),OU=(.*?)", "RULE:a/b", "RULE:(/x/", "DEFAULT;DEFAULT", "RULE:a/$b/"],
)  # fmt: skip
def test_rules_that_cannot_be_used_name_the_property(rules):
    with pytest.raises(ConfigError, match=r"ssl\.principal\.mapping\.rules"):
        PrincipalRules(rules)


def test_a_name_that_no_rule_fits_is_refused():
    with pytest.raises(NoRule, match=r"no rule of ssl\.principal\.mapping\.rules fits CN=x"):
        PrincipalRules("RULE:CN=y/$0/").name_of("CN=x")


@given(st.text(max_size=50))
def test_any_text_is_rules_or_is_refused(text):
    try:
        rules = PrincipalRules(text)
    except ConfigError:
        return
    with contextlib.suppress(NoRule):
        rules.name_of(DN)
