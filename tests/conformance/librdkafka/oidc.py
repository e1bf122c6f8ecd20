"""librdkafka's test of OIDC, 0126, at a broker that checks signed tokens, beside a token endpoint of ours.

    .venv/bin/python tests/conformance/librdkafka/oidc.py [klamm|kafka]

It needs curl's headers (Debian: libcurl4-openssl-dev): the suite is built once more, with curl.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).parent.resolve()
sys.path[:0] = [str(HERE.parents[1]), str(HERE)]

import run  # noqa: E402
from support import oidc  # noqa: E402
from support.suites import CANNOT_RUN, REGRESSION, Unavailable, step  # noqa: E402

HANDLER = "sasl.server.callback.handler.class"
VALIDATOR = "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
PASSED = re.compile(r"\[ (do_test\w+):\d+: ([^\[\]]*?)\s*: (PASS|FAIL|SKIP)")
LIMIT_S = 600


def built() -> Path:
    """Returns the sources of the suite, built with curl. Raises Unavailable."""
    suite = run.SUITE.built()
    source = suite / "with-curl"
    if not (source / ".ready").exists():
        shutil.rmtree(source, ignore_errors=True)
        shutil.copytree(suite / run.SOURCE, source, symlinks=True)
        step(["./configure", "--disable-gssapi"], source)
        if "WITH_CURL 1" not in (source / "config.h").read_text():
            raise Unavailable(
                "curl's headers are not installed (Debian: apt-get install libcurl4-openssl-dev)"
            )
        step(["make", "-j2", "libs"], source)
        step(["make", "-j2", "-C", "tests", "test-runner"], source)
        (source / ".ready").touch()
    return source


@contextlib.contextmanager
def broker(which: str, work: Path, keys: Path) -> Iterator[str]:
    """Yields the address of a listener that takes tokens which these keys have signed, and nothing else."""
    checks = {
        f"oauthbearer.{HANDLER}": VALIDATOR,
        "oauthbearer.sasl.jaas.config": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;",
    }
    settings = {
        **{f"listener.name.sasl_plaintext.{name}": value for name, value in checks.items()},
        "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
        "sasl.oauthbearer.expected.audience": oidc.AUDIENCE,
        "sasl.oauthbearer.expected.issuer": oidc.ISSUER,
        "group.initial.rebalance.delay.ms": "0",
    }
    if which == "klamm":
        from support.secure_broker import SecureBroker

        with SecureBroker(work / "klamm", settings) as ours:
            yield ours.sasl_bootstrap
    else:
        from support.secure_kafka import SecureKafka

        (work / "kafka").mkdir()
        # Kafka reads keys of no other addresses
        os.environ["JAVA_TOOL_OPTIONS"] = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={keys.as_uri()} -Dorg.apache.kafka.sasl.oauthbearer.allowed.files={keys}"  # fmt: skip
        with SecureKafka(work / "kafka", {"share.coordinator.state.topic.replication.factor": "1", "share.coordinator.state.topic.min.isr": "1", **settings}) as kafka:  # fmt: skip
            yield f"127.0.0.1:{kafka.ports['SASL_PLAINTEXT']}"


def main(which: str) -> int:
    """Runs the test, prints its parts, and returns the exit code."""
    try:
        source = built()
    except Unavailable as error:
        print(error, file=sys.stderr)
        return CANNOT_RUN
    with tempfile.TemporaryDirectory(prefix="klamm-oidc-") as name:
        work = Path(name)
        with oidc.TokenServer(work) as tokens, broker(which, work, tokens.keys) as address:
            settings = {
                "metadata.broker.list": address,
                "security.protocol": "sasl_plaintext",
                "sasl.mechanism": "OAUTHBEARER",
                "sasl.oauthbearer.method": "OIDC",
                "sasl.oauthbearer.client.id": oidc.CLIENT_ID,
                "sasl.oauthbearer.client.secret": oidc.CLIENT_SECRET,
                "sasl.oauthbearer.scope": oidc.SCOPE,
                "sasl.oauthbearer.token.endpoint.url": tokens.url(),
                "test.timeout.multiplier": "4",
            }
            (work / "test.conf").write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
            env = {
                "RDKAFKA_TEST_CONF": str(work / "test.conf"),
                "TEST_KAFKA_VERSION": "4.3.1",
                "TESTS": "0126",
                "LD_LIBRARY_PATH": "../src:../src-cpp",
                "VALID_OIDC_URL": tokens.url(),
                "EXPIRED_TOKEN_OIDC_URL": tokens.url("expired"),
                "INVALID_OIDC_URL": tokens.url("malformed"),
                "OAUTHBEARER_CLIENT_PRIVATE_KEY": str(tokens.client_key),
                "OAUTHBEARER_CLIENT_PRIVATE_KEY_ENCRYPTED": str(tokens.encrypted_client_key),
                "OAUTHBEARER_CLIENT_PRIVATE_KEY_PASSWORD": oidc.PASSPHRASE,
            }
            done = subprocess.run(
                ["./test-runner", "-L", "-p1"],
                cwd=source / "tests", env=os.environ | env, capture_output=True, text=True, timeout=LIMIT_S, check=False,
            )  # fmt: skip
    log = re.sub(r"\x1b\[[0-9;]*m", "", done.stdout + done.stderr)
    for function, part, state in PASSED.findall(log):
        print(f"{state}  {function}: {' '.join(part.split())}")
    print(f"0126_oauthbearer_oidc at {which}: exit code {done.returncode}; {tokens.given} tokens were given")
    if done.returncode:
        print(log[-4000:])
        return REGRESSION
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else "klamm"))
