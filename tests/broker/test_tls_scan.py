"""The discoveries of strangers at our TLS listeners: openssl s_client and the scanner SSLyze, listeners at their defaults."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator

import pytest
from support.kafka_broker import free_port
from support.secure_broker import SecureBroker
from support.tls_scan import PROTOCOLS, Scan

pytestmark = pytest.mark.usefixtures("processes")

TLS_1_2 = {
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
}
TLS_1_3 = {"TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256"}
WEAK = "ALL:COMPLEMENTOFALL:-ECDHE+AESGCM:-ECDHE+CHACHA20:-DHE+AESGCM:-DHE+CHACHA20:@SECLEVEL=0"
"""Every suite that OpenSSL has, but for those that a listener may take."""


@pytest.fixture(scope="module")
def ports(processes: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, int]]:
    """Yields the ports of a listener of either kind, with Kafka's keys at their defaults."""
    ssl_port, sasl_port = free_port(), free_port()
    listeners = f"PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:{ssl_port},SASL_SSL://127.0.0.1:{sasl_port}"
    config = {"listeners": listeners, "sasl.enabled.mechanisms": "PLAIN"}
    with SecureBroker(tmp_path_factory.mktemp("scanned"), config):
        yield {"SSL": ssl_port, "SASL_SSL": sasl_port}


def s_client(port: int, *options: str) -> str:
    """Returns the suite that OpenSSL's client agrees on, empty where the server refuses."""
    program = shutil.which("openssl")
    if program is None:
        pytest.skip("openssl is not installed")
    command = [program, "s_client", "-connect", f"127.0.0.1:{port}", *options]
    ran = subprocess.run(command, input="", capture_output=True, text=True, timeout=60, check=False)
    found = re.search(r"Cipher is (\S+)", ran.stdout)
    assert found is not None, ran.stderr
    if found[1] == "(NONE)":
        assert "alert" in ran.stderr, ran.stderr  # the server has refused, not the client
        return ""
    return found[1]


@pytest.mark.parametrize("listener", ["SSL", "SASL_SSL"])
def test_openssl_gets_in_by_1_2_and_1_3_only(ports, listener):
    port = ports[listener]
    assert s_client(port, "-tls1_3") in TLS_1_3
    assert s_client(port, "-tls1_2").startswith("ECDHE-RSA-")
    for old in ("-tls1", "-tls1_1"):
        assert s_client(port, old, "-cipher", "ALL:@SECLEVEL=0") == ""


@pytest.mark.parametrize("listener", ["SSL", "SASL_SSL"])
def test_openssl_gets_in_by_no_weak_suite(ports, listener):
    assert s_client(ports[listener], "-tls1_2", "-cipher", WEAK) == ""
    assert s_client(
        ports[listener], "-tls1_2", "-cipher", f"{WEAK}:ECDHE-RSA-AES128-GCM-SHA256"
    )  # it is the suites alone


@pytest.mark.usefixtures("tls_scanner")
@pytest.mark.parametrize("listener", ["SSL", "SASL_SSL"])
def test_a_scanner_finds_nothing(ports, listener, tmp_path):
    scan = Scan(ports[listener], tmp_path)
    taken = {protocol: suites for protocol in PROTOCOLS if (suites := scan.suites(protocol))}
    assert taken == {"tls_1_2": TLS_1_2, "tls_1_3": TLS_1_3}
    assert scan["tls_compression"] == {"supports_compression": False}
    assert scan["heartbleed"] == {"is_vulnerable_to_heartbleed": False}
    assert scan["openssl_ccs_injection"] == {"is_vulnerable_to_ccs_injection": False}
    assert scan["robot"] == {"robot_result": "NOT_VULNERABLE_RSA_NOT_SUPPORTED"}
    assert scan["session_renegotiation"]["is_vulnerable_to_client_renegotiation_dos"] is False
    assert scan["tls_fallback_scsv"] == {"supports_fallback_scsv": True}
    assert scan["tls_extended_master_secret"] == {"supports_ems_extension": True}
    # of Mozilla's profile: two curves stronger than its list, and the test's own certificate
    assert scan.complaints.keys() <= {
        "tls_curves",
        "certificate_path_validation",
        "maximum_certificate_lifespan",
    }
    assert {curve["name"] for curve in scan["elliptic_curves"]["supported_curves"]} == {"X25519", "X448", "secp256r1", "secp384r1", "secp521r1"}  # fmt: skip
